"""What this machine can do to contain a command: one finding a layer, tried now, for a person or a program to read.

Always true: nothing is changed and nothing of a policy is run; a layer counts as present only if its trial
held.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker import canary, kernel, landlock
from broker.birth import spawn_frontend
from broker.canary import Facts
from broker.frontend_process import Child
from broker.nursery import Nursery
from broker.refusal import StartupError

_NEWER_KERNEL: Final = "use Linux 6.12 or later with landlock in the lsm= list (CONFIG_LSM)"
_FORBIDDEN: Final = (
    "somebody forbids it, most likely a container runtime's seccomp profile: let landlock_create_ruleset(2), "
    "landlock_add_rule(2) and landlock_restrict_self(2) through"
)
_SECCOMP: Final = (
    "use a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that lets seccomp(2) through"
)


class Finding(NamedTuple):
    """One layer. `needed`: `[containment] mode = "required"` refuses to start without it."""

    layer: str
    present: bool
    needed: bool
    without: str
    advice: str


def _reaped(facts: Facts) -> bool:
    """Try the nursery's own proof: a process in a scoped domain cannot signal us."""
    if not facts.scoped:
        return False
    ruleset_fd = landlock.Rulesets(facts.landlock_abi).scope_only()
    try:
        Nursery(ruleset_fd, None, None, _nothing).close()
    except StartupError:
        return False
    finally:
        os.close(ruleset_fd)
    return True


def _nothing() -> None:
    """No thread is needed besides."""


def _sheds_capabilities() -> bool:
    def trial() -> bool:
        kernel.drop_bounding_capabilities()
        kernel.drop_capabilities()
        with open("/proc/thread-self/status", encoding="ascii") as status:
            return all(
                int(line.split()[1], 16) == 0 for line in status if line.startswith(("CapEff", "CapPrm"))
            )

    return canary.tried_in_thread(trial)


_CHECKS: Final[tuple[tuple[str, Callable[[Facts], bool], bool, str, str], ...]] = (
    (
        "no_new_privs and no capability",
        lambda _: _sheds_capabilities(),
        True,
        "a set-uid program, or root's own rights, would be a way out",
        "run the broker as an ordinary user",
    ),
    (
        "Landlock files (ABI {abi})",
        lambda facts: facts.files,
        True,
        "commands could read and write every file of this user",
        _NEWER_KERNEL,
    ),
    (
        "Landlock TCP (ABI 4)",
        lambda facts: facts.tcp,
        False,
        "no second wall behind the socket filter",
        _NEWER_KERNEL,
    ),
    (
        "Landlock signal scoping (ABI 6)",
        lambda facts: facts.scoped,
        True,
        "commands could signal this user's other processes, and calls could reach each other",
        _NEWER_KERNEL,
    ),
    (
        "reaper",
        _reaped,
        True,
        "daemons that a command leaves would outlive it, and a killed broker",
        f"{_NEWER_KERNEL}; /bin/sh must be there",
    ),
    (
        "seccomp filters",
        lambda facts: facts.filters,
        True,
        "commands could open sockets, start any program, change modes and times, trace, mount",
        _SECCOMP,
    ),
    (
        "seccomp questions (Linux 5.5)",
        lambda facts: facts.asks,
        True,
        "limits would come after the start, and no command could change a file's mode or times",
        _SECCOMP,
    ),
)
"""Layer, whether it is there, whether `required` needs it, what its absence lets through, what to do
about it.
"""


def findings() -> tuple[Finding, ...]:
    """Try every layer and say what was found."""
    facts = canary.facts()
    kernel_remedy = _FORBIDDEN if kernel.landlock_error() == errno.EPERM else _NEWER_KERNEL
    return tuple(
        Finding(
            layer.format(abi=facts.landlock_abi),
            present(facts),
            required,
            without,
            remedy.replace(_NEWER_KERNEL, kernel_remedy),
        )
        for layer, present, required, without, remedy in _CHECKS
    )


def try_frontend() -> None:
    """Start a frontend that imports what serving takes, and wait for its end. Raises StartupError where one would not serve."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        trial = (sys.executable, "-I", "-c", "import frontend.mcp_server")
        child = Child(*spawn_frontend(trial, {"LANG": "C.UTF-8"}, (null, null, null), "best-effort"))
    finally:
        os.close(null)
    if status := child.wait():
        raise StartupError(
            f"a frontend would not serve here: its Python ends with {status}; look at `ulimit -a`"
        )


def lines(found: Iterable[Finding]) -> list[str]:
    """Return one line a layer for a terminal."""
    return [_line(finding) for finding in found]


def _line(finding: Finding) -> str:
    if finding.present:
        return f"ok       {finding.layer}"
    state = "MISSING " if finding.needed else "absent  "
    return f"{state} {finding.layer}: without it {finding.without}; {finding.advice}"


def data(found: Iterable[Finding]) -> list[dict[str, object]]:
    """Return the findings for JSON."""
    return [finding._asdict() for finding in found]


def sound(found: Iterable[Finding]) -> bool:
    """Return whether `mode = "required"` can start here."""
    return all(finding.present for finding in found if finding.needed)
