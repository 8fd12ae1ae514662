"""git's index, as far as it says where the files that git tracks lie: their folders, and its submodules.

Always true: what is not read to its end as gitformat-index(5) describes it raises, and so does an index that leaves part of
itself to another file or names folders instead of files.
"""

from typing import NamedTuple

from broker.beneath import Budget

_STATUS_BYTES = 40
"""In front of an entry's object name: times, device, inode, mode, owner and size."""

_SUBMODULE = 0o160000
_EXTENDED = 0x4000
_ELSEWHERE = (b"link", b"sdir")
_PACE = 1024


class UnreadableError(Exception):
    """A file of a repository is not written as expected, or is too long."""


class Tracked(NamedTuple):
    """The folders that tracked files lie in, and the places of submodules, relative to the top."""

    folders: set[bytes]
    submodules: list[bytes]


def tracked(raw: bytes, name_bytes: int, budget: Budget) -> Tracked:
    """Return what an index tracks. `name_bytes`: the length of an object's name, 20 or 32.

    Raises UnreadableError, and SpentError as `budget` says.
    """
    version = int.from_bytes(raw[4:8])
    if raw[:4] != b"DIRC" or version not in (2, 3, 4):
        raise UnreadableError
    found = Tracked(set(), [])
    position, name = 12, b""
    for number in range(int.from_bytes(raw[8:12])):
        if number % _PACE == 0:
            budget.spend(1)
        start, position = position, position + _STATUS_BYTES + name_bytes
        extended = version > 2 and int.from_bytes(raw[position : position + 2]) & _EXTENDED
        position += 4 if extended else 2
        kept = 0
        if version == 4:
            cut, position = _number(raw, position)
            kept = len(name) - cut
        end = raw.find(b"\0", position)
        if end < 0 or kept < 0:
            raise UnreadableError
        name = name[:kept] + raw[position:end]
        position = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        if int.from_bytes(raw[start + 24 : start + 28]) == _SUBMODULE:
            found.submodules.append(name)
        found.folders.add(name.rpartition(b"/")[0])
    _check_rest(raw, position, len(raw) - name_bytes)
    return found


def _number(raw: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, seven bits in each byte, and the position behind it."""
    value = -1
    while position < len(raw):
        byte = raw[position]
        value = ((value + 1) << 7) + (byte & 127)
        position += 1
        if byte < 128:
            return value, position
    raise UnreadableError


def _check_rest(raw: bytes, position: int, end: int) -> None:
    """Go through the extensions, up to the checksum at `end`."""
    while position < end:
        if raw[position : position + 4] in _ELSEWHERE:
            raise UnreadableError
        position += 8 + int.from_bytes(raw[position + 4 : position + 8])
    if position != end:
        raise UnreadableError
