"""One thread that answers what confined programs' filters ask, and does for a call what it may not do itself.

A filter asks about one exec, the broker's own: the process is given its limits while it waits, so they hold
before the program's first instruction. It is let through once; whoever makes the same call later is
refused. In a run that may start other programs it asks about each of them, in one that may write about
metadata changes too.

Always true: the thread has the user and the (absent) capabilities of the commands, and no file rule or
filter of theirs; a question that cannot be answered is answered EPERM, and no fault in here ends the
thread, as calls wait for it.
"""

import _thread
import contextlib
import errno
import os
import select
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from broker import kernel, limits, metadata, processors, temporary
from broker.job import Recorded
from broker.kernel import Question
from broker.latch import Latch
from broker.limits import RLimits
from broker.notice import warn
from broker.syscalls import NUMBER

_EXECVE = NUMBER["execve"]
_MOST_ASIDE, _MOST_ASIDE_OF_ALL = 32, 128
"""Questions of one run, and of all, that wait for a file system at a time: on one that does not answer they stay for good."""


class Terms(NamedTuple):
    """What one run gets: the limits of each process, how many processes, where it may change metadata (real paths),
    where it may start other programs, which loaders it must not execute by name (device, inode), and what has to be
    on disk before it starts.
    """

    rlimits: RLimits
    tasks: int
    places: tuple[str, ...]
    loaders: frozenset[tuple[int, int]] | None
    recorded: Recorded


class Ward:
    """One run whose filter asks. `started` once its one exec was let through."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.started = False


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
        self._aside: dict[int, int] = {}  # a descriptor of its own for each → the run's listener

    def live(self) -> None:
        """Answer and act, until `close`."""
        while not self._ended:
            for fd, events in self._epoll.poll():
                with contextlib.suppress(Exception):  # whatever it is, others still wait for their answers
                    self._serve(fd, events)
        self._epoll.close()
        with self._ending:  # `close` may be about to write to it
            os.close(self._wake_fd)

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._wake_fd:
            self._act()
        elif events & select.EPOLLIN:
            self._answer(fd, self._wards[fd])
        else:  # nobody is left who could ask
            self._dismiss(fd)

    def close(self) -> None:
        """Let the thread end."""
        with self._ending:
            self._ended = True
            os.eventfd_write(self._wake_fd, 1)

    def attend(self, listener_fd: int, terms: Terms) -> None:
        """Answer what arrives at `listener_fd` until its askers are gone, then close it."""
        self._wards[listener_fd] = Ward(terms)
        self._epoll.register(
            listener_fd, select.EPOLLIN
        )  # epoll(7): seen at once, the thread need not be woken

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
        self._do(lambda: _remove_aside(folder, removed))
        return removed

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
        del self._wards[listener_fd]
        os.close(listener_fd)

    def _answer(self, listener_fd: int, ward: Ward) -> None:
        try:
            question = kernel.seccomp_receive(listener_fd)
        except OSError:  # the asker was killed meanwhile
            return
        self._settle(listener_fd, question, lambda: self._decide(listener_fd, ward, question))

    def _settle(self, listener_fd: int, question: Question, decide: Callable[[], int]) -> None:
        try:
            error_number = decide()
        except OSError as error:
            error_number = error.errno or errno.EPERM
        except Exception:  # noqa: BLE001 - whatever it is, the asker must not wait for ever
            error_number = errno.EPERM
        try:
            if error_number:
                kernel.seccomp_answer(listener_fd, question, error_number)
        except OSError:
            return

    def _decide(self, listener_fd: int, ward: Ward, question: Question) -> int:
        """Return the errno for the asker; 0 if it has its answer already."""
        if question.number != _EXECVE:
            metadata.change(listener_fd, question, ward.terms.places)
            kernel.seccomp_answer(listener_fd, question, 0)
            return 0
        if ward.started:
            return self._decide_on_program(listener_fd, ward.terms.loaders, question)
        ward.started = True

        def start() -> None:
            if self._wards.get(listener_fd) is ward:  # else it was killed while it waited
                self._settle(listener_fd, question, lambda: self._start(listener_fd, ward, question))

        if ward.terms.recorded.later(lambda: self._do(start)):
            return 0
        return self._start(listener_fd, ward, question)

    def _start(self, listener_fd: int, ward: Ward, question: Question) -> int:
        """Limit the program and let its exec through, now that it is on disk that it starts."""
        ward.terms.recorded.check()
        kernel.seccomp_waits(listener_fd, question)
        limits.apply(question.pid, ward.terms.rlimits, ward.terms.tasks)
        processors.free(question.pid)
        kernel.seccomp_continue(listener_fd, question)
        if not ward.terms.places and ward.terms.loaders is None:
            self._dismiss(listener_fd)  # nothing is left to ask; without a listener the kernel answers ENOSYS
        self.on_start()
        return 0

    def _decide_on_program(
        self, listener_fd: int, loaders: frozenset[tuple[int, int]] | None, question: Question
    ) -> int:
        """Let a further exec through to Landlock, unless it is a loader's own.

        A program of several threads may change the path after this look. It gains code in its own process that way,
        which it has already, and no right.
        """
        if loaders is None:
            return errno.EACCES
        try:
            return _program_let_through(listener_fd, loaders, question, patient=False)
        except BlockingIOError:
            return self._decide_aside(listener_fd, loaders, question)

    def _decide_aside(self, listener_fd: int, loaders: frozenset[tuple[int, int]], question: Question) -> int:
        """Decide in a thread of its own, as the file system may never answer, and the others go on."""
        runs = list(self._aside.values())
        if runs.count(listener_fd) >= _MOST_ASIDE or len(runs) >= _MOST_ASIDE_OF_ALL:
            return errno.EAGAIN
        own_fd = os.dup(listener_fd)  # the other one is closed when no asker is left

        def decide() -> None:
            try:
                self._settle(
                    own_fd, question, lambda: _program_let_through(own_fd, loaders, question, patient=True)
                )
            finally:
                self._aside.pop(own_fd, None)
                os.close(own_fd)

        self._aside[own_fd] = listener_fd
        try:
            _thread.start_new_thread(decide, ())
        except BaseException:
            self._aside.pop(own_fd, None)
            os.close(own_fd)
            raise
        return 0


def _program_let_through(
    listener_fd: int, loaders: frozenset[tuple[int, int]], question: Question, *, patient: bool
) -> int:
    path = question.arguments[0]
    if metadata.identity_at(listener_fd, question, path, patient=patient) in loaders:
        return errno.EACCES
    kernel.seccomp_continue(listener_fd, question)
    return 0


def _remove_aside(folder: str, removed: Latch) -> None:
    try:
        _thread.start_new_thread(_remove, (folder, removed))
    except RuntimeError:  # none can be had, and the answer waits for it; a later start removes the folder
        _left(folder)
        removed.open()


def _remove(folder: str, removed: Latch) -> None:
    try:
        if not temporary.remove(folder):
            _left(folder)
    finally:
        removed.open()


def _sweep(base: str) -> None:
    with contextlib.suppress(OSError):
        for folder in temporary.remove_abandoned(base):
            _left(folder)


def _left(folder: str) -> None:
    warn(f"the temporary folder {folder} could not be removed; it stays, look at it and remove it")


def _nothing() -> None:
    """Be told that a program starts."""
