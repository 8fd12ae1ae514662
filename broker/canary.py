"""What this kernel can do, found out by trying it, and the proof that a run is confined before the first one is.

Always true: nothing is believed for its version number: each layer is put on a thread of ours that ends
with the trial, or on a program that tries to get past it. A required layer that is missing stops the start;
a missing one that is not required is said, with what its absence lets through.
"""

import errno
import os
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from broker import kernel, landlock, seccomp
from broker.containment import InForce
from broker.meanwhile import Meanwhile
from broker.owned_fd import OwnedFd
from broker.refusal import StartupError

OUTSIDE: Final = "/proc/self/status"
"""A file that everybody may read and no profile grants."""

SHELL: Final = "/bin/sh"
ESCAPES: Final = (
    "for thread; do kill -0 $thread 2>/dev/null && exit 10; done; "
    f"read x 2>/dev/null <{OUTSIDE} && exit 11; exec {SHELL} -c 'exit 12'"
)
"""What the proof's program tries: a signal to each thread of the broker, a file that it was not granted, a second
program. One of the threads is the call's own, which is in the program's Landlock domain.
"""
REFUSED: Final = (126, 2)
"""How a shell ends whose exec was refused (sh(1): 126; dash 2 if it cannot even look for the program)."""
ESCAPED: Final = {
    10: "a signal reached the broker",
    11: "a file outside was read",
    12: "a second program was started",
}


class Facts(NamedTuple):
    """What was tried, and worked.

    `files`: Landlock denied a read. `tcp`: it denied a TCP connection. `scoped`: it takes rules for signals
    (whether they hold is the reaper's proof). `filters`: a seccomp filter denied a call. `asks`: a filter
    can ask the broker.
    """

    landlock_abi: int
    files: bool
    tcp: bool
    scoped: bool
    filters: bool
    asks: bool


def tried_in_thread(trial: Callable[[], bool]) -> bool:
    """Run `trial` in a thread of its own, which confines nobody else. An OSError means no."""

    def body() -> bool:
        try:
            kernel.set_no_new_privs()
            return trial()
        except OSError:
            return False

    return Meanwhile(body).result()


def _refuses(action: Callable[[], object], *errors: int) -> bool:
    try:
        action()
    except OSError as error:
        return error.errno in errors
    return False


def _denies_a_read(abi: int) -> bool:
    os.close(os.open(OUTSIDE, os.O_RDONLY | os.O_CLOEXEC))
    ruleset = OwnedFd(landlock.Rulesets(abi).build((), network=False))
    kernel.landlock_restrict_self(ruleset.fd)
    return _refuses(lambda: os.open(OUTSIDE, os.O_RDONLY | os.O_CLOEXEC), errno.EACCES)


def _denies_a_call() -> bool:
    kernel.seccomp_filter(seccomp.assemble({"personality": seccomp.STRANGE}))
    return _refuses(lambda: kernel.call("personality", 0xFFFFFFFF), errno.EDOM)  # no other filter answers so


def _takes_a_listener() -> bool:
    os.close(kernel.seccomp_listener(seccomp.assemble({})))
    return True


@cache
def facts() -> Facts:
    """Try each layer, once for the life of this process."""
    abi = kernel.landlock_abi()
    return Facts(
        landlock_abi=abi,
        files=abi > 0 and tried_in_thread(lambda: _denies_a_read(abi)),
        tcp=abi >= landlock.TCP_ABI,
        scoped=abi >= landlock.SCOPED_ABI,
        filters=tried_in_thread(_denies_a_call),
        asks=tried_in_thread(_takes_a_listener),
    )


MISSING: Final = {
    "files": "Landlock: files outside the jail are open to every command",
    "scoped": "Landlock's signal scoping: commands can signal other processes, and may outlive a killed broker",
    "filters": "seccomp: commands can open sockets, start programs and make dangerous system calls",
    "asks": "seccomp's questions: limits come late, and no command can change file modes or times",
}
"""Layer of `Facts` → what is missing without it."""


def layers_in_force(mode: str, warn: Callable[[str], None] | None) -> InForce:
    """Return what is put on under `[containment] mode`. Raises StartupError if "required" and less than
    everything.
    """
    found = facts()
    if mode == "off":
        if warn:
            warn("WARNING: containment is OFF: every command runs with all rights of this user")
        return InForce(found.landlock_abi, found.scoped, files=False, filters=False, asks=False)
    missing = [text for layer, text in MISSING.items() if not getattr(found, layer)]
    if mode == "required" and missing:
        raise StartupError(
            f"this kernel cannot confine commands; missing: {'; '.join(missing)}. `hardened-terminal-mcp doctor` says "
            'more; [containment] mode = "best-effort" goes on without'
        )
    if warn:
        for text in missing:
            warn(f"WARNING: containment is incomplete; missing: {text}")
    return InForce(found.landlock_abi, found.scoped, found.files, found.filters, found.filters and found.asks)
