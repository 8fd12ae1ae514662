"""The thread that every command's thread descends from, and the reaper that ends them all with the broker.

Always true: the nursery takes, for good, what all commands share: no capability, the user they run as,
no_new_privs, and a Landlock domain that scopes signals. Threads made by it inherit that. Before anything
can call kill(-1) the reaper, a process inside that domain, has seen that a signal to the broker is refused
there: otherwise kill(-1) would reach the user's whole session, and nothing starts. The reaper reads a pipe
that only the broker holds open: its end, by SIGKILL too, is end of file, and then everything in the domain
is killed. A reaper that is gone stops further commands from starting.
"""

import _thread
import contextlib
import ctypes
import os
import select
import signal
from _queue import SimpleQueue  # `queue` is the same behind 2 ms of imports
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker import kernel, seccomp
from broker.refusal import ExecutorError, StartupError
from broker.seats import Seats

UMASK: Final = 0o077
"""What a command makes is for its user alone."""
WARM_THREADS: Final = 2
"""Threads that wait for a command, so that making one is not part of a call."""
PATH_BYTES: Final = 4096
"""A path with its end (linux/limits.h, PATH_MAX)."""
NO_THREAD: Final = (
    "no thread could be started for it: this user, or this container, has as many as it may have"
)
PROOF_S: Final = 10.0
"""How long the reaper may take to show that it is contained."""

_SHELL: Final = "/bin/sh"
_REAPER: Final = (
    # Refused here must mean contained: the process is there, and kill works on oneself.
    "kill -0 $$ && ! kill -0 $PPID 2>/dev/null && echo contained || exit 1; read x; kill -9 -1 2>/dev/null"
)
_CONTAINED: Final = b"contained\n"


class Identity(NamedTuple):
    """The user that commands become."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def identity_of(user: str | None) -> Identity | None:
    """Return who `run_as` names; None for nobody else, or where the broker is not root. Raises
    StartupError.
    """
    if user is None:
        return None
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise StartupError(f"containment.run_as: there is no user {user!r}") from None
    if os.geteuid() == 0:
        return Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,))
    if entry.pw_uid == os.geteuid():
        return None
    raise StartupError(f"containment.run_as: only root can run commands as {user!r}")


def shed_rights(identity: Identity | None) -> None:
    """Take every capability from the calling thread, make it `identity` if one is given, and set
    no_new_privs.
    """
    if os.geteuid() == 0:
        kernel.drop_bounding_capabilities()
        if identity is not None:
            kernel.become(*identity)
    kernel.drop_capabilities()
    kernel.set_no_new_privs()


class Ready(NamedTuple):
    """What a thread has on before its task is known: the usual filter, whose questions arrive at `listener_fd`.

    The one exec that it asks about is of the path that is written to `path` until then.
    """

    listener_fd: int
    path: ctypes.Array[ctypes.c_char]


class Task(Protocol):
    """What a thread of the nursery does once, then it ends. `usual`: the usual filter is the one that it needs."""

    usual: bool

    def run(self, ready: Ready | None) -> None:
        """Do it."""

    def refuse(self, reason: str) -> None:
        """Take that no thread could be had for it."""


class Nursery:
    """Runs tasks, each in a thread of its own that may confine itself, with a umask of its own.

    `scope_fd` is a ruleset that scopes signals; None where the kernel has no such thing: then there is no
    reaper, and nobody may call kill(-1).
    """

    def __init__(
        self,
        scope_fd: int | None,
        identity: Identity | None,
        common_filter: bytes | None,
        first: Callable[[], None],
        *,
        asks: bool = False,
    ) -> None:
        """Start the nursery, and `first` in a thread of it that `common_filter` does not hold.

        `asks`: filters can ask, so that threads can have the usual one before there is a task for them. Raises
        StartupError if it cannot be contained.
        """
        self._common_filter = common_filter
        self._first = first
        self._scope_fd = scope_fd
        self._identity = identity
        self._seats: dict[bool, Seats[Task]] = {False: Seats(1 if asks else WARM_THREADS)}
        if asks:
            self._seats[True] = Seats(WARM_THREADS)
        self._orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ready: SimpleQueue[StartupError | None] = SimpleQueue()
        self._leash_fd = -1
        self._reaper_fd = -1
        self._reaper_ended: select.poll | None = None
        self.reaper_pid = 0
        _thread.start_new_thread(self._live, ())
        problem = self._ready.get()
        if problem is not None:
            raise problem

    @property
    def scoped(self) -> bool:
        """Whether signals stay within, so that kill(-1) may be used in here."""
        return self._scope_fd is not None

    @property
    def guarded(self) -> bool:
        """Whether the reaper lives, where there has to be one."""
        return self._reaper_ended is None or not self._reaper_ended.poll(0)

    def submit(self, task: Task) -> None:
        """Run `task` in a thread of its own. Raises ExecutorError if the reaper is gone."""
        if not self.guarded:
            raise ExecutorError("the process that ends commands with this server is gone; restart the server")
        usual = task.usual and True in self._seats
        self._make(usual, self._seats[usual].give(task))

    def refill(self) -> None:
        """Have threads made in the place of those that were used; for when a program runs, and all else waits."""
        for usual, seats in self._seats.items():
            self._make(usual, seats.missing())

    def _make(self, usual: bool, count: int) -> None:  # noqa: FBT001 - which of two kinds
        for _ in range(count):
            self._orders.put(lambda: self._add_thread(usual))

    def order(self, action: Callable[[], object]) -> None:
        """Run a short `action` in the nursery's own thread, which no file rule confines."""
        self._orders.put(action)

    def close(self) -> None:
        """Kill everything that was started in here, and let the idle threads go."""
        self._orders.put(None)
        for seats in self._seats.values():
            seats.dismiss()
        if self._leash_fd >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._leash_fd, b"\n")  # as good as its end, should a copy of it be left somewhere
            os.close(self._leash_fd)
            self._leash_fd = -1
            _readable(self._reaper_fd, PROOF_S)
            os.waitpid(self.reaper_pid, 0)
            os.close(self._reaper_fd)

    def _live(self) -> None:
        try:
            shed_rights(self._identity)
            if self._scope_fd is not None:
                kernel.landlock_restrict_self(self._scope_fd)
                self._start_reaper()
            _thread.start_new_thread(self._first, ())
            if self._common_filter is not None:
                kernel.seccomp_filter(self._common_filter)
            self.refill()
        except StartupError as error:
            self._ready.put(error)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, who makes the nursery waits for it
            why = error.strerror if isinstance(error, OSError) else error
            self._ready.put(StartupError(f"commands cannot be contained: {why}"))
            return
        self._ready.put(None)
        while (action := self._orders.get()) is not None:
            try:
                action()
            except RuntimeError:  # this user, or this container, has as many threads as it may have
                continue

    def _add_thread(self, usual: bool) -> None:  # noqa: FBT001 - which of two kinds
        try:
            _thread.start_new_thread(self._wait_for_task, (usual,))
        except RuntimeError:
            self._lose_thread(usual)

    def _lose_thread(self, usual: bool) -> None:  # noqa: FBT001 - which of two kinds
        for task in self._seats[usual].lose():
            task.refuse(NO_THREAD)

    def _wait_for_task(self, usual: bool) -> None:  # noqa: FBT001 - which of two kinds
        try:
            ready = self._confine_thread(usual)
        except Exception:  # noqa: BLE001 - whatever it is, a task waits for it
            self._lose_thread(usual)
            return
        task = self._seats[usual].wait()
        if task is not None:
            task.run(ready)
        elif ready is not None:
            os.close(ready.listener_fd)

    def _confine_thread(self, usual: bool) -> Ready | None:  # noqa: FBT001 - which of two kinds
        """Put on the calling thread what it can have before its task is known. Raises OSError."""
        with contextlib.suppress(PermissionError):  # in a container: then the whole broker has this umask
            kernel.unshare_umask()
        os.umask(UMASK)
        if usual:
            path = ctypes.create_string_buffer(PATH_BYTES)
            asks = seccomp.usual_filter(_thread.get_native_id(), ctypes.addressof(path))
            return Ready(kernel.seccomp_listener(asks), path)
        if self._common_filter is not None:
            kernel.seccomp_filter(seccomp.thread_filter(_thread.get_native_id()))
        return None

    def _start_reaper(self) -> None:
        read_fd, self._leash_fd = os.pipe2(os.O_CLOEXEC)
        proof_r, proof_w = os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, read_fd, 0), (os.POSIX_SPAWN_DUP2, proof_w, 1)]
        try:
            self.reaper_pid = os.posix_spawn(
                _SHELL,
                ["sh", "-c", _REAPER],
                {},
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
            self._reaper_fd = os.pidfd_open(self.reaper_pid)
            self._reaper_ended = select.poll()
            self._reaper_ended.register(self._reaper_fd, select.POLLIN)
        finally:
            os.close(read_fd)
            os.close(proof_w)
        try:
            if not _readable(proof_r, PROOF_S) or os.read(proof_r, len(_CONTAINED)) != _CONTAINED:
                raise StartupError(
                    "signals are not kept within a command: kill(-1) would reach everything of this user"
                )
        finally:
            os.close(proof_r)


def _readable(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
