"""Brokers that are killed at random moments, and brokers that write at once, leave a whole chain."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.opened_trail import open_trail, records, run, verified

KILLS = 30
WRITERS = 8


Writer = subprocess.Popen[bytes]


class Writers:
    """The writers that live; none is left when the test ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.living: list[Writer] = []

    def start(self, *arguments: str) -> Writer:
        """Start a writer and wait until it has opened the trail."""
        command = [sys.executable, "-m", "tests.faults.audit_writer", str(self._path), *arguments]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        self.living.append(writer)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        return writer

    def kill(self) -> None:
        """Kill the oldest one."""
        with self.living.pop(0) as writer:
            writer.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill all."""
        while self.living:
            self.kill()

    def wait(self) -> None:
        """Wait until all have ended by themselves, and well."""
        while self.living:
            with self.living.pop(0) as writer:
                assert writer.wait(40) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def writers(path: Path) -> Iterator[Writers]:
    with closing(Writers(path)) as started:
        yield started


def _assert_whole(path: Path) -> None:
    assert verified(path).sound
    found = records(path)
    attempts = [r["event_id"] for r in found if r["record_type"] == "attempt"]
    outcomes = [r["event_id"] for r in found if r["record_type"] == "outcome"]
    assert len(set(outcomes)) == len(outcomes)
    assert set(attempts) <= set(outcomes)
    assert found[-1]["oldest_open"] is None


def test_kills_at_random_moments_leave_a_whole_chain(path: Path, writers: Writers) -> None:
    for _ in range(3):
        writers.start()
    for turn in range(KILLS):
        time.sleep(random.uniform(0.0, 0.02))  # the moment of the kill is what is tried
        writers.kill()
        if turn % 5 == 0:
            assert verified(path).fault is None, turn
        writers.start()
    while writers.living:
        writers.kill()
    trail = open_trail(path)
    run(trail)
    trail.close()
    _assert_whole(path)


def test_brokers_that_write_at_once_keep_one_chain(path: Path, writers: Writers) -> None:
    for _ in range(WRITERS):
        writers.start("40")
    writers.wait()
    _assert_whole(path)
    calls = [r for r in records(path) if r["record_type"] != "event"]
    assert len(calls) == WRITERS * 40 * 3
    assert len({r["session"] for r in calls}) == WRITERS
