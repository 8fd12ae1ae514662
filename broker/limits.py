"""Resource limits of one run, put on its process right after the start; children inherit them.

Always true: a hard limit is only ever lowered, as an unprivileged process must; no core is ever written.
The kernel counts RLIMIT_NPROC per user, not per run, and not at all for uid 0: so it is set above what runs
already, a bound on a fork bomb's burst, and the exact count is kept by `execution`.
"""

import os
import resource
from typing import Final

from broker.schema import Limits

RLimits = tuple[tuple[int, int], ...]
"""(RLIMIT_*, value) pairs of setrlimit(2)."""

_INFINITE: Final = resource.RLIM_INFINITY


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
    return tuple(pairs)


def apply(pid: int, rlimits: RLimits, processes: int) -> None:
    """Limit the process `pid` (prlimit(2)); one that has ended needs no limit. Raises OSError.

    The caller must not reap `pid` before this returns: its number could be another process's by then.
    """
    pairs = rlimits if os.geteuid() == 0 else (*rlimits, (resource.RLIMIT_NPROC, _tasks_now() + processes))
    try:
        for kind, value in pairs:
            lowered = _lowered(kind, value)
            resource.prlimit(pid, kind, (lowered, lowered))
    except ProcessLookupError:
        return


def _lowered(kind: int, value: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return value if hard == _INFINITE else min(value, hard)


def _tasks_now() -> int:
    """Return how many tasks exist on the machine, so at least as many as this user has (proc_loadavg(5))."""
    with open("/proc/loadavg", "rb", buffering=0) as facts:
        return int(facts.read(128).split()[3].split(b"/")[1])
