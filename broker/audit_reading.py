"""Reading a trail for a person: its files in order, its lines forwards and backwards, its records decoded.

Always true: memory stays bounded however long the trail is; nothing is written and no lock is kept while
reading; a file that is being appended to is read up to the end of a whole record.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from broker.audit_file import TrailFaultError, lock_to_read, unfit, unlock_read
from broker.audit_record import LINE_LIMIT_BYTES, CallLine, EventLine, Line
from broker.audit_recovery import find, find_first
from broker.audit_rotation import rotated_files
from broker.notice import warn

BLOCK_BYTES = 1024 * 1024
_LOCK_TRIES = 100


_decode_call = msgspec.json.Decoder(CallLine).decode
_decode_event = msgspec.json.Decoder(EventLine).decode
_IS_EVENT = b'"record_type":"event"'
_BEGINNING_BYTES = 96
"""What stands before `event_id` is shorter; and no text of a record holds a quote that is not escaped."""

_TS_CHARACTERS = 27
_told: set[tuple[int, int]] = set()
"""Files (device, inode) of which was said that a line is no record: once is enough."""

_foreign: set[str] = set()
"""Trails of which was said whose they are."""

Found = tuple[bytes, Line]
"""A line as it stands in the file, and what it says."""


def decode(line: bytes) -> Line | None:
    """Return the record of a line, None for a line that is none: `verify` says what is wrong with it."""
    try:
        entry: Line = _decode_event(line) if _IS_EVENT in line[:_BEGINNING_BYTES] else _decode_call(line)
        return entry if _is_time(entry.ts) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_time(ts: str) -> bool:
    """Whether a broker could have written this: who forged a line must not end those who sort and draw."""
    if len(ts) != _TS_CHARACTERS or ts[0] != "2" or ts[-1] != "Z":
        return False
    try:
        datetime.fromisoformat(ts[:-1])
    except ValueError:
        return False
    return True


class Source(NamedTuple):
    """A file to read; `held`: already open, so that it stays the same whatever its name leads to by now.

    `keeper`: of a rotated file, which may vanish, whose trail it is.
    """

    name: str
    held: int | None = None
    keeper: int | None = None


def named(paths: list[str]) -> list[Source]:
    """Return sources for files that somebody named."""
    return [Source(path) for path in paths]


def sources_of(path: str) -> list[Source]:
    """Return the files of the trail at `path`, oldest first, as they stood at one moment. Raises OSError.

    The last one is held open: a broker may rotate it away at any time.
    """
    while True:
        fd = open_to_read(path)
        try:
            own = os.fstat(fd)
            older = [Source(name, keeper=own.st_uid) for _, name in rotated_files(path)]
            _say_keeper(path, own)
            if os.path.samestat(own, os.stat(path)):
                return [*older, Source(path, fd)]
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _say_keeper(path: str, own: os.stat_result) -> None:
    # No broker of ours uses such a trail: somebody named it, or its folder is not as a start demands it.
    if own.st_uid not in (0, os.geteuid()) and path not in _foreign:
        _foreign.add(path)
        warn(f"audit log {path}: belongs to user {own.st_uid}, who may have written what stands in it")


def opened(sources: Iterable[Source]) -> Iterator[tuple[Source, int]]:
    """Yield each source with its descriptor, closed once the next one is asked for. Raises OSError.

    A rotated file that was deleted since it was listed is left out; `verify` sees whether it was the oldest.
    """
    waiting = list(sources)
    try:
        while waiting:
            source = waiting.pop(0)
            try:
                fd = _open_source(source) if source.held is None else source.held
            except FileNotFoundError:
                if source.keeper is None:
                    raise
                continue
            try:
                yield source, fd
            finally:
                os.close(fd)
    finally:
        for source in waiting:
            if source.held is not None:
                os.close(source.held)


def _open_source(source: Source) -> int:
    """Open a file by its name. Raises OSError, for a rotated one that is none of its keeper's too."""
    if source.keeper is None:
        return open_to_read(source.name)
    fd = open_to_read(source.name, os.O_NOFOLLOW)
    if problem := unfit(os.fstat(fd), source.keeper):
        os.close(fd)
        raise OSError(errno.EPERM, problem, source.name)
    return fd


def open_to_read(path: str, flags: int = 0) -> int:
    """Open one file of a trail. Raises OSError, for a directory or a fifo too."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def check_form(path: str) -> None:
    """Raise TrailFaultError if the file at `path` holds something, and no record at its beginning."""
    fd = open_to_read(path)
    try:
        beginning = os.pread(fd, BLOCK_BYTES, 0)
    finally:
        os.close(fd)
    if beginning and not beginning.startswith(b'{"seq":') and not any(map(decode, beginning.split(b"\n"))):
        raise TrailFaultError("is no audit trail: it does not begin with records")


def settled_size(fd: int) -> int:
    """Return a size at which no record is half written, unless its writer died or is stopped."""
    for _ in range(_LOCK_TRIES):
        if lock_to_read(fd):
            size = os.fstat(fd).st_size
            unlock_read(fd)
            return size
        time.sleep(0.001)
    return os.fstat(fd).st_size


def line_blocks(fd: int, start: int, size: int) -> Iterator[list[bytes]]:
    """Yield the whole lines between two offsets, without newline, in lists of about `BLOCK_BYTES`."""
    rest, offset = b"", start
    while offset < size and (block := os.pread(fd, min(BLOCK_BYTES, size - offset), offset)):
        offset += len(block)
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if (
            len(rest) > LINE_LIMIT_BYTES
        ):  # longer than any record: given out as it is, so that memory stays bounded
            lines.append(rest)
            rest = b""
        yield lines


def lines(fd: int, start: int, size: int) -> Iterator[bytes]:
    """Yield each whole line between two offsets."""
    for block in line_blocks(fd, start, size):
        yield from block


def lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """Yield each whole line before `size`, the last one first."""
    offset, rest = size, b""
    torn = True
    while offset > 0:
        start = max(offset - BLOCK_BYTES, 0)
        parts = (os.pread(fd, offset - start, start) + rest).split(b"\n")
        offset = start
        rest = parts[0] if len(parts[0]) <= LINE_LIMIT_BYTES else b""
        whole = parts[1:]
        if torn and whole:
            whole.pop()
            torn = False
        yield from reversed(whole)
    if not torn:
        yield rest


def last_line_end(fd: int, size: int) -> int:
    """Return the offset behind the last newline before `size`."""
    start = max(size - LINE_LIMIT_BYTES, 0)
    return start + os.pread(fd, size - start, start).rfind(b"\n") + 1


def _leads_to(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return True  # removed: there is nothing else to read


def offset_since(fd: int, size: int, ts: str) -> int:
    """Return where the records of time `ts` (RFC 3339, UTC) and later begin."""
    wanted = ts.encode()
    return find_first(fd, size, lambda beginning: _ts_of(beginning) >= wanted)


def _ts_of(beginning: bytes) -> bytes:
    return beginning.partition(b'"ts":"')[2][:27]


def entries(sources: list[Source], since: str | None = None) -> Iterator[Found]:
    """Yield the records of several files, oldest first, from the time `since` on. Raises OSError."""
    for source, fd in opened(sources):
        size = settled_size(fd)
        start = offset_since(fd, size, since) if since else 0
        yield from _decoded(lines(fd, start, size), source.name, fd)


def entries_backwards(sources: list[Source]) -> Iterator[Found]:
    """Yield the records of several files, newest first. Raises OSError."""
    for source, fd in opened(reversed(sources)):
        yield from _decoded(lines_backwards(fd, settled_size(fd)), source.name, fd)


def _decoded(found: Iterator[bytes], name: str, fd: int) -> Iterator[Found]:
    for line in found:
        if (entry := decode(line)) is not None:
            yield line, entry
        else:
            _tell(name, fd)


def _tell(name: str, fd: int) -> None:
    """Say which line of a file is the first that is no record."""
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) in _told:
        return
    _told.add((status.st_dev, status.st_ino))
    for number, line in enumerate(lines(fd, 0, status.st_size), 1):
        if decode(line) is None:
            warn(
                f"audit log {name}, line {number}: is no record, and left out; audit verify says what is wrong"
            )
            return


def follow(path: str, after_seq: int) -> Iterator[Found | None]:
    """Yield the records after number `after_seq` as they are written; None when there is none to read yet."""
    while True:
        # Not the newest file alone: a trail may have been rotated more than once since it was looked at.
        for source, fd in opened(sources_of(path)):
            offset = find(fd, after_seq + 1, settled_size(fd))
            while True:
                size = settled_size(fd)
                if size > offset:
                    for line, entry in _decoded(lines(fd, offset, size), source.name, fd):
                        after_seq = entry.seq
                        yield line, entry
                    offset = max(offset, last_line_end(fd, size))
                if offset >= os.fstat(fd).st_size and not _leads_to(path, fd):
                    break
                yield None
