"""What the attacks are made of: the list that they are on, and the kernel's calls that Python lacks."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Targets = dict[str, Any]
Deed = Callable[[Targets], object]


class Attack(NamedTuple):
    """A deed, and what it meets without the confinement, as root and as an ordinary user."""

    deed: Deed
    as_root: tuple[str, ...]
    as_ordinary: tuple[str, ...]


ATTACKS: dict[str, Attack] = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] * 7
libc.syscall.restype = ctypes.c_long


def attack(*control: str, ordinary: tuple[str, ...] | str = ()) -> Callable[[Deed], Deed]:
    """Put a function on the list.

    `control`: what the same code meets without the confinement ("worked" if nothing is given), `ordinary` the same for an
    ordinary user where that differs. Where that is no "worked", something else refuses it there: a capability, the
    kernel's configuration, or a wrong argument put in on purpose, because a clock that is set or a machine that restarts
    is no test.
    """
    alone = control or ("worked",)
    other = (ordinary,) if isinstance(ordinary, str) else ordinary

    def keep(function: Deed) -> Deed:
        ATTACKS[function.__name__] = Attack(function, alone, other or alone)
        return function

    return keep


def outcome_of(deed: Deed, targets: Targets) -> str:
    """Return "worked", or the name of what stood in the way."""
    try:
        deed(targets)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except (RuntimeError, ValueError, MemoryError) as error:  # "can't start new thread" is one of them
        return type(error).__name__
    return "worked"


def call(t: Targets, name: str, *arguments: int) -> int:
    """Make the system call `name`. Raises OSError."""
    result = libc.syscall(t["numbers"][name], *arguments, *[0] * (6 - len(arguments)))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(result)


def buffer(data: bytes) -> Any:
    """Return `data` where the kernel can read and write it."""
    return ctypes.create_string_buffer(data, max(1, len(data)))


def read(path: str) -> None:
    """Read the beginning of a file. Raises OSError."""
    with Path(path).open("rb", buffering=0) as file:
        file.read(16)


def run_in_child(act: Callable[[], object]) -> None:
    """Exec in a forked child where that may be had, else here, where it must fail."""
    try:
        pid = os.fork()
    except OSError:
        act()  # if this succeeds, the list ends here and the test sees it
        raise
    if pid == 0:
        try:
            act()
        finally:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(13, "exec")
