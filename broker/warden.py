"""One thread of the broker that does for confined calls what they may not do themselves: put limits on a process.

Always true: the thread has the user and the (absent) capabilities of the commands, and no file rule or
system call filter; a call waits for its answer before it reaps the process, so no limit ever reaches a
process that took over its number.
"""

import _thread
import os
import select
from collections import deque
from collections.abc import Callable

from broker import limits, temporary
from broker.limits import RLimits


class Warden:
    """Hands actions to its thread. `live` is that thread's body; `close` ends it."""

    def __init__(self) -> None:
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._actions: deque[Callable[[], object]] = deque()
        self._ended = False

    def live(self) -> None:
        """Do what is asked, until `close`."""
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        while not self._ended:
            poll.poll()
            os.eventfd_read(self._wake_fd)
            while self._actions:
                self._actions.popleft()()
        os.close(self._wake_fd)

    def close(self) -> None:
        """Let the thread end."""
        self._ended = True
        os.eventfd_write(self._wake_fd, 1)

    def limit(self, pid: int, rlimits: RLimits, processes: int) -> "Answer":
        """Limit `pid` soon. The caller waits for the answer before it reaps the process."""
        return self._ask(lambda: limits.apply(pid, rlimits, processes))

    def remove(self, folder: str) -> "Answer":
        """Remove a temporary folder soon; in a thread of its own, as it may hold much."""
        answer = Answer()
        self._do(lambda: _thread.start_new_thread(_remove, (folder, answer)))
        return answer

    def _ask(self, action: Callable[[], None]) -> "Answer":
        answer = Answer()

        def act() -> None:
            try:
                action()
            except OSError as error:
                answer.problem = error
            finally:
                answer.give()

        self._do(act)
        return answer

    def _do(self, action: Callable[[], object]) -> None:
        self._actions.append(action)
        os.eventfd_write(self._wake_fd, 1)


def _remove(folder: str, answer: "Answer") -> None:
    try:
        temporary.remove(folder)
    finally:
        answer.give()


class Answer:
    """Something that the warden's thread will have done. `problem`: why it could not."""

    def __init__(self) -> None:
        self.problem: OSError | None = None
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def give(self) -> None:
        """Say that it is done."""
        self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait for it. Returns whether it was done in time."""
        return self._lock.acquire(timeout=timeout_s)
