"""Group commit: every caller that waits while a sync is under way shares the next one.

Always true: `wait` returns only after an fdatasync that began after its record was written and succeeded;
after a failed one every record that it covered has failed for good, because the kernel reports a write-back
error once and then takes the pages for clean (fsync(2)). No caller waits for another's command: only for the
disk.
"""

import _thread
import os
from collections.abc import Callable
from typing import NamedTuple, NewType

Position = NewType("Position", int)
"""Counts the records that this broker wrote. 0: not written (open mode), and nothing to wait for."""

_LAST = Position(1 << 62)
"""After every record."""


class _Turn(NamedTuple):
    """One caller that waits: until its record's fate is known, or the next sync is its to lead."""

    position: Position
    call: Callable[[], object]


class GroupCommit:
    """Positions count the records that this process wrote, over all files.

    `wait` and `park` may be called from any thread. Each caller waits on a lock of its own: with one for all,
    everybody would wake whenever a sync ends, and most only to wait again.
    """

    def __init__(self, fd: int, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._fd = fd
        self._sync = sync
        self._mutex = _thread.allocate_lock()
        self._turns: list[_Turn] = []
        self._written = 0
        self._done = 0
        self._failed_after = 0
        self._failed = 0
        self._failure = OSError()
        self._busy = False

    def wrote(self) -> Position:
        """Count one record that was written; returns its position. For the holder of the append lock."""
        self._written += 1
        return Position(self._written)

    def wait(self, position: Position) -> None:
        """Return when the record at `position` is on disk. Raises OSError when its sync failed."""
        while not self._settled(position):
            with self._mutex:
                if self._settled(position):
                    return
                called = self._queued(position) if self._busy else None
                self._busy, covered = True, self._written
            if called is None:
                self._lead(covered)
            else:
                called.acquire()

    def park(self, position: Position, resume: Callable[[], object]) -> bool:
        """Whether `wait` would have to wait for a sync that is under way.

        Then `resume` is called once it has ended, by whoever led it: short, and without an error of its own.
        """
        with self._mutex:
            if self._busy:
                self._turns.append(_Turn(position, resume))
            return self._busy

    def _queued(self, position: Position) -> _thread.LockType:
        """Return a lock that opens when it is this caller's turn. The mutex is held."""
        called = _thread.allocate_lock()
        called.acquire()
        self._turns.append(_Turn(position, called.release))
        return called

    def _settled(self, position: Position) -> bool:
        """Whether the record is on disk. Raises OSError when its sync failed."""
        if self._failed_after < position <= self._failed:
            raise self._failure
        return position <= self._done

    def _lead(self, covered: int) -> None:
        failure: OSError | None = None
        try:
            self._sync(self._fd)
        except OSError as error:
            failure = error
        self._release(covered, failure)

    def _settle(self, covered: int, failure: OSError | None) -> None:
        """Note how a sync ended, wake whom it covered, and one more, who leads the next."""
        if failure is None:
            self._done = max(self._done, covered)
        else:
            # Kept from the first failure on: who asks late about an older record is refused rather than
            # believed.
            self._failed_after = self._failed_after if self._failed else self._done
            self._failure, self._failed = failure, covered
        turns, self._turns = self._turns, []
        led = False
        for turn in turns:
            if turn.position <= covered or not led:
                led = led or turn.position > covered
                turn.call()
            else:
                self._turns.append(turn)

    def flush(self) -> None:
        """Bring all that was written to disk. Raises OSError."""
        self.wait(Position(self._written))

    def switch(self, fd: int) -> None:
        """Go on with another file, after the old one's records are on disk.

        Raises OSError; the new file is in use anyway.
        """
        self._claim()
        failure: OSError | None = None
        if max(self._done, self._failed) < self._written:
            try:
                self._sync(self._fd)
            except OSError as error:
                failure = error
        self._fd = fd
        self._release(self._written, failure)
        if failure is not None:
            raise failure

    @property
    def broken(self) -> bool:
        """Whether the last sync failed and none has succeeded since."""
        return self._failed > self._done

    def probe(self) -> None:
        """Try a sync after a failed one, so that records written from now on may be waited for.

        Raises OSError.
        """
        self._claim()
        try:
            self._sync(self._fd)
        except OSError:
            self._release(0)
            raise
        self._release(self._written)

    def _claim(self) -> None:
        """Wait until no sync is under way, and let none begin before `_release`."""
        while True:
            with self._mutex:
                if not self._busy:
                    self._busy = True
                    return
                called = self._queued(_LAST)
            called.acquire()

    def _release(self, covered: int, failure: OSError | None = None) -> None:
        with self._mutex:
            self._busy = False
            self._settle(covered, failure)
