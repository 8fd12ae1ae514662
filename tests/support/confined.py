"""Programs run by an executor of the test's own, without policy, audit or frontend around it.

Always true: the jail and the home lie in a folder of the test; every run has a bound; `close` ends
everything.
"""

import os
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import msgspec

from broker.execution import AT_ONCE, Completed, Executor, Job, Recorded, Running
from broker.jail import Jail, Located
from broker.policy import Permitted
from broker.profile import Profile
from broker.programs import Program, Programs
from broker.schema import Containment, Environment, Limits

BOUND_S = 30.0
LEAST = Profile()
PYTHON = os.path.realpath(sys.executable)
FEW = Limits(timeout_s=20.0)


class Kept:
    """An output filter that keeps the first bytes as they are."""

    limit_bytes = 1_000_000

    def __init__(self) -> None:
        self.total_bytes = 0
        self.truncated = False
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self.limit_bytes - len(self._data)
        self.truncated = self.truncated or len(data) > room
        self._data += data[:room]

    def close(self) -> str:
        return self._data.decode(errors="replace")


class Confined:
    """An executor over `folder`/jail."""

    def __init__(self, folder: Path, mode: str = "required", run_as: str | None = None) -> None:
        self.root = folder / "jail"
        self.home = folder / "home"
        for place in (self.root, self.home):
            place.mkdir(exist_ok=True)
        self.warnings: list[str] = []
        self.jail = Jail(str(self.root))
        self._environment = Environment()
        self.executor = Executor(
            self.jail,
            Containment(mode=mode, run_as=run_as),  # type: ignore[arg-type]
            self._environment,
            str(self.home),
            self.warnings.append,
        )
        self.known: dict[str, Program] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.executor.close()
        os.close(self.jail.fd)

    def program(self, name: str) -> Program:
        """Return a program by its name along the path, or by its absolute path."""
        if name not in self.known:
            self.known[name] = Programs(self._environment.path, self.jail, (name,)).get(name)
        return self.known[name]

    def programs(self, *names: str) -> tuple[Program, ...]:
        """Return several, for `may_run`."""
        return tuple(self.program(name) for name in names)

    def start(
        self,
        *argv: str,
        profile: Profile = LEAST,
        limits: Limits = FEW,
        recorded: Recorded = AT_ONCE,
        environment: dict[str, str] | None = None,
    ) -> tuple[Running, "SimpleQueue[Completed]"]:
        """Start a program; its end arrives in the queue."""
        program = self.program(argv[0])
        located: Located = self.jail.locate(None)
        ended: SimpleQueue[Completed] = SimpleQueue()

        def done(completed: Completed) -> None:
            located.close()
            ended.put(completed)

        words = program.argv(argv[0], argv[1:])
        permitted = Permitted(program, words, environment or {}, profile, limits, "a test")
        job = Job(permitted, located.fd, Kept(), Kept())
        running = self.executor.start(job, recorded, done)
        return running, ended

    def run(self, *argv: str, **how: object) -> Completed:
        """Run a program to its end."""
        _, ended = self.start(*argv, **how)  # type: ignore[arg-type]
        return ended.get(timeout=BOUND_S)

    def python(self, code: str, *arguments: str, profile: Profile = LEAST, **how: object) -> Completed:
        """Run code in this very interpreter, confined; its installation is added to what the profile may
        read.
        """
        profile = msgspec.structs.replace(profile, read=(*profile.read, sys.base_prefix))
        return self.run(PYTHON, "-I", "-S", "-c", code, *arguments, profile=profile, **how)
