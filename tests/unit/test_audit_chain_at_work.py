"""What happens to a trail between two records of a running broker: others rotate, change, lock or stop it."""

import contextlib
import os
import time
from pathlib import Path

import pytest

from broker import audit_chain, audit_file, audit_rotation
from broker.audit import Trail
from broker.audit_file import TrailFile
from broker.audit_mirror import Mirror, Note
from broker.audit_reading import sources_of
from broker.audit_verify import verify
from broker.refusal import AuditUnavailable, StartupError
from tests.support.opened_trail import a_call, files_of, open_trail, records, refused, run, verified

SIZE = 65_536


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def _grow(trail: Trail, calls: int = 45) -> None:
    """Write about a file of `SIZE`."""
    for _ in range(calls):
        run(trail, "echo " + "x" * 700)


def _others_rotate_beyond(path: Path) -> tuple[Trail, Trail]:
    """Return a broker that was idle while another one rotated away and deleted its file, and that other one."""
    idle = open_trail(path, keep=1)
    run(idle)
    busy = open_trail(path, max_bytes=SIZE, keep=1)
    for _ in range(3):
        _grow(busy)
    assert len(files_of(path)) == 2
    return idle, busy


def _whole(path: Path) -> None:
    """Say that the chain is whole, and that each of its files but the last ends in `rotated` and has that nowhere else."""
    assert verified(path).sound
    events = [record.get("event") for record in records(path)]
    before = [events[at + 1 :][:1] for at, event in enumerate(events) if event == "rotated"]
    assert before == [["continued"]] * (len(files_of(path)) - 1)


def test_an_idle_broker_goes_on_where_the_others_are(path: Path) -> None:
    idle, busy = _others_rotate_beyond(path)
    run(idle)
    busy.close()
    idle.close()
    _whole(path)


def test_an_idle_broker_goes_on_though_the_file_is_rotated_as_it_joins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = _others_rotate_beyond(path)
    plain = TrailFile.lock
    rotates = iter([busy.rotate])

    def lock(file: TrailFile) -> None:
        plain(file)
        if file.path == str(path) and file is not idle._chain._file and file is not busy._chain._file:
            file.unlock()
            next(rotates, lambda: None)()
            plain(file)

    monkeypatch.setattr(TrailFile, "lock", lock)
    for _ in range(3):
        run(idle)
    monkeypatch.undo()
    assert next(rotates, None) is None, "the file was rotated between open and lock"
    run(busy)
    run(idle)
    busy.close()
    idle.close()
    _whole(path)


def test_an_idle_broker_finishes_the_rotation_of_one_that_died(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = _others_rotate_beyond(path)
    with monkeypatch.context() as dies:
        dies.setattr(audit_rotation, "fill_next", _no_room)
        busy.rotate()
    busy._chain.close()
    assert records(path)[-1]["event"] == "rotated"
    run(idle)
    idle.close()
    _whole(path)


@pytest.mark.parametrize("left", [0, 1])
def test_an_idle_broker_goes_on_though_all_that_was_rotated_since_was_moved_away(
    path: Path, left: int
) -> None:
    idle = open_trail(path)
    run(idle)
    busy = open_trail(path)
    for _ in range(3):
        run(busy)
        busy.rotate()
    run(busy)
    older = files_of(path)[:-1]
    for name in older[: len(older) - left]:
        os.unlink(name)
    run(idle)
    run(busy)
    idle.close()
    busy.close()
    assert verified(path).sound


def _no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("at", ["number", "command", "hash", "newline"])
def test_a_last_record_that_is_changed_in_place_stops_the_next_program(path: Path, at: str) -> None:
    trail = open_trail(path)
    run(trail)
    data = path.read_bytes()
    position = {"number": 7, "command": data.rindex(b"ls -l"), "hash": -20, "newline": -1}[at]
    changed = bytearray(data)
    changed[data.rindex(b'{"seq"') + position if at == "number" else position] ^= 1
    _write_in_place(path, bytes(changed))
    assert refused(trail)
    assert refused(trail)
    _write_in_place(path, data)
    run(trail)
    trail.close()
    assert verified(path).sound


def _write_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def test_a_trail_that_was_cut_and_filled_again_stops_the_next_program(path: Path) -> None:
    trail = open_trail(path)
    run(trail, "echo 1")
    kept = path.stat().st_size
    run(trail, "echo 2")
    grown = path.stat().st_size
    os.truncate(path, kept)
    with path.open("ab") as file:
        file.write(b"x" * (grown - kept))
    assert refused(trail)
    trail.close()


@pytest.mark.parametrize(
    "rest", [b"", b"{", b'{"seq":3,"ts":"2026', b'{"seq":3,"ts"' + bytes(40), bytes(4096)]
)
def test_what_a_writer_leaves_that_dies_is_set_aside_at_a_start(path: Path, rest: bytes) -> None:
    _with_rest(path, rest)
    assert verified(path).sound
    open_trail(path).close()
    assert verified(path).sound
    assert [record["seq"] for record in records(path)][:2] == [1, 2]


@pytest.mark.parametrize("rest", [b"garbage", b'{"seq":4,"ts":"2026', b'\n{"seq":3,', b"\0{"])
def test_what_no_writer_leaves_is_refused_by_a_start_as_by_verify(path: Path, rest: bytes) -> None:
    _with_rest(path, rest)
    before = path.read_bytes()
    assert not verified(path).sound
    with pytest.raises(StartupError, match="does not verify"):
        open_trail(path)
    assert path.read_bytes() == before
    assert not Path(f"{path}.torn").exists()


@pytest.mark.parametrize("newline", [b" ", b"\0", b"\0\0"])
def test_a_last_newline_that_was_changed_is_refused_by_a_start_as_by_verify(
    path: Path, newline: bytes
) -> None:
    _with_rest(path, b"")
    path.write_bytes(path.read_bytes()[:-1] + newline)
    assert not verified(path).sound
    with pytest.raises(StartupError, match="newline was changed"):
        open_trail(path)


def _with_rest(path: Path, rest: bytes) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    with path.open("ab") as file:
        file.write(rest)


def test_a_file_that_is_no_trail_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"a key without a newline")
    path.chmod(0o600)
    with pytest.raises(StartupError, match="does not verify"):
        open_trail(path)
    assert path.read_bytes() == b"a key without a newline"


def test_who_comes_while_the_lock_is_kept_too_long_does_not_wait_as_well(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = open_trail(path)
    holder = TrailFile.open(str(path), create=False)
    holder.lock()
    monkeypatch.setattr(audit_file, "LOCK_WAIT_S", 0.5)
    trail._chain._file._patience_s = 0.5
    assert refused(trail)
    since = time.monotonic()
    for _ in range(3):
        assert refused(trail)
    assert time.monotonic() - since < 6 * 0.5, "six appends, none of which waited as long as the first"
    holder.close()
    run(trail)
    trail.close()
    assert records(path)[0]["event"] == "gap"


def test_what_stands_in_the_way_of_the_next_file_leaves_the_trail_in_this_one(path: Path) -> None:
    Path(f"{path}.new").mkdir()
    said: list[str] = []
    trail = open_trail(path, said.append, max_bytes=SIZE)
    _grow(trail, 60)
    trail.rotate()
    run(trail)
    trail.close()
    assert len(files_of(path)) == 1
    assert any("not rotated" in line for line in said)
    assert verified(path).sound
    open_trail(path).close()


def test_no_next_file_is_left_by_a_rotation_whose_record_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = open_trail(path)
    run(trail)
    with monkeypatch.context() as full:
        full.setattr(audit_file, "write_all", _no_room)
        trail.rotate()
    run(trail)
    trail.close()
    assert f"{path.name}.new" not in os.listdir(path.parent)
    assert verified(path).sound


def test_files_are_private_whatever_the_umask_takes_away(path: Path) -> None:
    before = os.umask(0o777)
    try:
        trail = open_trail(path)
        run(trail)
        trail.rotate()
        run(trail)
        trail.close()
    finally:
        os.umask(before)
    assert [Path(name).stat().st_mode & 0o777 for name in files_of(path)] == [0o600, 0o600]


def test_a_mirror_that_is_lost_with_the_first_record_of_a_file_is_noted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(str(path.parent / "mirror"))
        trail = open_trail(path, mirror=str(path.parent / "mirror"))
        run(trail)
        with monkeypatch.context() as ends:
            put_last = audit_chain.Chain._put_last

            def then_close(*given: object) -> None:
                put_last(*given)  # type: ignore[arg-type]
                listener.close()

            ends.setattr(audit_chain.Chain, "_put_last", then_close)
            trail.rotate()
    run(trail)
    trail.close()
    assert [record["event"] for record in records(path) if record.get("event") == "mirror"] == ["mirror"]
    assert verify(sources_of(str(path))).sound


def test_a_gap_counts_the_records_that_a_failed_sync_covered(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    disk = trail._chain.commit._sync
    trail._chain.commit._sync = _no_disk
    with pytest.raises(AuditUnavailable):
        trail.sync(trail.attempt(a_call()))
    trail.event("policy", "counted as one that could not be written")
    trail._chain.commit._sync = disk
    run(trail)
    trail.close()
    gap = next(record for record in records(path) if record.get("event") == "gap")
    # the outcome of the first command, and the attempt that was refused; that the disk was tried again is no record
    assert gap["count"] == 3
    assert "Input/output error" in gap["detail"]


def _no_disk(_: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_disk_that_fails_while_a_signal_rotates_leaves_a_gap(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    disk = trail._chain.commit._sync
    trail._chain.commit._sync = _no_disk
    trail.rotate()
    trail._chain.commit._sync = disk
    run(trail)
    trail.close()
    assert [record["event"] for record in records(path) if record["record_type"] == "event"] == [
        "rotated",
        "continued",
        "gap",
    ]


def test_what_the_trail_says_last_of_its_mirror_is_how_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = iter([Note("the mirror does not take records", 1), Note("the mirror takes records again", 1)])
    trail = open_trail(path, mirror=str(path.parent / "mirror"))
    monkeypatch.setattr(Mirror, "send", lambda *_: None)
    run(trail)
    monkeypatch.setattr(Mirror, "send", lambda *_: next(notes, None))
    trail.rotate()
    run(trail)
    trail.close()
    said = [record["detail"] for record in records(path) if record.get("event") == "mirror"]
    assert said == ["the mirror does not take records", "the mirror takes records again"]


def test_a_start_refuses_a_rotated_file_whose_name_is_wrong_where_an_attempt_is_open(path: Path) -> None:
    trail = open_trail(path)
    trail.attempt(a_call())
    trail._chain.lock()
    trail._chain.rotate()
    trail._chain.unlock()
    trail._chain.close()
    (older, _) = files_of(path)
    os.rename(older, older[:-1] + "0")
    with pytest.raises(StartupError, match="it was renamed"):
        open_trail(path)
