"""Starting jobs, each in a thread of its own, and ending them all.

Always true: nothing starts that `containment` did not prepare; closing leaves no process behind.
"""

import os
import resource
import time
from collections.abc import Callable
from typing import Final

from broker import kernel, schema, seccomp, temporary
from broker.birth import spawn_frontend
from broker.canary import layers_in_force
from broker.census import Census
from broker.confinement import Places
from broker.containment import Containment
from broker.jail import Jail
from broker.job import AT_ONCE, Completed, Job, Recorded, Running
from broker.nursery import Nursery, identity_of
from broker.proof import prove
from broker.refusal import ExecutorError, StartupError
from broker.run import Call
from broker.spawn import encoded
from broker.warden import Warden

__all__ = ["AT_ONCE", "Completed", "Executor", "Job", "Recorded", "Running", "spawn_frontend"]

CLOSE_S: Final = 3.0
"""How long cancelled runs may take to end, all together; what is left is killed by the reaper."""
OPEN_FILES: Final = 65_536
"""A run takes about ten descriptors of the broker."""


class Executor:
    """Starts jobs, and ends them all."""

    def __init__(
        self,
        jail: Jail,
        containment: schema.Containment,
        environment: schema.Environment,
        home: str,
        warn: Callable[[str], None],
    ) -> None:
        """Find out what the kernel can do, and prepare. Raises StartupError if that is less than
        `containment` demands.
        """
        kernel.close_on_exec(3)
        _raise_open_files()
        self.warn = warn
        self._runs: set[Running] = set()
        in_force = layers_in_force(containment.mode, warn)
        self.containment = Containment(in_force, Places(jail.real, os.path.realpath(home)), jail.fd)
        self.jail = jail.real
        self.environment = {
            "PATH": ":".join(environment.path),
            "LANG": "C.UTF-8",
            "HOME": home,
            **environment.set,
        }
        self.variables = encoded(self.environment)
        self.temporary_base = temporary.base_outside(jail.real)
        self.warden = Warden()
        common = seccomp.common_filter() if in_force.filters else None
        self.nursery = Nursery(
            self.containment.scope_fd,
            identity_of(containment.run_as),
            common,
            self.warden.live,
            asks=in_force.asks,
        )
        self.warden.on_start = self.nursery.refill
        self.census = Census() if in_force.scoped else None
        self.null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.sink_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        if in_force.scoped and in_force.files and in_force.filters:
            try:
                prove(self, jail)
            except StartupError:
                self.close()
                raise

    def start(self, job: Job, recorded: Recorded, done: Callable[[Completed], None]) -> Running:
        """Run `job` in a thread of its own, and return at once.

        Its program starts when it is `recorded`, which may raise a Refusal. `done` is called when it has ended; nothing
        that it left lives any more once `Running.ended` is open.
        Raises ExecutorError if nothing can be started any more.
        """
        try:
            prepared = self.containment.prepare(job.permitted.profile, job.permitted.program)
        except OSError as error:
            raise ExecutorError(f"the command cannot be confined: {error.strerror}") from None
        running = Running(job, self.warden.cancel)
        self._runs.add(running)
        try:
            self.nursery.submit(Call(self, prepared, running, recorded, done))
        except ExecutorError:
            self.ended(running)
            raise
        return running

    def ended(self, running: Running) -> None:
        """Forget a run; called once, when it has ended or never began."""
        self._runs.discard(running)
        running.close()

    def close(self) -> None:
        """Kill every command and all that descends from it, and wait until that was done."""
        runs = tuple(self._runs)
        for running in runs:
            running.cancel()
        deadline = time.monotonic() + CLOSE_S
        for running in runs:
            running.ended.wait(max(0.0, deadline - time.monotonic()))
        self.nursery.close()
        self.warden.close()
        os.close(self.null_fd)
        os.close(self.sink_fd)
        if self.census is not None:
            self.census.close()


def _raise_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
