"""The trail when its disk, its file or its folder fails while a broker runs: tried for real, not simulated."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.audit import Trail
from broker.audit_record import Call
from broker.refusal import AuditUnavailable, StartupError
from protocol.messages import ResultCode
from tests.support.opened_trail import CALM, a_call, open_trail, records, refused, result, run, verified

Fault = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "audit.jsonl"


def _remove(path: Path) -> None:
    path.unlink()


def _replace_by_a_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def _replace_by_an_empty_file(path: Path) -> None:
    path.with_name("empty").touch(0o600)
    path.with_name("empty").replace(path)


def _truncate(path: Path) -> None:
    os.truncate(path, 0)


def _cut_the_last_line(path: Path) -> None:
    os.truncate(path, path.stat().st_size - len(path.read_bytes().splitlines(keepends=True)[-1]))


def _make_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _make_a_link_to_dev_full(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/full")


def _move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def _append_a_stranger(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"seq":3,"record_type":"outcome"}\n')


def _append_a_copy(path: Path) -> None:
    content = path.read_bytes()
    with path.open("ab") as file:
        file.write(content)


FAULTS = [
    _remove,
    _replace_by_a_copy,
    _replace_by_an_empty_file,
    _truncate,
    _cut_the_last_line,
    _make_a_directory,
    _make_a_fifo,
    _make_a_link_to_dev_full,
    _move_the_folder,
    _append_a_stranger,
    _append_a_copy,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_next_command_is_refused_when_the_trail_fails_closed(path: Path, fault: Fault) -> None:
    said: list[str] = []
    trail = open_trail(path, said.append)
    run(trail)
    fault(path)
    assert refused(trail)
    assert refused(trail)
    with pytest.raises(AuditUnavailable):
        trail.outcome(a_call(tool="explain_command"), CALM)
    assert len([line for line in said if str(path) in line]) == 1
    trail.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_command_is_run_with_a_warning_when_the_trail_fails_open(path: Path, fault: Fault) -> None:
    said: list[str] = []
    trail = open_trail(path, said.append, fail_mode="open")
    run(trail)
    fault(path)
    said.clear()
    run(trail)
    assert sum("without its record" in line for line in said) == 2
    said.clear()
    run(trail)
    assert sum("without its record" in line for line in said) == 2
    trail.close()


def test_a_reason_names_no_path_outside_the_jail(path: Path) -> None:
    trail = open_trail(path)
    path.unlink()
    with pytest.raises(AuditUnavailable) as caught:
        trail.attempt(a_call())
    assert "removed" in caught.value.reason
    assert "/" not in caught.value.reason
    trail.close()


@contextmanager
def _away(path: Path) -> Iterator[Path]:
    """Take the trail away, and put it back after the block."""
    away = path.rename(path.with_name("away"))
    yield away
    away.rename(path)


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
def test_a_trail_that_is_put_back_goes_on_and_records_the_gap(path: Path, fail_mode: str) -> None:
    trail = open_trail(path, fail_mode=fail_mode)
    run(trail)
    with _away(path):
        for _ in range(2):
            if fail_mode == "closed":
                assert refused(trail)
            else:
                run(trail)
    run(trail)
    trail.close()
    gap = records(path)[2]
    assert (gap["record_type"], gap["event"], gap["count"]) == ("event", "gap", 4)
    assert "removed" in gap["detail"]
    assert len(records(path)) == 5
    assert verified(path).sound


def test_a_trail_that_was_changed_while_it_was_away_is_not_gone_on_with(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    with _away(path) as away:
        assert refused(trail)
        changed = away.read_bytes()
        with away.open("r+b") as file:
            file.write(changed[:-10] + b"0" * 7 + changed[-3:])
    assert refused(trail)
    trail.close()


def test_a_record_of_the_right_number_that_does_not_continue_the_chain(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    for which, commands in ((path, 1), (other, 2)):
        trail = open_trail(which)
        for _ in range(commands):
            run(trail)
        trail.close()
    trail = open_trail(path)
    with path.open("ab") as file:
        file.write(other.read_bytes().splitlines(keepends=True)[2])
    assert refused(trail)
    trail.close()


@contextmanager
def _outcome_owed(trail: Trail, path: Path) -> Iterator[Call]:
    """The trail is away when a command ends; it is put back after the block."""
    call = a_call("make all")
    trail.sync(trail.attempt(call))
    with _away(path):
        trail.outcome(call, CALM)
        yield call


def test_an_outcome_that_cannot_be_written_is_kept_until_it_can(path: Path) -> None:
    trail = open_trail(path)
    with _outcome_owed(trail, path):
        assert refused(trail)
    run(trail)
    trail.close()
    assert [r.get("event") or r["record_type"] for r in records(path)] == [
        "attempt",
        "gap",
        "outcome",
        "attempt",
        "outcome",
    ]
    assert records(path)[2]["code"] == "OK"


def test_an_outcome_that_is_still_owed_is_written_at_the_end(path: Path) -> None:
    trail = open_trail(path)
    with _outcome_owed(trail, path):
        pass
    trail.close()
    assert [r.get("code") for r in records(path)] == [None, None, "OK"]


def test_an_outcome_that_was_never_written_is_closed_at_the_next_start(path: Path) -> None:
    trail = open_trail(path)
    with _outcome_owed(trail, path) as call:
        trail.close()
    open_trail(path).close()
    assert [(r["event_id"], r["code"]) for r in records(path)[1:]] == [(call.event_id, "INTERNAL_ERROR")]


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_on_file_size_leaves_no_half_record(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    with _file_size_limit(path.stat().st_size + 100):
        assert refused(trail)
        assert verified(path).torn_bytes == 0
    run(trail)
    trail.close()
    assert len(records(path)) == 5
    assert verified(path).sound


def test_a_device_that_is_always_full(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    full = os.open("/dev/full", os.O_WRONLY)
    kept = os.dup(trail._chain._file.fd)
    os.dup2(full, trail._chain._file.fd)
    assert refused(trail)
    os.dup2(kept, trail._chain._file.fd)
    run(trail)
    for fd in (full, kept):
        os.close(fd)
    trail.close()
    assert verified(path).sound


@pytest.mark.parametrize("special", ["/dev/full", "/dev/null"])
def test_a_device_is_no_trail(special: str) -> None:
    with pytest.raises(StartupError, match="not a regular file"):
        open_trail(Path(special))


def _sync_that_fails(_fd: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_disk_that_fails_to_sync_refuses_the_command_and_the_next(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    commit = trail._chain.commit
    commit._sync = _sync_that_fails
    call = a_call("first")
    position = trail.attempt(call)
    with pytest.raises(AuditUnavailable, match="error"):
        trail.sync(position)
    trail.outcome(call, result(ResultCode.AUDIT_UNAVAILABLE))
    assert refused(trail)
    commit._sync = os.fdatasync
    with pytest.raises(AuditUnavailable):
        trail.sync(position)
    run(trail, "second")
    trail.close()
    assert [r.get("event") or r["record_type"] for r in records(path)][2:] == [
        "attempt",
        "gap",
        "outcome",
        "attempt",
        "outcome",
    ]
    assert verified(path).sound


def test_a_disk_that_fails_to_sync_warns_when_the_trail_fails_open(path: Path) -> None:
    said: list[str] = []
    trail = open_trail(path, said.append, fail_mode="open")
    trail._chain.commit._sync = _sync_that_fails
    run(trail)
    assert any("without its record" in line for line in said)
    trail.close()


def test_nothing_waits_for_the_disk_when_the_policy_leaves_it_to_the_system(path: Path) -> None:
    trail = open_trail(path, durability="os")
    trail._chain.commit._sync = _sync_that_fails
    run(trail)
    trail.close()
    assert len(records(path)) == 2


@pytest.mark.parametrize("make", [_make_a_directory, _make_a_fifo, _make_a_link_to_dev_full])
def test_a_trail_that_is_no_file_is_refused_at_the_start(path: Path, make: Fault) -> None:
    path.touch()
    make(path)
    with pytest.raises(StartupError):
        open_trail(path)


def test_no_descriptor_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        trail = open_trail(path)
        run(trail)
        trail.rotate()
        trail.attempt(a_call())
        trail._chain.close()
    path.write_bytes(b"#\n")
    with pytest.raises(StartupError):
        open_trail(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_inherited(path: Path) -> None:
    trail = open_trail(path)
    assert not os.get_inheritable(trail._chain._file.fd)
    trail.close()
