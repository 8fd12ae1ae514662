"""Group commit: every caller that waits while a sync is under way shares the next one.

Always true: `wait` returns only after an fdatasync that began after its record was written and succeeded;
after a failed one every record that it covered has failed for good, because the kernel reports a write-back
error once and then takes the pages for clean (fsync(2)). No caller waits for another's command: only for the
disk.
"""

import os
import threading
from collections.abc import Callable
from typing import NewType

Position = NewType("Position", int)
"""Counts the records that this broker wrote. 0: not written (open mode), and nothing to wait for."""


class GroupCommit:
    """Positions count the records that this process wrote, over all files.

    `wait` may be called from any thread.
    """

    def __init__(self, fd: int, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._fd = fd
        self._sync = sync
        self._changed = threading.Condition(threading.Lock())
        self._written = 0
        self._done = 0
        self._failed_after = 0
        self._failed = 0
        self._failure = OSError()
        self._busy = False

    def wrote(self) -> Position:
        """Count one record that was written; returns its position."""
        with self._changed:
            self._written += 1
            return Position(self._written)

    def wait(self, position: Position) -> None:
        """Return when the record at `position` is on disk. Raises OSError when its sync failed."""
        with self._changed:
            while True:
                if self._failed_after < position <= self._failed:
                    raise self._failure
                if position <= self._done:
                    return
                if not self._busy:
                    break
                self._changed.wait()
            self._busy = True
            covered = self._written
        self._lead(covered)

    def _lead(self, covered: int) -> None:
        failure: OSError | None = None
        try:
            self._sync(self._fd)
        except OSError as error:
            failure = error
        with self._changed:
            self._busy = False
            self._settle(covered, failure)
        if failure is not None:
            raise failure

    def _settle(self, covered: int, failure: OSError | None) -> None:
        if failure is None:
            self._done = max(self._done, covered)
        else:
            # Kept from the first failure on: who asks late about an older record is refused rather than
            # believed.
            self._failed_after = self._failed_after if self._failed else self._done
            self._failed, self._failure = covered, failure
        self._changed.notify_all()

    def flush(self) -> None:
        """Bring all that was written to disk. Raises OSError."""
        self.wait(Position(self._written))

    def switch(self, fd: int) -> None:
        """Go on with another file, after the old one's records are on disk.

        Raises OSError; the new file is in use anyway.
        """
        with self._changed:
            while self._busy:
                self._changed.wait()
            failure: OSError | None = None
            if max(self._done, self._failed) < self._written:
                try:
                    self._sync(self._fd)
                except OSError as error:
                    failure = error
            self._fd = fd
            self._settle(self._written, failure)
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
        with self._changed:
            while self._busy:
                self._changed.wait()
            self._sync(self._fd)
            self._done = max(self._done, self._written)
