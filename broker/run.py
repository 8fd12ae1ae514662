"""The thread of one call: it confines itself, starts the program, reads it to its end, and leaves nothing behind.

Always true: a program is started only after every layer is on; a call ends with its leader, its timeout or
its cancellation, never with the end of its pipes; then everything in its domain is killed; whatever a
program prints, the memory held is the two filters' and one read's. `done` is called exactly once, whatever
happens; when `Running.ended` opens, the thread's last act, nothing is left.
"""

import _thread
import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.census import THREADS_PER_PROCESS, Census
from broker.confinement import own_execution
from broker.containment import Containment, Prepared
from broker.job import Completed, Job, Recorded, Running
from broker.landlock import READ, WRITE, Rule
from broker.limits import rlimits_for
from broker.nursery import Nursery, Ready
from broker.reader import Reader, Started
from broker.refusal import ExecutorError, Refusal
from broker.spawn import Strings, encoded, spawn
from broker.temporary import Folder
from broker.terms import Terms
from broker.warden import Ward, Warden
from protocol.messages import ResultCode

DRAIN_S: Final = 0.15
"""After the kill: how long the dying may take to let go of the pipes."""
LAST_READS: Final = 16
"""How often a stream is read once its program has ended, before whoever still writes to it is killed."""

COUNT_S: Final = 0.03
"""How often a run's processes are counted."""
SETTLE_MS: Final = 2
"""Between two looks at what is dying."""
LIMITED_S: Final = 5.0
"""How long the warden may take to limit a program that already runs."""
REMOVED_S: Final = 10.0
"""How long the removal of a temporary folder may hold up the answer."""

TOO_MANY: Final = "more processes or threads at once than its limit"
CANCELLED: Final = "cancelled by the client; the command was killed"

T = TypeVar("T")


class Premises(Protocol):
    """What all calls of one executor share."""

    containment: Containment
    nursery: Nursery
    warden: Warden
    census: Census | None
    jail: str
    environment: dict[str, str]
    variables: Strings
    temporary_base: str
    null_fd: int
    sink_fd: int

    def warn(self, line: str, /) -> None:
        """Tell the operator."""

    def ended(self, running: Running, /) -> None:
        """Forget a run."""


class Verdict(NamedTuple):
    """Why the reading stopped: `code` is OK if the leader ended by itself."""

    code: ResultCode
    reason: str = ""


class Call:
    """One call. `run` is the body of its thread, or `refuse` what happens if none can be had."""

    def __init__(
        self,
        premises: Premises,
        prepared: Prepared,
        running: Running,
        recorded: Recorded,
        done: Callable[[Completed], None],
    ) -> None:
        self._premises = premises
        self._prepared = prepared
        self._running = running
        self._job = running.job
        self._recorded = recorded
        self._done = done
        self._temporary: Folder | None = None
        self._outer_fds: list[int] = []
        self._inner_fds: list[int] = []
        self._confined = False
        self._exit_code: int | None = None
        self._ready: Ready | None = None
        self._ward: Ward | None = None
        self._kills_last = False
        self.usual = prepared.usual

    def run(self, ready: Ready | None) -> None:
        """Run the job to its end, then call `done`."""
        self._ready = ready
        verdict = self._guarded(self._attempt)
        if ready is not None and self._ward is None:
            os.close(ready.listener_fd)
        completed = self._guarded(lambda: self._completed(verdict))
        self._finish(self._nothing(completed) if isinstance(completed, Verdict) else completed)

    def refuse(self, reason: str) -> None:
        """Call `done` for a job that cannot begin."""
        self._finish(self._nothing(Verdict(ResultCode.EXECUTOR_ERROR, reason)))

    def _nothing(self, verdict: Verdict) -> Completed:
        elapsed_ms = self._running.elapsed_ms()
        return Completed(verdict.code, None, "", "", 0, 0, elapsed_ms, verdict.reason)

    def _finish(self, completed: Completed) -> None:
        self._premises.ended(self._running)
        self._done(completed)
        if self._kills_last:
            self._kill_domain()
        self._running.ended.open()

    def _guarded(self, step: Callable[[], T]) -> T | Verdict:
        try:
            return step()
        except Refusal as refusal:
            return Verdict(refusal.code, refusal.reason)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw ends the call, not the broker
            self._premises.warn(f"internal error in a call: {type(error).__name__}")
            return Verdict(ResultCode.INTERNAL_ERROR, "internal error of the server")

    def _attempt(self) -> Verdict:
        try:
            self._running.refuse_cancelled()
            self._job.permitted.program.verify()
            started = self._start()
        except BaseException:
            self._kill_domain()  # a program that was started, but is not watched, must not stay
            raise
        finally:
            self._close(self._inner_fds)
        reader = Reader(started, self._job, self._premises.sink_fd)
        try:
            return self._attend(started, reader)
        finally:
            self._end(started, reader)

    def _start(self) -> Started:
        """Put every layer on this thread and start the program. Raises ExecutorError."""
        premises, permitted = self._premises, self._job.permitted
        own = permitted.environment
        further = None
        if permitted.profile.temporary:
            self._temporary = Folder(premises.temporary_base)
            own = own | {"TMPDIR": self._temporary.path, "HOME": self._temporary.path}
            further = Rule(self._temporary.path, READ | WRITE | own_execution(permitted.profile))
        stdout_r, stdout_w = self._pipe()
        stderr_r, stderr_w = self._pipe()
        terms = self._terms()
        self._confine(further, terms)
        if self._ward is None:
            self._recorded.check()
        variables = encoded(premises.environment | own) if own else premises.variables
        pid = self._spawn(variables, (premises.null_fd, stdout_w, stderr_w))
        if self._ward is None:
            premises.warden.limit(pid, terms).wait(LIMITED_S)
            premises.nursery.refill()
        pidfd = self._born()
        return Started(pid, os.pidfd_open(pid) if pidfd < 0 else pidfd, stdout_r, stderr_r)

    def _terms(self) -> Terms:
        permitted, limits, running = self._job.permitted, self._job.permitted.limits, self._running
        return Terms(
            entry=permitted.program.name,
            rlimits=rlimits_for(limits),
            tasks=limits.processes * THREADS_PER_PROCESS,
            timeout_s=limits.timeout_s,
            cancelled=lambda: running.cancelled,
            layers=self._prepared.layers,
            jail=self._premises.jail,
            places=self._writable_places(),
            recorded=self._recorded,
        )

    def _writable_places(self) -> tuple[str, ...]:
        places = (self._premises.jail,) if self._job.permitted.profile.writes else ()
        return places if self._temporary is None else (*places, self._temporary.path)

    def _pipe(self) -> tuple[int, int]:
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(
            read_fd, False
        )  # a program can open its own pipe in /proc, and read what was there for us
        self._outer_fds.append(read_fd)
        self._inner_fds.append(write_fd)
        return read_fd, write_fd

    def _confine(self, further: Rule | None, terms: Terms) -> None:
        """Confine this thread. If its filter asks, that is the warden, who limits the program before it runs."""
        premises = self._premises
        try:
            listener_fd = premises.containment.confine(self._prepared, further, self._listener_fd())
        except OSError as error:
            raise ExecutorError(f"the command cannot be confined: {error.strerror}") from None
        self._confined = True
        if listener_fd >= 0:
            self._ward = premises.warden.attend(listener_fd, terms)

    def _listener_fd(self) -> int:
        return -1 if self._ready is None else self._ready.listener_fd

    def _path(self) -> bytes | ctypes.Array[ctypes.c_char]:
        """Return the path of the program where this thread's filter expects it."""
        path = self._job.permitted.program.path
        if self._ready is None:
            return path
        self._ready.path.value = path
        return self._ready.path

    def _spawn(self, environment: Strings, fds: tuple[int, ...]) -> int:
        permitted = self._job.permitted
        try:
            argv = permitted.program.argv(permitted.argv[0], permitted.argv[1:])
            return spawn(self._path(), argv, environment, fds, self._job.cwd_fd)
        except OSError as error:
            if (pidfd := self._born()) >= 0:
                os.close(pidfd)
            self._running.refuse_cancelled()
            self._recorded.check()  # else it was refused because it is not on disk that it starts
            raise ExecutorError(f"{permitted.program.name}: cannot be started: {error.strerror}") from None

    def _born(self) -> int:
        """Return a pidfd of the process, as the warden has it, who leaves it to this thread from now on; -1 if he has none."""
        return -1 if self._ward is None else self._premises.warden.born(self._ward)

    def _attend(self, started: Started, reader: Reader) -> Verdict:
        """Read until the leader ends, or must."""
        bounds = self._job.permitted.limits
        reader.poll.register(self._running.cancel_fd, select.POLLIN)
        if self._ward is not None and self._ward.late:
            return Verdict(
                ResultCode.TIMEOUT, f"not started after {bounds.timeout_s:g} s, its time limit (timeout_s)"
            )
        now = time.monotonic()
        deadline, next_count = now + bounds.timeout_s, now + COUNT_S
        while True:
            ready = reader.read(max(0.0, min(deadline, next_count) - now))
            now = time.monotonic()
            if self._running.cancelled:
                return Verdict(ResultCode.EXECUTOR_ERROR, CANCELLED)
            if started.pidfd in ready:
                return Verdict(ResultCode.OK)
            if now >= deadline:
                return Verdict(
                    ResultCode.TIMEOUT, f"killed after {bounds.timeout_s:g} s, its time limit (timeout_s)"
                )
            if now >= next_count:
                if self._premises.census and self._premises.census.exceeds(bounds.processes):
                    return Verdict(
                        ResultCode.EXECUTOR_ERROR, f"killed: {TOO_MANY} ({bounds.processes}, processes)"
                    )
                next_count = now + COUNT_S

    def _end(self, started: Started, reader: Reader) -> None:
        """Kill what is left of the domain, take what the pipes still hold, reap the leader."""
        reader.poll.unregister(self._running.cancel_fd)
        self._kills_last = self._may_kill_last(started, reader)
        if not self._kills_last:
            self._kill(started)
        deadline = time.monotonic() + DRAIN_S
        while reader.open_fds and (left_s := deadline - time.monotonic()) > 0:
            reader.read(left_s)
        if started.pidfd in reader.open_fds:  # it does not die: its exit is not waited for in this thread
            self._premises.nursery.order(lambda: reap_later(started.pid))
        else:
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1])
        os.close(started.pidfd)
        if self._prepared.layers.filter.programs and self._premises.census is not None:
            self._settle(self._premises.census)

    def _may_kill_last(self, started: Started, reader: Reader) -> bool:
        """Whether the leader has ended, could start no other program, and nobody holds its pipes any more.

        Then the kill, which is to be sure, need not come before the outcome is written: the answer waits for both. A
        temporary folder, though, is removed when nobody can be left who changes it meanwhile.
        """
        alone = (
            self._ward is not None and not self._prepared.layers.filter.programs and self._temporary is None
        )
        if started.pidfd in reader.open_fds or not alone or not self._premises.nursery.scoped:
            return False
        for _ in range(LAST_READS):
            if not reader.open_fds or not reader.read(0):
                break
        return not reader.open_fds

    def _settle(self, census: Census) -> None:
        """See that what the program started is gone too: a killed process takes a moment to die.

        One that became our child, as it does where the broker is process 1, is waited for, so that no
        zombie stays.
        """
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            alive = False
            for pid in census.members():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                alive = alive or census.is_alive(pid)
            if not alive:
                return
            self._kill_domain()
            select.poll().poll(SETTLE_MS)

    def _kill(self, started: Started) -> None:
        """Kill what this call started; without scoped signals only its process group is reached."""
        if not self._premises.nursery.scoped:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        self._kill_domain()

    def _kill_domain(self) -> None:
        """Kill everything in this thread's Landlock domain; does nothing before the thread has one of its own.

        One kill(-1) is enough: the kernel holds its list of processes meanwhile, and a fork under way is
        ended by the signal or has its child on the list.
        """
        if self._premises.nursery.scoped and self._confined:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _completed(self, verdict: Verdict) -> Completed:
        self._close(self._outer_fds)
        if self._temporary is not None:
            self._premises.warden.remove(self._temporary.path).wait(REMOVED_S)
            self._temporary.close()
        job = self._job
        stdout, stderr = job.stdout.close(), job.stderr.close()
        ended = verdict.code is ResultCode.OK
        if ended and (job.stdout.truncated or job.stderr.truncated):
            verdict = Verdict(ResultCode.OUTPUT_TRUNCATED, cut_reason(job))
        return Completed(
            code=verdict.code,
            exit_code=self._exit_code if ended else None,
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=job.stdout.total_bytes,
            stderr_bytes=job.stderr.total_bytes,
            duration_ms=self._running.elapsed_ms(),
            reason=verdict.reason,
        )

    @staticmethod
    def _close(fds: list[int]) -> None:
        while fds:
            os.close(fds.pop())


def cut_reason(job: Job) -> str:
    """Return which stream was cut, where, and the key of the policy that says so."""
    limits = job.permitted.limits
    streams = (("stdout", job.stdout, limits.stdout_bytes), ("stderr", job.stderr, limits.stderr_bytes))
    cut = [
        f"{name} was cut at {limit_bytes} of {stream.total_bytes} bytes (limits.{name}_bytes)"
        for name, stream, limit_bytes in streams
        if stream.truncated
    ]
    return "; ".join([*cut, job.permitted.reason])


def reap_later(pid: int) -> None:
    """Wait for a process that does not die now, in a thread of its own."""
    _thread.start_new_thread(os.waitpid, (pid, 0))
