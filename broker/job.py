"""One run, from the order to how it ended: what the main thread and the thread of the call share.

Always true: a run ends once; cancelling one that has ended does nothing.
"""

import _thread
import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.latch import Latch
from broker.policy import Permitted
from broker.refusal import ExecutorError
from protocol.messages import ResultCode


class Filter(Protocol):
    """What becomes of one output stream: `output.OutputFilter`."""

    total_bytes: int
    truncated: bool

    def feed(self, data: bytes) -> None:
        """Take what the program wrote."""

    def close(self) -> str:
        """Return the text for the client."""


class Job(NamedTuple):
    """One run. `cwd_fd` stays open until `done` is called; the caller closes it."""

    permitted: Permitted
    cwd_fd: int
    stdout: Filter
    stderr: Filter


class Recorded(NamedTuple):
    """Whether a run may begin: its attempt has to be on disk first.

    `check` waits for that, and raises a Refusal where it failed. `later` tells whether `check` would have to wait, and
    then calls what it is given once it need not.
    """

    check: Callable[[], None]
    later: Callable[[Callable[[], object]], bool]


AT_ONCE: Final = Recorded(lambda: None, lambda _resume: False)
"""For what needs no record."""


class Completed(NamedTuple):
    """How a run ended. `exit_code` is negative for a signal, None if it was ended by us or never began.

    `stdout_bytes` and `stderr_bytes` count what the program wrote. `reason` is empty if there is nothing to
    say.
    """

    code: ResultCode
    exit_code: int | None
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    duration_ms: int
    reason: str


class Running:
    """A run as the main thread sees it. `on_cancel` is called once it is cancelled: for whom `cancel_fd` does not wake."""

    def __init__(self, job: Job, on_cancel: Callable[[], object]) -> None:
        self.job = job
        self._on_cancel = on_cancel
        self._since = time.monotonic()
        self._lock = _thread.allocate_lock()
        self.cancel_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self.cancelled = False
        self.ended = Latch()

    def cancel(self) -> None:
        """Kill the run soon; `done` still comes. Once it has ended this does nothing."""
        with self._lock:  # the descriptor's number may be another file's once it is closed
            if self.cancel_fd >= 0:
                self.cancelled = True
                os.eventfd_write(self.cancel_fd, 1)
                self._on_cancel()

    def refuse_cancelled(self) -> None:
        """Raise ExecutorError if the run was cancelled before its program started."""
        if self.cancelled:
            raise ExecutorError("cancelled by the client before it started")

    def close(self) -> None:
        """Let go of the descriptor; the run has ended."""
        with self._lock:
            fd, self.cancel_fd = self.cancel_fd, -1
            os.close(fd)

    def elapsed_ms(self) -> int:
        """Return the milliseconds since the start."""
        return round((time.monotonic() - self._since) * 1000)

    def progress(self) -> tuple[int, int, int]:
        """Return the milliseconds since the start, and the bytes on stdout and stderr so far."""
        return self.elapsed_ms(), self.job.stdout.total_bytes, self.job.stderr.total_bytes
