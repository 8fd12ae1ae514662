"""The contract's promises about the audit trail. Docstrings quote it."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command import assert_refused, run_cli
from tests.support.made_secrets import every_kind, survives
from tests.support.place import POLICY, Place
from tests.support.processes import unique_seconds, wait_until_running
from tests.support.sdk_client import SdkClient, envelope_of
from tests.support.trail import Record, about, calls

OPEN_POLICY = POLICY + '[audit]\nfail_mode = "open"\n'


def _run_without_a_trail(client: SdkClient) -> str:
    client.place.trail.unlink()
    return client.run("touch ran_unlogged.txt").code


def _ran_unlogged(place: Place) -> bool:
    return (place.jail / "ran_unlogged.txt").exists()


@pytest.fixture(scope="module")
def without_trail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """A client on a server whose trail was taken away while it ran."""
    with SdkClient(Place(tmp_path_factory.mktemp("without_trail"))) as connected:
        assert connected.run("true").code == "OK"
        connected.place.trail.unlink()
        yield connected


class Crash(NamedTuple):
    """A place where a broker was killed while a command ran, and what the trail had of that command."""

    place: Place
    left_behind: list[Record]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """What a broker leaves that is killed."""
    seconds = unique_seconds()
    with SdkClient(Place(tmp_path_factory.mktemp("crashed"))) as client:
        call = client.start("run_command", {"command": f"sh wait.sh {seconds}"})
        wait_until_running(seconds)
        os.kill(client.pid, signal.SIGKILL)
        assert envelope_of(call.result(timeout=10)).code == "INTERNAL_ERROR"
    return Crash(client.place, about(client.place.trail, seconds))


def test_every_call_of_both_tools_is_in_the_trail(client: SdkClient) -> None:
    """Audited. Every invocation of both tools is appended to a JSONL trail (byte counts only, never output
    content)."""
    client.run("echo both-tools")
    client.explain("echo both-tools")
    found = about(client.place.trail, "both-tools")
    assert [(record["tool"], record["record_type"]) for record in found] == [
        ("run_command", "attempt"),
        ("run_command", "outcome"),
        ("explain_command", "outcome"),
    ]


@pytest.mark.parametrize(
    "arguments", [{}, {"command": 7}, {"command": "ls", "unheard-of": 1}, {"command": "\0unheard-of"}]
)
def test_a_call_that_is_no_request_is_in_the_trail_too(
    client: SdkClient, arguments: dict[str, object]
) -> None:
    """Audited. Every invocation of both tools is appended to a JSONL trail (byte counts only, never output
    content)."""
    for tool in ("run_command", "explain_command"):
        before = len(calls(client.place.trail))
        client.call(tool, arguments)
        (record,) = calls(client.place.trail)[before:]
        assert (record["tool"], record["record_type"], record["code"]) == (tool, "outcome", "PARSE_ERROR")


def test_the_trail_is_appended_to_by_the_next_server(place: Place) -> None:
    """Audited. Every invocation of both tools is appended to a JSONL trail (byte counts only, never output
    content)."""
    run_cli(place, "run", "echo first")
    before = place.trail.read_bytes()
    run_cli(place, "explain", "echo second")
    assert place.trail.read_bytes().startswith(before)
    assert len(calls(place.trail)) == 3


def test_a_command_that_cannot_be_logged_is_not_run(without_trail: SdkClient) -> None:
    """Under fail-closed, a command that can't be logged is not run."""
    assert without_trail.run("touch ran_unlogged.txt").exit_code is None
    assert not _ran_unlogged(without_trail.place)


@pytest.mark.parametrize("log", ["audit.jsonl", "src/audit.jsonl", "../jail/audit.jsonl"])
def test_a_trail_inside_the_jail_is_refused_at_startup(place: Place, log: str) -> None:
    """The audit log must live outside the jail root or startup is refused."""
    ended = run_cli(place, HTMCP_AUDIT_LOG=str(place.jail / log))
    assert_refused(ended, "jail")
    assert not (place.jail / log).exists()


def test_a_trail_that_leads_into_the_jail_by_a_link_is_refused_at_startup(place: Place) -> None:
    """The audit log must live outside the jail root or startup is refused."""
    (place.outside / "link.jsonl").symlink_to(place.jail / "audit.jsonl")
    (place.outside / "folder").symlink_to(place.jail)
    for log in ("link.jsonl", "folder/audit.jsonl"):
        ended = run_cli(place, HTMCP_AUDIT_LOG=str(place.outside / log))
        assert_refused(ended, "jail")
    assert not (place.jail / "audit.jsonl").exists()


def test_each_line_of_the_trail_is_one_json_object(client: SdkClient) -> None:
    """Every call to either tool is appended to audit_log (one JSON object per line)."""
    client.run("printf 'two\nlines'")
    client.explain("echo 'a \"quoted\" word \u2028 and a separator'")
    lines = client.place.trail.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_records_count_the_bytes_of_output(client: SdkClient) -> None:
    """Records carry byte counts (stdout_bytes, stderr_bytes) but never the output content — secret redaction is a
    separate concern."""
    (client.place.jail / "counted.txt").write_text("content-of-a-file\n" * 3_000)
    client.run("cat counted.txt")
    client.run("sh tell_stderr.sh counted.txt")
    outcomes = [
        record for record in about(client.place.trail, "counted.txt") if record["record_type"] == "outcome"
    ]
    assert [(record["stdout_bytes"], record["stderr_bytes"]) for record in outcomes] == [
        (54_000, 0),
        (0, 54_000),
    ]


def test_an_executed_command_leaves_an_attempt_and_an_outcome_of_one_event(client: SdkClient) -> None:
    """An executed command writes two records sharing one event_id: an attempt record before execution and an outcome
    record after — told apart by the explicit record_type field ("attempt" | "outcome"), not by inference."""
    client.run("sh end_with.sh 5")
    attempt, outcome = about(client.place.trail, "end_with.sh 5")
    assert (attempt["record_type"], outcome["record_type"]) == ("attempt", "outcome")
    assert attempt["event_id"] == outcome["event_id"]
    assert (outcome["code"], outcome["exit_code"]) == ("OK", 5)
    assert attempt.get("exit_code") is None


def test_no_two_calls_share_an_event(client: SdkClient) -> None:
    """An executed command writes two records sharing one event_id: an attempt record before execution and an outcome
    record after — told apart by the explicit record_type field ("attempt" | "outcome"), not by inference."""
    for _ in range(3):
        client.run("echo one-event-each")
    found = about(client.place.trail, "one-event-each")
    assert len({record["event_id"] for record in found}) == 3


def test_a_broker_that_is_killed_leaves_the_attempt_behind(crashed: Crash) -> None:
    """The attempt record is written first so a crash mid-execution can never leave a silently-unlogged command."""
    assert [record["record_type"] for record in crashed.left_behind] == ["attempt"]


def test_an_attempt_without_an_outcome_is_closed_at_the_next_start(crashed: Crash) -> None:
    """The attempt record is written first so a crash mid-execution can never leave a silently-unlogged command."""
    assert run_cli(crashed.place, "run", "true").status == 0
    event_id = crashed.left_behind[0]["event_id"]
    records = [record for record in calls(crashed.place.trail) if record["event_id"] == event_id]
    assert [record["record_type"] for record in records] == ["attempt", "outcome"]
    assert records[1]["code"] != "OK"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("run_command", {"command": "id"}, "POLICY_DENIED"),
        ("run_command", {"command": "ls | ls"}, "POLICY_DENIED"),
        ("run_command", {"command": "'"}, "PARSE_ERROR"),
        ("run_command", {"command": "ls", "cwd": ".."}, "CWD_ESCAPE"),
        ("run_command", {"command": "not-installed-anywhere"}, "EXECUTOR_ERROR"),
        ("explain_command", {"command": "ls"}, "OK"),
        ("explain_command", {"command": "id"}, "POLICY_DENIED"),
    ],
)
def test_what_does_not_execute_leaves_one_outcome(
    client: SdkClient, tool: str, arguments: dict[str, str], code: str
) -> None:
    """Denials, parse errors, cwd escapes, and dry runs write a single "outcome" record."""
    before = len(calls(client.place.trail))
    client.call(tool, arguments)
    records = calls(client.place.trail)[before:]
    outcomes = [record for record in records if record["record_type"] == "outcome"]
    assert [record["code"] for record in outcomes] == [code]
    assert len(records) == 1 or code == "EXECUTOR_ERROR"


def test_commands_are_redacted_in_the_trail(client: SdkClient) -> None:
    """command_raw and argv are redacted (see Redaction); output content is still never recorded — only byte
    counts."""
    for made in every_kind():
        client.run(f"echo '{made.text}'")
        client.explain(f"echo {' '.join(made.text.split())}")
        client.run(f"not-on-any-list '{made.text}'")
        assert not survives(made.secret, client.place.trail.read_text()), made.kind


def test_output_is_never_recorded(client: SdkClient) -> None:
    """command_raw and argv are redacted (see Redaction); output content is still never recorded — only byte
    counts."""
    (client.place.jail / "output.txt").write_text("never-in-the-trail\n")
    assert "never-in-the-trail" in client.run("cat output.txt").stdout
    assert "never-in-the-trail" in client.run("sh tell_stderr.sh output.txt").stderr
    assert "never-in-the-trail" not in client.place.trail.read_text()


@pytest.mark.parametrize("mode", ["shut", "CLOSED", "open "])
def test_an_unknown_fail_mode_is_refused_at_startup(place: Place, mode: str) -> None:
    """audit_fail_mode controls what happens when a record can't be written:"""
    ended = run_cli(place, "run", "true", HTMCP_AUDIT_FAIL_MODE=mode)
    assert_refused(ended, "HTMCP_AUDIT_FAIL_MODE")


def test_the_environment_wins_over_the_policy_about_the_fail_mode(tmp_path: Path) -> None:
    """audit_fail_mode controls what happens when a record can't be written:"""
    with SdkClient(Place(tmp_path, OPEN_POLICY), HTMCP_AUDIT_FAIL_MODE="closed") as client:
        assert _run_without_a_trail(client) == "AUDIT_UNAVAILABLE"
        assert not _ran_unlogged(client.place)


def test_closed_is_the_default_and_refuses_to_execute(without_trail: SdkClient) -> None:
    """closed (default) — refuse to execute; return AUDIT_UNAVAILABLE."""
    assert without_trail.run("touch ran_unlogged.txt").code == "AUDIT_UNAVAILABLE"
    assert without_trail.explain("true").code == "AUDIT_UNAVAILABLE"
    assert without_trail.run("rm x").code == "AUDIT_UNAVAILABLE"
    assert not _ran_unlogged(without_trail.place)


def test_closed_refuses_when_no_more_can_be_written(place: Place) -> None:
    """closed (default) — refuse to execute; return AUDIT_UNAVAILABLE."""
    with SdkClient(place, file_limit_bytes=8_192) as client:
        answers = [client.run(f"touch made_{turn}.txt") for turn in range(40)]
    codes = [answer.code for answer in answers]
    assert codes[0] == "OK"
    assert codes[-1] == "AUDIT_UNAVAILABLE"
    assert not (place.jail / "made_39.txt").exists()


def test_open_executes_anyway_and_warns_on_standard_error(tmp_path: Path) -> None:
    """open — execute anyway and emit a warning to stderr."""
    with SdkClient(Place(tmp_path), HTMCP_AUDIT_FAIL_MODE="open") as client:
        assert _run_without_a_trail(client) == "OK"
        assert _ran_unlogged(client.place)
        assert "audit" in client.stderr
        assert "Traceback" not in client.stderr
