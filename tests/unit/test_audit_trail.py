"""What the audit trail holds about a call, and what it never holds."""

import json
import os
import re
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from broker.audit_record import GENESIS, LINE_LIMIT_BYTES, Call
from broker.refusal import StartupError
from protocol.messages import ResultCode
from tests.support.opened_trail import CALM, POLICY, a_call, open_trail, records, result, run, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_a_command_that_ran_leaves_attempt_and_outcome_with_all_fields(path: Path) -> None:
    trail = open_trail(path)
    call = run(trail, "git log -1")
    attempt, outcome = records(path)
    assert (
        attempt.items()
        >= {
            "seq": 1,
            "record_type": "attempt",
            "event_id": call.event_id,
            "tool": "run_command",
            "command_raw": "git log -1",
            "argv": ["git", "log", "-1"],
            "cwd": "src",
            "code": None,
            "exit_code": None,
            "policy_sha256": POLICY,
            "session": trail.session,
            "oldest_open": 1,
            "prev": GENESIS,
        }.items()
    )
    assert (
        outcome.items()
        >= {
            "seq": 2,
            "record_type": "outcome",
            "event_id": call.event_id,
            "code": "OK",
            "exit_code": 0,
            "duration_ms": 3,
            "stdout_bytes": 12,
            "stderr_bytes": 0,
            "policy_reason": "",
            "oldest_open": None,
            "prev": attempt["hash"],
        }.items()
    )
    trail.close()


def test_a_hash_can_be_recomputed_from_the_line_alone(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    for line in path.read_text().splitlines():
        body = re.sub(r',"hash":"[0-9a-f]{64}"}$', "}", line)
        assert sha256(body.encode()).hexdigest() == json.loads(line)["hash"]


def test_the_time_is_utc_with_microseconds(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", r["ts"]) for r in records(path))


def test_what_does_not_run_leaves_one_outcome(path: Path) -> None:
    trail = open_trail(path)
    trail.outcome(a_call("id"), result(ResultCode.POLICY_DENIED, "id is on no list"))
    trail.close()
    (record,) = records(path)
    assert (record["record_type"], record["code"], record["policy_reason"]) == (
        "outcome",
        "POLICY_DENIED",
        "id is on no list",
    )


def test_a_call_that_became_no_argv_says_so(path: Path) -> None:
    trail = open_trail(path)
    trail.outcome(
        Call(tool="run_command", command_raw="'", policy_sha256=POLICY), result(ResultCode.PARSE_ERROR)
    )
    trail.close()
    (record,) = records(path)
    assert (record["argv"], record["cwd"]) == (None, None)


@pytest.mark.parametrize("code", list(ResultCode))
def test_output_is_in_no_record_of_any_code(path: Path, code: ResultCode) -> None:
    trail = open_trail(path)
    call = a_call()
    trail.sync(trail.attempt(call))
    trail.outcome(call, result(code))
    trail.outcome(a_call(tool="explain_command"), result(code))
    trail.close()
    assert b"canary" not in path.read_bytes()


def test_every_text_of_a_record_is_redacted(path: Path) -> None:
    trail = open_trail(path, redact=lambda text: text.replace("hunter2", "[REDACTED:x]"))
    call = a_call("login --password hunter2")
    call.cwd = "home/hunter2"
    trail.attempt(call)
    trail.outcome(call, result(ResultCode.EXECUTOR_ERROR, "hunter2 is no program"))
    trail.event("protocol_violation", "a frame that holds hunter2")
    trail.close()
    assert b"hunter2" not in path.read_bytes()
    assert records(path)[0]["argv"] == ["login", "--password", "[REDACTED:x]"]


def test_a_long_command_is_cut_with_its_length_and_the_digest_of_the_redacted_text(path: Path) -> None:
    trail = open_trail(path, redact=lambda text: text.replace("hunter2", "[REDACTED:x]"))
    command = "echo hunter2 " + "é" * 50_000
    trail.attempt(a_call(command))
    trail.close()
    (record,) = records(path)
    clean = command.replace("hunter2", "[REDACTED:x]")
    assert len(record["command_raw"]) == 8_192
    assert record["cut"]["command_raw"] == {
        "characters": len(clean),
        "sha256": sha256(clean.encode()).hexdigest(),
    }
    assert record["cut"]["argv"]["characters"] == len(clean)


@pytest.mark.parametrize("command", ["\x00" * 65_536, "a " * 32_768, "\U0001f600" * 65_536, '"\\' * 32_768])
def test_no_record_is_longer_than_a_reader_expects(path: Path, command: str) -> None:
    trail = open_trail(path)
    call = a_call(command)
    call.cwd = command
    trail.attempt(call)
    trail.outcome(call, result(ResultCode.INTERNAL_ERROR, command))
    trail.close()
    assert max(map(len, path.read_bytes().splitlines())) < LINE_LIMIT_BYTES / 4
    assert verified(path).sound


def test_a_file_name_that_is_no_utf8_can_be_recorded(path: Path) -> None:
    trail = open_trail(path)
    call = a_call("cat *")
    call.argv = ("cat", "caf\udce9.txt", "\ud800")
    trail.attempt(call)
    trail.close()
    assert records(path)[0]["argv"] == ["cat", "caf\\xe9.txt", "\\ud800"]


def test_a_reload_names_the_new_policy(path: Path) -> None:
    trail = open_trail(path)
    trail.reload("6" * 64)
    trail.close()
    (record,) = records(path)
    assert (record["record_type"], record["event"], record["policy_sha256"]) == ("event", "policy", "6" * 64)


def test_a_trail_is_only_readable_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state" / "deep" / "audit.jsonl"
    open_trail(path, create_folder=True).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_is_missing_is_not_made_for_a_named_trail(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"does not exist; HTMCP_AUDIT_LOG or .* names another place"):
        open_trail(tmp_path / "missing" / "audit.jsonl")


def test_a_place_where_no_file_can_be_made_is_not_taken_for_a_trail_that_was_removed(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"no file can be made there; HTMCP_AUDIT_LOG"):
        open_trail(Path("/proc/a.jsonl"))
    (tmp_path / "audit.jsonl.000000000001").touch()
    with pytest.raises(StartupError, match="rotated files stand beside it"):
        open_trail(tmp_path / "audit.jsonl")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_each_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        open_trail(tmp_path / "state/own/audit.jsonl", create_folder=True).close()
    finally:
        os.umask(before)
    for place in (tmp_path / "state", tmp_path / "state/own"):
        assert place.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(("mode", "group"), [(0o777, None), (0o702, None), (0o770, 12_345), (0o2775, 12_345)])
def test_a_trail_that_others_could_replace_is_refused(path: Path, mode: int, group: int | None) -> None:
    if group is not None:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to any group")
        os.chown(path.parent, -1, group)
    path.parent.chmod(mode)
    with pytest.raises(StartupError, match="put another file in its place"):
        open_trail(path)
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o700, 0o775, 0o755, 0o1755])
def test_a_trail_in_a_folder_where_others_can_replace_nothing_is_used(path: Path, mode: int) -> None:
    path.parent.chmod(mode)
    open_trail(path).close()
    assert path.exists()


def test_brokers_that_share_a_trail_keep_one_chain(path: Path) -> None:
    trails = [open_trail(path) for _ in range(3)]
    for turn in range(12):
        run(trails[turn % 3], f"echo {turn}")
    for trail in trails:
        trail.close()
    assert [record["seq"] for record in records(path)] == list(range(1, 25))
    assert len({record["session"] for record in records(path)}) == 3
    assert verified(path).sound


def test_the_next_broker_continues_the_chain(path: Path) -> None:
    for _ in range(3):
        trail = open_trail(path)
        run(trail)
        trail.close()
    assert verified(path).last_seq == 6


def test_nothing_but_calls_is_recorded_when_nothing_happens(path: Path) -> None:
    trail = open_trail(path)
    trail.outcome(a_call(), CALM)
    trail.close()
    open_trail(path).close()
    assert len(records(path)) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"not json\n",
        b"{}\n",
        b"\n",
        b'{"seq":1}\n',
        b"\x00" * 4096 + b"\n",
        b"x" * 3_000_000 + b"\n",
        b'{"record_type":"outcome","event_id":"1"}\n',
    ],
)
def test_a_file_that_is_no_trail_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StartupError, match=r"does not verify .*audit repair"):
        open_trail(path)
    assert path.read_bytes() == content


def test_a_trail_that_was_tampered_with_is_refused_and_left_alone(path: Path) -> None:
    trail = open_trail(path)
    for _ in range(20):
        run(trail)
    trail.close()
    changed = path.read_bytes().replace(b"ls -l", b"rm -r", 1)
    path.write_bytes(changed)
    with pytest.raises(StartupError, match=r"does not verify .*audit repair"):
        open_trail(path)
    assert path.read_bytes() == changed


def test_a_trail_whose_beginning_is_missing_is_refused(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(StartupError, match="missing"):
        open_trail(path)


def test_a_trail_that_others_may_write_is_refused(path: Path) -> None:
    path.touch()
    path.chmod(0o622)
    with pytest.raises(StartupError, match="others may write"):
        open_trail(path)
