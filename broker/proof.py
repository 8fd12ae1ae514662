"""The proof that runs before the first command: a shell, confined as the least profile says, tries to get out.

Always true: it goes the whole way of a call, so that a layer that is merely believed to be on stops the
start.
"""

import os
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from typing import Final, Protocol

from broker.canary import ESCAPED, ESCAPES, REFUSED, SHELL
from broker.jail import Jail
from broker.job import AT_ONCE, Completed, Job, Recorded, Running
from broker.policy import Permitted
from broker.profile import Profile
from broker.programs import Programs
from broker.refusal import ExecutorError, StartupError
from broker.schema import Limits

PROOF_S: Final = 10.0
GRACE_S: Final = 2.0
"""How long its end may take to be told."""


class Starts(Protocol):
    """The executor."""

    def start(self, job: Job, recorded: Recorded, done: Callable[[Completed], None]) -> Running:
        """Start a job."""


class _Discarded:
    """The output of the proof, which nobody reads."""

    total_bytes = 0
    truncated = False

    def feed(self, data: bytes) -> None:
        """Count it."""
        self.total_bytes += len(data)

    def close(self) -> str:
        """Return nothing."""
        return ""


def prove(executor: Starts, jail: Jail) -> None:
    """Raise StartupError unless the shell's every attempt was refused."""
    completed: SimpleQueue[Completed] = SimpleQueue()
    try:
        shell = Programs((), jail, (SHELL,)).get(SHELL)
        limits = Limits(timeout_s=PROOF_S)
        argv = ("sh", "-c", ESCAPES, "sh", *os.listdir("/proc/self/task"))
        permitted = Permitted(shell, argv, {}, Profile(), limits, "the proof at start")
        executor.start(Job(permitted, jail.fd, _Discarded(), _Discarded()), AT_ONCE, completed.put)
    except ExecutorError as error:
        raise StartupError(f"the proof of containment cannot be run: {error}") from None
    try:
        ended = completed.get(timeout=PROOF_S + GRACE_S)
    except Empty:  # a thread that it takes did not come to life
        raise StartupError("the proof of containment does not end: is there enough memory?") from None
    if ended.exit_code is None:
        raise StartupError(f"the proof of containment cannot be run: {ended.reason}")
    if ended.exit_code not in REFUSED:
        how = ESCAPED.get(ended.exit_code) or f"its shell ended with {ended.exit_code}"
        raise StartupError(f"containment was tried and does not hold: {how}")
