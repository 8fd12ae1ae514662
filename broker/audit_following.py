"""Following a trail as it is written, through rotations, deletions, and a trail that was begun anew.

Always true: the place is known by number and hash of the last record that was read, never by an offset in a file that
may be another by now; what was deleted before it could be read, and that another trail stands there, is said.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from broker.audit_reading import (
    Found,
    Source,
    decoded,
    number_of_first,
    opened,
    placed_blocks,
    say_deleted,
    settled_size,
    sources_of,
)
from broker.audit_record import BrokenChainError
from broker.audit_recovery import find, line_at
from broker.notice import warn

_HASH_AT = -66


class Place(NamedTuple):
    """Where a reader stands: behind the record with this number and this hash, as its line says; 0: before the first."""

    seq: int = 0
    hash: bytes = b""


def place_of(found: Found) -> Place:
    """Return the place behind a record."""
    line, entry = found
    return Place(entry.seq, line[_HASH_AT:])


def follow(path: str, place: Place) -> Iterator[Found | None]:
    """Yield the records after `place` as they are written; None when there is none to read yet. Raises OSError."""
    return _Reader(path, place).read()


class _Reader:
    def __init__(self, path: str, place: Place) -> None:
        self._path = path
        self._place = place

    def read(self) -> Iterator[Found | None]:
        while True:
            if not self._is_there():
                warn(f"audit log {self._path}: another trail stands there now, shown from its beginning on")
                self._place = Place()
            # Not the newest file alone: a trail may have been rotated more than once since it was looked at.
            for source, fd in opened(self._sources()):
                yield from self._read_file(source.name, fd)

    def _read_file(self, name: str, fd: int) -> Iterator[Found | None]:
        """Yield what is new in a file until the path leads to another one, or this one lost what was read."""
        offset = self._begin(fd)
        while (size := settled_size(fd)) >= offset:
            before = offset
            for start, block in placed_blocks(fd, offset, size):
                offset = start
                for line in block:
                    offset += len(line) + 1
                    for found in decoded((line,), name, fd):
                        self._place = place_of(found)
                        yield found
            offset = min(offset, size)  # a line without end is read in pieces
            if offset == before:
                if not _leads_to(self._path, fd):
                    break
                yield None

    def _begin(self, fd: int) -> int:
        """Return the offset at which the records behind the place begin; say how many there are no more."""
        if not self._place.seq:
            return 0
        size = settled_size(fd)
        if (offset := _behind(fd, self._place)) is not None:
            return offset
        first = number_of_first(fd)
        if first <= self._place.seq:
            return size  # an empty file, or an older one whose lines were changed
        if first > self._place.seq + 1:
            say_deleted(self._path, self._place.seq + 1, first - 1)
        return 0

    def _sources(self) -> list[Source]:
        """Return the files that do not end before the place."""
        return [source for source in sources_of(self._path) if not 0 < source.last < self._place.seq]

    def _is_there(self) -> bool:
        """Whether the record of the place is in these files, or all of them were written after it."""
        if not self._place.seq:
            return True
        oldest = 0
        for _, fd in opened(self._sources()):
            oldest = oldest or number_of_first(fd)
            if _behind(fd, self._place) is not None:
                return True
        return oldest == 0 or oldest > self._place.seq


def _behind(fd: int, place: Place) -> int | None:
    """Return the offset behind the record of a place, None where the file does not have it."""
    size = settled_size(fd)
    try:
        at = find(fd, place.seq, size)
        line = line_at(fd, at)
    except BrokenChainError:  # where lines were changed, the numbers lead nowhere
        return _looked_up(fd, size, place)
    return at + len(line) + 1 if line[_HASH_AT:] == place.hash else None


def _looked_up(fd: int, size: int, place: Place) -> int | None:
    for start, block in placed_blocks(fd, 0, size):
        offset = start
        for line in block:
            offset += len(line) + 1
            if line[_HASH_AT:] == place.hash:
                return offset
    return None


def _leads_to(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return True  # removed: there is nothing else to read
