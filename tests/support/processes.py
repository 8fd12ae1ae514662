"""A look at the machine's processes through /proc: who descends from whom, and what is left.

A process is recognised by its id or by a marker in its command line, never by its program's name: other tests run
beside this one.
"""

import os
import secrets
from pathlib import Path

from tests.support.waiting import eventually

_PARENT = 1
"""Field of /proc/PID/stat after the program's name in brackets: proc_pid_stat(5), ppid."""


def unique_seconds() -> str:
    """Return a duration of about five minutes that no other process has in its command line."""
    return f"300.{secrets.randbelow(10**12):012d}"


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_PARENT])


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> set[int]:
    """Return the ids of the direct children of `pid`, zombies included."""
    return {other for other in _all() if _parent(other) == pid}


def descendants(pid: int) -> set[int]:
    """Return the ids of everything that descends from `pid`, as far as parents still live."""
    parents = {other: _parent(other) for other in _all()}
    found: set[int] = set()
    added = {pid}
    while added:
        added = {child for child, parent in parents.items() if parent in added} - found
        found |= added
    return found


def command_line(pid: int) -> list[str]:
    """Return the arguments of `pid`; empty for a zombie and for a process that is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0") if raw else []


def marked(marker: str) -> set[int]:
    """Return the ids of living processes with `marker` as a word of their command line.

    A whole word: `hardened-terminal-mcp run "sleep MARKER"` has it only as a part of one.
    """
    return {pid for pid in _all() if marker in command_line(pid)}


def wait_until_running(marker: str) -> None:
    """Return once a process with `marker` lives."""
    eventually(lambda: marked(marker), f"a process with {marker}")


def wait_until_nothing_left(marker: str, *, bound_s: float = 2.0) -> None:
    """Return once no process with `marker` lives."""
    eventually(lambda: not marked(marker), f"no process with {marker}", bound_s=bound_s)


def alive(pid: int) -> bool:
    """Whether `pid` is a process that is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def environment(pid: int) -> dict[str, str]:
    """Return the environment that `pid` was started with. Raises PermissionError where it may not be read."""
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def mapped_files(pid: int) -> set[str]:
    """Return the paths of the files that `pid` has mapped, its extension modules among them."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) > 5}


def peak_memory_bytes(pid: int) -> int:
    """Return the largest resident set that `pid` ever had: VmHWM of proc_pid_status(5)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} reports no VmHWM")
