"""Group commit: who waits for which sync of the disk, and who is told when one failed."""

import errno
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from broker.audit_sync import GroupCommit, Position
from tests.support.waiting import eventually

WAIT_S = 5


class Disk:
    """Counts syncs; each waits until the test lets it go, and fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.failures = failures
        self.syncs = 0

    def sync(self, _fd: int) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_S)
        self.syncs += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")


def _wait_for_a_sync(disk: Disk) -> None:
    assert disk.begun.acquire(timeout=WAIT_S)


def test_all_that_were_written_during_a_sync_wait_for_the_next_one_and_share_it() -> None:
    disk = Disk()
    commit = GroupCommit(-1, disk.sync)
    with ThreadPoolExecutor(17) as pool:
        first = pool.submit(commit.wait, commit.wrote())
        _wait_for_a_sync(disk)
        rest = [pool.submit(commit.wait, commit.wrote()) for _ in range(16)]
        disk.go.release()
        first.result(WAIT_S)
        _wait_for_a_sync(disk)
        assert not any(future.done() for future in rest)
        disk.go.release()
        for future in rest:
            future.result(WAIT_S)
    assert disk.syncs == 2


def test_what_is_on_disk_is_not_synced_again() -> None:
    disk = Disk()
    commit = GroupCommit(-1, disk.sync)
    disk.go.release()
    first = commit.wrote()
    commit.wait(commit.wrote())
    commit.wait(first)
    commit.wait(Position(0))
    assert disk.syncs == 1


def _fails(future: "Future[None]") -> bool:
    return isinstance(future.exception(WAIT_S), OSError)


def test_a_failed_sync_fails_for_all_that_it_covered_and_for_nobody_else() -> None:
    disk = Disk(failures=1)
    commit = GroupCommit(-1, disk.sync)
    with ThreadPoolExecutor(3) as pool:
        covered, late = commit.wrote(), commit.wrote()
        first = pool.submit(commit.wait, covered)
        _wait_for_a_sync(disk)
        after = pool.submit(commit.wait, commit.wrote())
        disk.go.release()
        assert _fails(first)
        _wait_for_a_sync(disk)
        disk.go.release()
        after.result(WAIT_S)
        assert _fails(pool.submit(commit.wait, late))


def test_a_record_that_was_lost_stays_lost_after_a_sync_that_succeeds() -> None:
    disk = Disk(failures=1)
    commit = GroupCommit(-1, disk.sync)
    lost = commit.wrote()
    for _ in range(2):
        disk.go.release()
    with pytest.raises(OSError, match="error"):
        commit.wait(lost)
    assert commit.broken
    commit.probe()
    assert not commit.broken
    with pytest.raises(OSError, match="error"):
        commit.wait(lost)


def test_going_on_in_another_file_first_syncs_the_old_one() -> None:
    synced: list[int] = []
    commit = GroupCommit(3, synced.append)
    position = commit.wrote()
    commit.switch(4)
    commit.wait(position)
    commit.wait(commit.wrote())
    assert synced == [3, 4]


def test_who_asks_for_later_is_called_once_the_fate_is_known_and_only_then() -> None:
    disk = Disk()
    commit = GroupCommit(-1, disk.sync)
    called = threading.Semaphore(0)
    first = commit.wrote()
    assert commit.later(first, called.release)
    _wait_for_a_sync(disk)
    second = commit.wrote()
    assert commit.later(second, called.release)
    assert not called.acquire(timeout=0.01)
    disk.go.release()
    assert called.acquire(timeout=WAIT_S)
    assert not called.acquire(timeout=0.01), "a record that was written during a sync is not covered by it"
    disk.go.release()
    assert called.acquire(timeout=WAIT_S)
    assert not commit.later(first, called.release)
    commit.wait(second)
    assert disk.syncs == 2


def test_a_sync_that_was_begun_is_not_begun_again_by_who_waits_for_it() -> None:
    disk = Disk()
    commit = GroupCommit(-1, disk.sync)
    position = commit.wrote()
    commit.begin(position)
    _wait_for_a_sync(disk)
    disk.go.release()
    commit.wait(position)
    assert disk.syncs == 1


def test_nobody_is_forgotten_when_many_wait_at_once() -> None:
    commit = GroupCommit(-1, lambda _fd: time.sleep(0.0002))
    writing = threading.Lock()

    def call(number: int) -> None:
        with writing:
            position = commit.wrote()
        known = threading.Event()
        if number % 2 and commit.later(position, known.set):
            assert known.wait(WAIT_S)
        commit.wait(position)

    with ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(call, number) for number in range(400)]:
            future.result(WAIT_S)


def test_its_thread_ends_with_it() -> None:
    commit = GroupCommit(-1, lambda _fd: None)
    before = _threads()
    commit.wait(commit.wrote())
    (own,) = _threads() - before
    commit.close()
    eventually(lambda: own not in _threads(), "its thread has ended")


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_a_machine_that_has_no_thread_left_is_a_failure_like_that_of_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    commit = GroupCommit(-1, lambda _fd: None)
    with monkeypatch.context() as without:
        without.setattr("broker.audit_sync._thread.start_new_thread", no_thread)
        with pytest.raises(OSError, match="no thread"):
            commit.wait(commit.wrote())
    commit.wait(commit.wrote())


def test_a_sync_that_ends_in_an_unforeseen_way_is_one_that_failed() -> None:
    def sync(_fd: int) -> None:
        raise MemoryError

    commit = GroupCommit(-1, sync)
    position = commit.wrote()
    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="Errno 5"):
        pool.submit(commit.wait, position).result(WAIT_S)
    commit.close()
