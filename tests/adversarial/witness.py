"""The kernel's own account of what a process and its descendants did, read from a fanotify group (fanotify(7)).

Always true: it sees what ran, what was written and what was opened outside the jail even where no output shows it.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_EVENT = struct.Struct("=IBBHQii")  # struct fanotify_event_metadata
_BUFFER_BYTES = 256 * 1024
_ACCESS, _MODIFY, _OPEN, _OPEN_EXEC, _OVERFLOW = 0x1, 0x2, 0x20, 0x1000, 0x4000
_LOADERS = ("/ld-linux", "/ld-")
_UNLINKED = " (deleted)"


class Act(NamedTuple):
    """One thing that process `pid` did to `path`."""

    kind: str
    path: str
    pid: int


def _decoded(block: bytes) -> Iterator[Act]:
    while block:
        length, _, _, _, mask, fd, pid = _EVENT.unpack_from(block)
        block = block[length:]
        if mask & _OVERFLOW:
            raise AssertionError("the kernel's queue of events overflowed: something was not seen")
        path = os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)
        for kind, bit in (("ran", _OPEN_EXEC), ("wrote", _MODIFY), ("opened", _OPEN), ("read", _ACCESS)):
            if mask & bit:
                yield Act(kind, path.removesuffix(_UNLINKED), pid)


class Witness:
    """Reads and empties one group's queue."""

    def __init__(self, group_fd: int) -> None:
        self._fd = group_fd

    def close(self) -> None:
        """End the watch."""
        os.close(self._fd)

    def acts(self) -> list[Act]:
        """Return what happened since the last look."""
        found: dict[Act, None] = {}
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self._fd, _BUFFER_BYTES):
                found.update(dict.fromkeys(_decoded(block)))
        return list(found)


def is_loader(path: str) -> bool:
    """Whether `path` is the dynamic loader, which the kernel opens to run any program."""
    return any(part in path for part in _LOADERS) and ".so" in path
