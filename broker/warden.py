"""One thread that lets confined programs' execs through, and hands what they ask later to threads of their run.

A filter asks about one exec, the broker's own: the process is given its limits while it waits, so they hold
before the program's first instruction. It is let through once; whoever makes the same call later is
refused. In a run that may start other programs it asks about each of them, in one that may write about
metadata changes too: that is for the run's `attendants`.

Always true: the thread has the user and the (absent) capabilities of the commands, and no file rule or
filter of theirs; it reads no program's memory and asks no file system, so that no run can hold it up; a question that
cannot be answered is answered EPERM, and no fault in here ends the thread, as calls wait for it. A process that waits
for its start is killed at its deadline and when its call is cancelled: the thread of that call cannot, meanwhile.
"""

import _thread
import contextlib
import errno
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from broker import kernel, limits, processors, temporary
from broker.attendants import Attendants, Crew, settle
from broker.kernel import Question
from broker.latch import Latch
from broker.notice import warn
from broker.owned_fd import OwnedFd
from broker.syscalls import NUMBER
from broker.terms import Terms

__all__ = ["Terms", "Ward", "Warden"]

_EXECVE: Final = NUMBER["execve"]
_MOST_LEFT: Final = 64
"""Threads that may be stuck for runs of one entry that have ended: on a mount that never answers they stay for good."""
_ENDING_S: Final = 1.0
"""How long a thread may take to see that its run has ended."""

_TOO_MANY_STUCK: Final = (
    "{}: commands of this entry have left too many questions about files that do not answer; until some are answered its "
    "commands start no other program and change no mode"
)


class Ward:
    """One run whose filter asks. `started` once its one exec was let through; `late` once it was killed as that took too
    long.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.started = False
        self.late = False
        self.born = False
        self.pidfd = -1
        self.deadline = math.inf
        self.attendants: Attendants | None = None


class Warden:
    """Hands actions to its thread. `live` is that thread's body; `close` ends it.

    `on_start` is called when a program was let through: for what is to be done while it runs, and everybody else waits.
    """

    def __init__(self) -> None:
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._actions: deque[Callable[[], object]] = deque()
        self._epoll = select.epoll()
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._wards: dict[int, Ward] = {}
        self.on_start: Callable[[], object] = _nothing
        self._ended = False
        self._ending = _thread.allocate_lock()
        self._swept = False
        self._removing: set[str] = set()
        self._births = _thread.allocate_lock()
        self._unborn: set[Ward] = set()  # those whose process waits, or is in its exec
        self._next_look = math.inf
        self._left: list[tuple[float, Crew]] = []  # of runs that have ended, and since when
        self._warned: set[str] = set()

    def live(self) -> None:
        """Answer and act, until `close`."""
        while not self._ended:
            for fd, events in self._epoll.poll(self._patience_s()):
                with contextlib.suppress(Exception):  # whatever it is, others still wait for their answers
                    self._serve(fd, events)
            if time.monotonic() >= self._next_look:
                with contextlib.suppress(Exception):
                    self._end_unborn()
        self._epoll.close()
        with self._ending:  # `close` may be about to write to it
            os.close(self._wake_fd)

    def _patience_s(self) -> float | None:
        return None if self._next_look == math.inf else max(0.0, self._next_look - time.monotonic())

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._wake_fd:
            self._act()
        elif not events & select.EPOLLIN:  # nobody is left who could ask
            self._dismiss(fd)
        elif self._wards[fd].started:
            self._hand_over(fd, self._wards[fd])
        else:
            self._answer(fd, self._wards[fd])

    def close(self) -> None:
        """Let the thread end, and say which folders are left: their removal ends with the process."""
        with self._ending:
            self._ended = True
            os.eventfd_write(self._wake_fd, 1)
        for folder in tuple(self._removing):
            warn(
                f"the temporary folder {folder} is not yet removed; the next start that uses one removes the rest"
            )

    def attend(self, listener_fd: int, terms: Terms) -> Ward:
        """Answer what arrives at `listener_fd` until its askers are gone, then close it."""
        ward = self._wards[listener_fd] = Ward(terms)
        self._epoll.register(
            listener_fd, select.EPOLLIN
        )  # epoll(7): seen at once, the thread need not be woken
        return ward

    def born(self, ward: Ward) -> int:
        """Return a pidfd of the process, which is out of its exec, one way or the other; -1 if it never asked.

        From now on it is for the caller to close it, and to end the process.
        """
        with self._births:
            self._unborn.discard(ward)
            ward.born = True
            pidfd, ward.pidfd = ward.pidfd, -1
        return pidfd

    def cancel(self) -> None:
        """End those that wait for their start and whose call is cancelled by now."""
        self._do(self._end_unborn)

    def limit(self, pid: int, terms: Terms) -> Latch:
        """Limit a process that already runs, where filters cannot ask. The caller does not reap it before."""
        limited = Latch()

        def act() -> None:
            try:
                limits.apply(pid, terms.rlimits, terms.tasks)
                processors.free(pid)
            finally:
                limited.open()

        self._do(act)
        return limited

    def remove(self, folder: str) -> Latch:
        """Remove a temporary folder soon; in a thread of its own, as it may hold much."""
        removed = Latch()
        if not self._swept:
            self._swept = True
            base = os.path.dirname(folder)
            self._do(lambda: _thread.start_new_thread(_sweep, (base,)))
        self._removing.add(folder)
        self._do(lambda: self._remove_aside(folder, removed))
        return removed

    def _remove_aside(self, folder: str, removed: Latch) -> None:
        try:
            _thread.start_new_thread(self._remove, (folder, removed))
        except RuntimeError:  # none can be had, and the answer waits for it; a later start removes the folder
            _left(folder)
            self._removing.discard(folder)
            removed.open()

    def _remove(self, folder: str, removed: Latch) -> None:
        try:
            if not temporary.remove(folder):
                _left(folder)
        finally:
            self._removing.discard(folder)
            removed.open()

    def _do(self, action: Callable[[], object]) -> None:
        with self._ending:  # afterwards the descriptor's number may be another file's
            if not self._ended:
                self._actions.append(action)
                os.eventfd_write(self._wake_fd, 1)

    def _act(self) -> None:
        os.eventfd_read(self._wake_fd)
        while self._actions:
            with contextlib.suppress(Exception):  # whatever it is, others still wait for their answers
                self._actions.popleft()()

    def _dismiss(self, listener_fd: int) -> None:
        self._epoll.unregister(listener_fd)
        ward = self._wards.pop(listener_fd)
        attendants, ward.attendants = ward.attendants, None
        if attendants is None:
            os.close(listener_fd)
        elif attendants.crew.alive:
            self._left.append((time.monotonic(), attendants.crew))

    def _answer(self, listener_fd: int, ward: Ward) -> None:
        try:
            question = kernel.seccomp_receive(listener_fd)
        except OSError:  # the asker was killed meanwhile
            return
        settle(listener_fd, question, lambda: self._decide(listener_fd, ward, question))

    def _decide(self, listener_fd: int, ward: Ward, question: Question) -> int:
        """Return the errno for the asker, the first that this run has; 0 if it has its answer already."""
        if question.number != _EXECVE or ward.terms.cancelled():
            return errno.EPERM
        ward.started = True
        self._expect(listener_fd, ward, question)

        def start() -> None:
            if self._wards.get(listener_fd) is ward:  # else it was killed while it waited
                settle(listener_fd, question, lambda: self._start(listener_fd, ward, question))

        if ward.terms.recorded.later(lambda: self._do(start)):
            return 0
        return self._start(listener_fd, ward, question)

    def _expect(self, listener_fd: int, ward: Ward, question: Question) -> None:
        """See to it that the process does not wait too long. Raises OSError."""
        with self._births:
            if ward.born:  # it was killed meanwhile
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            ward.pidfd = _process_that_waits(listener_fd, question)
            ward.deadline = time.monotonic() + ward.terms.timeout_s
            self._unborn.add(ward)
        self._next_look = min(self._next_look, ward.deadline)

    def _end_unborn(self) -> None:
        """Kill whoever waits for its start and is late or cancelled."""
        now = time.monotonic()
        with self._births:
            late = [ward for ward in self._unborn if ward.deadline <= now]
            self._next_look = min((ward.deadline for ward in self._unborn.difference(late)), default=math.inf)
            for ward in late:
                ward.late = True
            for ward in self._unborn:
                if ward.late or ward.terms.cancelled():
                    with contextlib.suppress(OSError):  # it is dead already
                        signal.pidfd_send_signal(ward.pidfd, signal.SIGKILL)

    def _start(self, listener_fd: int, ward: Ward, question: Question) -> int:
        """Limit the program and let its exec through, now that it is on disk that it starts."""
        ward.terms.recorded.check()
        kernel.seccomp_waits(listener_fd, question)
        limits.apply(question.pid, ward.terms.rlimits, ward.terms.tasks)
        processors.free(question.pid)
        kernel.seccomp_continue(listener_fd, question)
        if not ward.terms.places and not ward.terms.layers.filter.execs_ask:
            self._dismiss(listener_fd)  # nothing is left to ask; without a listener the kernel answers ENOSYS
        self.on_start()
        return 0

    def _hand_over(self, listener_fd: int, ward: Ward) -> None:
        """Have what a program asks after its start answered in threads of its run."""
        if ward.attendants is None:
            ward.attendants = Attendants(
                OwnedFd(listener_fd), ward.terms, lambda questions: self._watch(listener_fd, questions)
            )
        if self._may_attend(ward.terms.entry):
            with contextlib.suppress(RuntimeError):  # no thread can be had
                ward.attendants.reinforce()
                return
        ward.attendants.refuse(errno.EAGAIN)

    def _watch(self, listener_fd: int, questions: bool) -> None:  # noqa: FBT001 - with or without
        """Be told of what is asked at `listener_fd`, or only when nobody is left who could ask."""
        with contextlib.suppress(OSError, ValueError):  # that is so by now, or the warden has ended
            self._epoll.modify(listener_fd, select.EPOLLIN if questions else 0)

    def _may_attend(self, entry: str) -> bool:
        """Whether runs of `entry` may have threads: those before may have left too many that are stuck."""
        long_ago = time.monotonic() - _ENDING_S
        self._left = [(since, crew) for since, crew in self._left if crew.alive]
        stuck = sum(crew.alive for since, crew in self._left if crew.entry == entry and since < long_ago)
        if stuck >= _MOST_LEFT and entry not in self._warned:
            self._warned.add(entry)
            _thread.start_new_thread(warn, (_TOO_MANY_STUCK.format(entry),))  # nobody may read it
        return stuck < _MOST_LEFT


def _process_that_waits(listener_fd: int, question: Question) -> int:
    """Return a pidfd of the asker. Raises OSError."""
    pidfd = os.pidfd_open(question.pid)
    try:
        kernel.seccomp_waits(listener_fd, question)  # else the number may have been another's
    except OSError:
        os.close(pidfd)
        raise
    return pidfd


def _sweep(base: str) -> None:
    with contextlib.suppress(OSError):
        for folder in temporary.remove_abandoned(base):
            _left(folder)


def _left(folder: str) -> None:
    warn(f"the temporary folder {folder} could not be removed; it stays, look at it and remove it")


def _nothing() -> None:
    """Be told that a program starts."""
