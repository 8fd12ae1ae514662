"""Group commit: one thread brings the trail to disk, and all that wait while a sync is under way share the next one.

Always true: a record counts as on disk only after an fdatasync that began after it was written and succeeded;
after a failed one every record that it covered has failed for good, because the kernel reports a write-back
error once and then takes the pages for clean (fsync(2)). Nobody waits for another's command: only for the disk.
"""

import _thread
import errno
import os
from collections.abc import Callable
from typing import NamedTuple, NewType

Position = NewType("Position", int)
"""Counts the records that this broker wrote. 0: not written (open mode), and nothing to wait for."""


class _Turn(NamedTuple):
    """One who waits until a record's fate is known."""

    position: Position
    call: Callable[[], object]


class GroupCommit:
    """Positions count the records that this process wrote, over all files.

    `wait` and `later` may be called from any thread. Each who waits has a lock of its own: with one for all,
    everybody would wake whenever a sync ends, and most only to wait again.
    """

    def __init__(self, fd: int, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._fd = fd
        self._sync = sync
        self._mutex = _thread.allocate_lock()
        self._called = _thread.allocate_lock()
        self._called.acquire()
        self._lives = False
        self._turns: list[_Turn] = []
        self._written = 0
        self._wanted = 0
        self._done = 0
        self._failed_after = 0
        self._failed = 0
        self._lost = 0
        self._failure = OSError()
        self._busy = False

    def wrote(self) -> Position:
        """Count one record that was written; returns its position. For the holder of the append lock."""
        self._written += 1
        return Position(self._written)

    def start(self) -> None:
        """Make the thread, with the rights of its caller. Raises OSError."""
        with self._mutex:
            self._start()

    def begin(self, position: Position) -> None:
        """Have the record brought to disk, and do not wait. Raises OSError."""
        with self._mutex:
            self._want(position)

    def later(self, position: Position, resume: Callable[[], object]) -> bool:
        """Whether the record's fate is not known yet.

        Then `resume` is called once it is, in the thread that syncs: short, and without an error of its own.
        """
        with self._mutex:
            unknown = max(self._done, self._failed) < position
            if unknown:
                self._want(position)
                self._turns.append(_Turn(position, resume))
            return unknown

    def wait(self, position: Position) -> None:
        """Return when the record at `position` is on disk. Raises OSError when its sync failed."""
        if max(self._done, self._failed) < position:
            known = _thread.allocate_lock()
            known.acquire()
            if self.later(position, known.release):
                known.acquire()
        if self._failed_after < position <= self._failed:
            raise self._failure

    def flush(self) -> None:
        """Bring all that was written to disk. Raises OSError."""
        self.wait(Position(self._written))

    def switch(self, fd: int) -> None:
        """Go on with another file, after the old one's records are on disk. The append lock is held.

        Raises OSError; the new file is in use anyway.
        """
        try:
            if max(self._done, self._failed) < self._written:
                self.flush()
        finally:
            self._fd = fd

    @property
    def broken(self) -> bool:
        """Whether the last sync failed and none has succeeded since."""
        return self._failed > self._done

    def take_lost(self) -> int:
        """Return how many records were covered by syncs that failed, each counted once: nobody knows whether they are on disk."""
        with self._mutex:
            lost, self._lost = self._lost, 0
        return lost

    def probe(self) -> None:
        """Try a sync after a failed one, so that records written from now on may be waited for.

        For the holder of the append lock. Raises OSError.
        """
        try:
            self.wait(self.wrote())
        except OSError:
            with self._mutex:
                self._lost -= 1  # no record stands for the position
            raise

    def close(self) -> None:
        """Let the thread end. Nothing may be waited for any more."""
        with self._mutex:
            if self._lives and not self._busy:
                self._called.release()
            self._lives = False

    def _want(self, position: int) -> None:
        """See that a sync begins that covers `position`. The mutex is held."""
        if not self._busy and position > max(self._done, self._failed):
            self._start()
            self._busy = True
            self._called.release()
        self._wanted = max(self._wanted, position)

    def _start(self) -> None:
        if not self._lives:
            try:
                _thread.start_new_thread(self._live, ())
            except RuntimeError:
                raise OSError(errno.EAGAIN, "no thread can be started") from None
            self._lives = True

    def _live(self) -> None:
        while True:
            self._called.acquire()
            while self._busy:
                self._lead()
            if not self._lives:
                return

    def _lead(self) -> None:
        covered, failure = self._written, None
        try:
            self._sync(self._fd)
        except Exception as error:  # noqa: BLE001 - whatever it is, others wait
            failure = error if isinstance(error, OSError) else OSError(errno.EIO, f"{error}")
        self._release(covered, failure)

    def _release(self, covered: int, failure: OSError | None = None) -> None:
        """Note how a sync ended, and call whom it covered."""
        with self._mutex:
            if failure is None:
                self._done = max(self._done, covered)
            else:
                # Kept from the first failure on: who asks late about an older record is refused rather than
                # believed.
                self._failed_after = self._failed_after if self._failed else self._done
                self._lost += covered - max(self._done, self._failed)
                self._failure, self._failed = failure, covered
            self._busy = self._wanted > covered
            turns, self._turns = self._turns, []
            for turn in turns:
                if turn.position <= covered:
                    turn.call()
                else:
                    self._turns.append(turn)
