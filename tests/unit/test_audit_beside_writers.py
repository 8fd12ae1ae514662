"""Trails that are read while brokers write, rotate, delete and set aside: what is whole never looks broken."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import audit_file, audit_reading, audit_verify
from broker.audit_file import TrailFile
from broker.audit_following import Place, follow, place_of
from broker.audit_reading import entries_backwards, sources_of
from broker.audit_record import GENESIS
from tests.support.opened_trail import files_of, open_trail, records, rotated_trail, run, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a trail of four files stands, two calls in each."""
    return rotated_trail(tmp_path / "audit.jsonl")


def _once(monkeypatch: pytest.MonkeyPatch, module: object, name: str, act: Callable[[], object]) -> None:
    """Act once, when `module` calls its function `name` for the first time."""
    plain = getattr(module, name)
    left = iter([act])

    def acting(*given: object) -> object:
        next(left, lambda: None)()
        return plain(*given)

    monkeypatch.setattr(module, name, acting)


def _unlink(names: list[str]) -> None:
    for name in names:
        os.unlink(name)


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_files_that_are_pruned_while_the_trail_is_read_are_no_break(
    path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    files = files_of(path)
    _once(monkeypatch, audit_verify, "settled_size", lambda: _unlink(files[:gone]))
    verdict = verified(path)
    assert verdict.sound
    written = records(path)
    # the first file is read to its end in any case: it was open when it lost its name
    assert verdict.last_seq == written[-1]["seq"]
    assert verdict.first_seq == (1 if gone == 1 else written[0]["seq"])
    assert verdict.records == verdict.last_seq - verdict.first_seq + 1


@pytest.mark.parametrize("gone", [[1], [2], [1, 2]])
def test_files_that_are_removed_from_the_middle_while_the_trail_is_read_are_a_break(
    path: Path, monkeypatch: pytest.MonkeyPatch, gone: list[int]
) -> None:
    files = files_of(path)
    _once(monkeypatch, audit_verify, "settled_size", lambda: _unlink([files[number] for number in gone]))
    fault = verified(path).fault
    assert fault is not None
    assert (fault.file, fault.line) == (files[gone[-1] + 1], 1)


def test_a_head_whose_file_was_pruned_while_it_was_read_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, written = files_of(path), records(path)
    _once(monkeypatch, audit_verify, "settled_size", lambda: _unlink(files[:2]))
    assert verified(path, written[0]["hash"]).wanted_seq is None


def test_the_hash_that_the_first_record_left_names_is_in_the_chain(path: Path) -> None:
    written = records(path)
    os.unlink(files_of(path)[0])
    first = records(path)[0]
    assert first["prev"] != GENESIS
    assert verified(path, first["prev"]).wanted_seq == first["seq"] - 1
    assert verified(path, written[0]["hash"]).wanted_seq is None


def test_a_torn_line_that_is_set_aside_while_it_is_read_is_no_break(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with path.open("ab") as file:
        file.write(b'{"seq":%d,"ts":"2001-02-03T04:05:06' % (records(path)[-1]["seq"] + 1))
        torn_at = file.tell()
        file.write(b"x" * 5_000)
    plain = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        if not os.path.samestat(os.fstat(fd), path.stat()):
            return plain(fd, size, offset)
        read = plain(fd, torn_at - offset, offset)
        if offset + len(read) == torn_at:
            monkeypatch.undo()  # the torn line's beginning was read: now another broker starts
            trail = open_trail(path)
            run(trail)
            trail.close()
        return read

    monkeypatch.setattr(os, "pread", pread)
    assert verified(path).sound
    assert os.pread is plain, "the line was set aside after its beginning was read"


def test_what_a_reader_follows_is_whole_however_often_the_trail_is_rotated(path: Path) -> None:
    before = records(path)[-1]["seq"]
    following = follow(str(path), end_of_trail(path))
    assert next(following) is None
    trail = open_trail(path)
    for turn in range(5):
        run(trail, f"echo {turn}")
        trail.rotate()
    trail.close()
    assert [entry.seq for entry in _read_now(following)] == list(
        range(before + 1, records(path)[-1]["seq"] + 1)
    )


def end_of_trail(path: Path) -> Place:
    """Return where a reader stands who has read all."""
    return place_of(next(entries_backwards(sources_of(str(path)))))


def _read_now(following: "Iterator[audit_reading.Found | None]") -> Iterator[audit_reading.Line]:
    for found in following:
        if found is None:
            return
        yield found[1]


def test_a_reader_takes_no_lock_that_it_could_keep_when_it_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "_set_lock", None)
    assert verified(path).sound
    assert len(list(entries_backwards(sources_of(str(path))))) > 0


def test_a_reader_waits_for_a_writer_that_is_in(path: Path) -> None:
    writer = TrailFile.open(str(path), create=False)
    writer.lock()
    left = threading.Timer(0.05, writer.unlock)
    left.start()
    since = time.monotonic()
    assert verified(path).sound
    assert time.monotonic() - since > 0.03
    left.join()
    writer.close()


def test_readers_do_not_disturb_a_broker_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path, durability="os", max_bytes=65_536, keep=3)
    run(trail)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            run(trail)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            assert verified(path).sound
            assert len(list(entries_backwards(sources_of(str(path))))) > 0
    finally:
        stop.set()
        writer.join(10)
    trail.close()
    assert verified(path).sound
