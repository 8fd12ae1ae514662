"""Reads a program to its end: its two streams, and the end itself, whichever comes.

Always true: nothing here waits but `poll`, and never longer than it is told: a pipe that seemed to hold something may be
empty by the time it is read, as a program can open its own pipe in /proc.
"""

import contextlib
import fcntl
import os
import select
from typing import Final, NamedTuple

from broker.job import Filter, Job

READ_BYTES: Final = 65_536
"""One read: what a pipe holds."""
WIDE_BYTES: Final = 262_144
"""What the pipe of a program holds that prints more than that: it waits for us less often."""


class Started(NamedTuple):
    """A program that runs, and the reading ends of its two streams."""

    pid: int
    pidfd: int
    stdout_fd: int
    stderr_fd: int


class Reader:
    """Waits on a program's end and its two streams at once, and feeds the filters."""

    def __init__(self, started: Started, job: Job, sink_fd: int) -> None:
        self._filters = {started.stdout_fd: job.stdout, started.stderr_fd: job.stderr}
        self._narrow = set(self._filters)
        self._sink_fd = sink_fd
        self.open_fds = {started.pidfd, *self._filters}
        self.poll = select.poll()
        for fd in self.open_fds:
            self.poll.register(fd, select.POLLIN)

    def read(self, timeout_s: float) -> set[int]:
        """Wait, read once from each stream that has something. Returns what was ready."""
        ready = {fd for fd, _ in self.poll.poll(timeout_s * 1000)}
        for fd in ready & self.open_fds:
            data_filter = self._filters.get(fd)
            if data_filter is None or not self._take(fd, data_filter):
                self.poll.unregister(fd)
                self.open_fds.discard(fd)
        return ready

    def _take(self, fd: int, data_filter: Filter) -> bool:
        """Read once. Returns whether more may come; what nobody will see is not even copied (splice(2))."""
        try:
            return self._taken(fd, data_filter) > 0
        except BlockingIOError:  # somebody else has read it meanwhile
            return True

    def _taken(self, fd: int, data_filter: Filter) -> int:
        if data_filter.truncated:
            count = os.splice(fd, self._sink_fd, WIDE_BYTES)
            data_filter.total_bytes += count
            return count
        data = os.read(fd, READ_BYTES)
        if data:
            data_filter.feed(data)
        if len(data) == READ_BYTES and fd in self._narrow:
            self._narrow.discard(fd)
            with contextlib.suppress(OSError):  # a user's pipes have a limit together (pipe(7))
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, WIDE_BYTES)
        return len(data)
