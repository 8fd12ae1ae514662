"""Resource limits of one run, put on its process right after the start; children inherit them.

Always true: a hard limit is only ever lowered, as an unprivileged process must; no core is ever written.
The kernel counts RLIMIT_NPROC per user, not per run, and not at all for uid 0: so it is set above what runs
already, a bound on a fork bomb's burst, and the count of one run is taken by `census`.
"""

import os
import resource
from functools import cache
from typing import Final

from broker import kernel
from broker.schema import Limits

RLimits = tuple[tuple[int, int], ...]
"""(RLIMIT_*, value) pairs of setrlimit(2)."""

_INFINITE: Final = resource.RLIM_INFINITY


@cache
def rlimits_for(limits: Limits) -> RLimits:
    """Return the limits of one process. Address space stays free where `memory_bytes` is 0."""
    pairs = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ]
    if limits.memory_bytes:
        pairs.append((resource.RLIMIT_AS, limits.memory_bytes))
    return tuple((kind, lowered(kind, value)) for kind, value in pairs)


def apply(pid: int, rlimits: RLimits, tasks: int) -> None:
    """Limit the process `pid` (prlimit(2)), and its user to `tasks` more than there are now. Raises OSError.

    One that has ended needs no limit; but the caller sees to it that its number cannot be another's by then.
    """
    pairs = (
        rlimits
        if os.geteuid() == 0
        else (*rlimits, (resource.RLIMIT_NPROC, lowered(resource.RLIMIT_NPROC, kernel.tasks() + tasks)))
    )
    try:
        for kind, value in pairs:
            resource.prlimit(pid, kind, (value, value))
    except ProcessLookupError:
        return


def lowered(kind: int, value: int) -> int:
    """Return `value`, or the hard limit that this process has if that is less: an unprivileged one cannot go above it."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == _INFINITE else min(value, hard)
