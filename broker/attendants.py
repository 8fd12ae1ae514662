"""The threads that answer what one run asks after its start: each question may take for ever, and then it is this run's time.

To answer is to read the asker's memory, which may be a file of a mount that does not answer or be locked by others of its
threads, and to change files. So there is a thread more as soon as a question comes while all are at others; when as
many as a run may have are stuck, its further questions wait in the kernel, and nobody else's.

Always true: a question that cannot be answered is answered EPERM; the threads end with the run, those that are
stuck as soon as they are free; the listener is closed when the last of them has ended.
"""

import _thread
import contextlib
import errno
import select
from collections.abc import Callable
from typing import Final

from broker import kernel, metadata
from broker.asker import PATH_MAX, Asker
from broker.confinement import SYSTEM_FOLDERS
from broker.kernel import AT_FDCWD, Question
from broker.known_ways import open_known, ways_to
from broker.landlock import EXECUTE
from broker.owned_fd import OwnedFd
from broker.syscalls import NUMBER
from broker.terms import Terms

MOST: Final = 4
"""Threads of one run: it goes on while one of them is not stuck."""

_EXECVE: Final = NUMBER["execve"]


def settle(listener_fd: int, question: Question, decide: Callable[[], int]) -> None:
    """Answer with the errno that `decide` returns or raises; 0: it has answered already."""
    try:
        error_number = decide()
    except OSError as error:
        error_number = error.errno or errno.EPERM
    except Exception:  # noqa: BLE001 - whatever it is, the asker must not wait for ever
        error_number = errno.EPERM
    if error_number:
        with contextlib.suppress(OSError):  # the asker was killed meanwhile
            kernel.seccomp_answer(listener_fd, question, error_number)


class Crew:
    """How many threads answer for a run of the policy's `entry`; outlives what they hold."""

    __slots__ = ("alive", "entry")

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.alive = 0


class Attendants:
    """The threads of the run whose filter asks at `listener`.

    `watch` is called with whether somebody shall call `reinforce` at the next question, as no thread waits for it.
    """

    def __init__(self, listener: OwnedFd, terms: Terms, watch: Callable[[bool], object]) -> None:
        self._listener = listener
        self._terms = terms
        self._watch = watch
        self._watched = True
        self._asked = select.poll()
        self._asked.register(listener.fd, select.POLLIN)
        self._turn = _thread.allocate_lock()  # held by who waits for the next question
        self._lock = _thread.allocate_lock()
        self._free = 0
        self._ways: frozenset[str] | None = None
        self.crew = Crew(terms.entry)

    def reinforce(self) -> None:
        """Have one thread more, with the rights of the calling one, if none waits for a question.

        Raises RuntimeError if none can be had.
        """
        with self._lock:
            if not self._free and self.crew.alive < MOST:
                _thread.start_new_thread(self._live, ())
                self._count(alive=1, free=1)

    def refuse(self, error_number: int) -> None:
        """Answer the next question so, unless a thread waits for it, which may take it first. Raises OSError."""
        if self._turn.acquire(blocking=False):
            try:
                if self._asked.poll(0):
                    question = kernel.seccomp_receive(self._listener.fd)
                    kernel.seccomp_answer(self._listener.fd, question, error_number)
            finally:
                self._turn.release()

    def _count(self, *, alive: int = 0, free: int = 0) -> None:
        """Note that there are so many threads more, or less. The lock is held."""
        self.crew.alive += alive
        self._free += free
        wanted = not self._free and self.crew.alive < MOST
        if wanted is not self._watched:
            self._watched = wanted
            self._watch(wanted)

    def _live(self) -> None:
        try:
            while (question := self._next()) is not None:
                self._take(question)
        finally:
            with self._lock:
                self._count(alive=-1, free=-1)

    def _next(self) -> Question | None:
        """Wait for the next question; None when nobody is left who could ask."""
        with self._turn:
            while True:
                _, events = self._asked.poll()[0]
                if not events & select.POLLIN:
                    return None
                with contextlib.suppress(OSError):  # the asker was killed meanwhile
                    return kernel.seccomp_receive(self._listener.fd)

    def _take(self, question: Question) -> None:
        with self._lock:
            self._count(free=-1)
        try:
            settle(self._listener.fd, question, lambda: self._decide(question))
        finally:
            with self._lock:
                self._count(free=1)

    def _decide(self, question: Question) -> int:
        asker = Asker(self._listener.fd, question, self._known_ways)
        if question.number == _EXECVE:
            return self._decide_on_program(asker, question)
        metadata.change(asker, question, self._terms.places)
        kernel.seccomp_answer(self._listener.fd, question, 0)
        return 0

    def _decide_on_program(self, asker: Asker, question: Question) -> int:
        """Let a further exec through to Landlock, unless it is a loader's own.

        A program of several threads may change the path after this look. It gains code in its own process that way,
        which it has already, and no right.
        """
        layers = self._terms.layers
        if not layers.filter.execs_ask:
            return errno.EACCES
        path = asker.text(question.arguments[0], PATH_MAX)
        if not path:
            return errno.ENOENT
        file = OwnedFd(open_known(asker.meant(AT_FDCWD, path), self._known_ways))
        if kernel.identity(file.fd) in layers.loaders:
            return errno.EACCES
        kernel.seccomp_continue(self._listener.fd, question)
        return 0

    def _known_ways(self) -> frozenset[str]:
        """Return the folders on the way to where the run's programs lie, what they are made of, and what they may write."""
        if self._ways is None:
            terms = self._terms
            programs = (rule.path for rule in terms.layers.rules if rule.rights & EXECUTE)
            self._ways = ways_to((*programs, *SYSTEM_FOLDERS, "/dev/zero", terms.jail, *terms.places))
        return self._ways
