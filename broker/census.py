"""How many processes and threads a confined call has: what `processes` of its limits is held against.

The kernel has no such count without a cgroup of our own: RLIMIT_NPROC counts a user's tasks, and root's not
at all. But a thread inside the call's domain may signal just what is in it, so that signal 0 to every
process tells which are its own, whatever session or parent they gave themselves.

Always true: only signal 0 is sent; where signals are not scoped nothing is counted.
"""

import _thread
import os
from typing import Final, NamedTuple

THREADS_PER_PROCESS: Final = 16
"""So many tasks a process may have on average: node has 11, a compiler written in Go about as many."""

_OWN_LINKS: Final = 2  # a folder's links: itself, its name, and one for each folder within (proc_pid_task(5))


class Count(NamedTuple):
    """What is there now. Threads include each process's first."""

    processes: int
    threads: int


class Census:
    """Counts, in whichever call's domain the calling thread is. Made early: confined threads may not open
    /proc.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._proc_fd = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._own = str(os.getpid())

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._proc_fd)

    def members(self) -> list[int]:
        """Return the ids of this domain's processes, dead ones that nobody has waited for among them."""
        with self._lock:  # listings share the descriptor's position
            names = os.listdir(self._proc_fd)
        return [int(name) for name in names if name.isdecimal() and name != self._own and _is_ours(int(name))]

    def is_alive(self, pid: int) -> bool:
        """Return whether a member still has memory, and so can still act."""
        try:
            os.readlink(f"{pid}/exe", dir_fd=self._proc_fd)
        except OSError:
            return False
        return True

    def count(self) -> Count:
        """Count this domain's processes and threads."""
        members = self.members()
        return Count(len(members), sum(self._threads(pid) for pid in members))

    def exceeds(self, processes: int) -> bool:
        """Return whether there are more than `processes`, or more threads than so many may have."""
        now = self.count()
        return now.processes > processes or now.threads > processes * THREADS_PER_PROCESS

    def _threads(self, pid: int) -> int:
        try:
            return os.stat(f"{pid}/task", dir_fd=self._proc_fd).st_nlink - _OWN_LINKS
        except OSError:
            return 0


def _is_ours(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
