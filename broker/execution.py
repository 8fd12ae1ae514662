"""Starting jobs, each in a thread of its own, and ending them all.

Always true: nothing starts that `containment` did not prepare; closing leaves no process behind.
"""

import os
from collections.abc import Callable

from broker import kernel, schema, seccomp, temporary
from broker.birth import spawn_frontend
from broker.canary import layers_in_force
from broker.confinement import Places
from broker.containment import Containment
from broker.jail import Jail
from broker.job import Completed, Job, Running
from broker.nursery import Nursery, identity_of
from broker.refusal import ExecutorError
from broker.run import Call
from broker.warden import Warden

__all__ = ["Completed", "Executor", "Job", "Running", "spawn_frontend"]


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
        in_force = layers_in_force(containment.mode, warn)
        self.containment = Containment(in_force, Places(jail.real, os.path.realpath(home)))
        self.jail = jail.real
        self.environment = {
            "PATH": ":".join(environment.path),
            "LANG": "C.UTF-8",
            "HOME": home,
            **environment.set,
        }
        self.temporary_base = temporary.base_outside(jail.real)
        self.warden = Warden()
        common = seccomp.common_filter() if in_force.filters else None
        self.nursery = Nursery(
            self.containment.scope_fd, identity_of(containment.run_as), common, self.warden.live
        )
        self.null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def start(self, job: Job, before: Callable[[], None], done: Callable[[Completed], None]) -> Running:
        """Run `job` in a thread of its own, and return at once.

        `before` runs in that thread before it is confined, and may raise a Refusal; `done` is its last act.
        Raises ExecutorError if nothing can be started any more.
        """
        try:
            prepared = self.containment.prepare(job.permitted.profile, job.permitted.program)
        except OSError as error:
            raise ExecutorError(f"the command cannot be confined: {error.strerror}") from None
        running = Running(job)
        self.nursery.submit(Call(self, prepared, running, before, done).run)
        return running

    def close(self) -> None:
        """Kill every command and all that descends from it, and wait until that was done."""
        self.nursery.close()
        self.warden.close()
