"""Reading a trail for a person: its files in order, its lines forwards and backwards, its records decoded.

Always true: memory stays bounded however long the trail is; nothing is written and no lock is kept while
reading; a file that is being appended to is read up to the end of a whole record; what was deleted before it could be
read is said. Times are what the clock said, which may have been set back: records are in the order of their numbers.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from broker import audit_record
from broker.audit_file import TrailFaultError, is_being_written, unfit
from broker.audit_record import LINE_LIMIT_BYTES, BrokenChainError, Line
from broker.audit_recovery import first_seq
from broker.audit_rotation import rotated_files
from broker.notice import warn

BLOCK_BYTES = LINE_LIMIT_BYTES + 1
"""The longest line that a record may be, and its newline."""

_LOOKS = 100


_TS_FIELD = b',"ts":"'
_BEGINNING_BYTES = 96
"""What stands before `event_id` is shorter; and no text of a record holds a quote that is not escaped."""

_TS_CHARACTERS = 27
_TS_SEPARATORS = "--T::."
_FIRST_TS = "1970"
"""No clock of Linux is before that year; one that was never set stands in it."""

_told: set[tuple[int, int]] = set()
"""Files (device, inode) of which was said that a line is no record: once is enough."""

_foreign: set[str] = set()
"""Trails of which was said whose they are."""

_gone: set[tuple[str, int, int]] = set()
"""Records (trail, first and last number) of which was said that they were deleted: a trail may be read twice."""

Found = tuple[bytes, Line]
"""A line as it stands in the file, and what it says."""


def decode(line: bytes) -> Line | None:
    """Return the record of a line, None for a line that is none: `verify` says what is wrong with it."""
    try:
        entry = audit_record.decode(line)
    except BrokenChainError:
        return None
    return entry if _is_time(entry.ts) else None


def _is_time(ts: str) -> bool:
    """Whether a broker could have written this: who forged a line must not end those who sort, draw and print."""
    # `fromisoformat` alone takes any character between date and time, weeks, and zones.
    if (
        len(ts) != _TS_CHARACTERS
        or ts[4:20:3] != _TS_SEPARATORS
        or not ts[20:26].isdigit()
        or ts[26] != "Z"
        or ts < _FIRST_TS
    ):
        return False
    try:
        datetime.fromisoformat(ts[:-1])
    except ValueError:
        return False
    return True


class Source(NamedTuple):
    """A file to read; `held`: already open, so that it stays the same whatever its name leads to by now; `size`: up to where.

    `keeper`: of a rotated file, which may vanish, whose trail it is; `first` and `last`: the numbers of its records.
    """

    name: str
    held: int | None = None
    size: int | None = None
    keeper: int | None = None
    first: int = 0
    last: int = 0


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
            older = _older(path, own.st_uid, fd)
            _say_keeper(path, own)
            if os.path.samestat(own, os.stat(path)):
                return [*older, Source(path, fd, settled_size(fd))]
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _older(path: str, keeper: int, fd: int) -> list[Source]:
    found = rotated_files(path)
    ends = [first - 1 for first, _ in found[1:]] + [number_of_first(fd) - 1]
    return [
        Source(name, keeper=keeper, first=first, last=max(last, first))
        for (first, name), last in zip(found, ends, strict=False)
    ]


def number_of_first(fd: int) -> int:
    """Return the number of a file's first record, 0 if it has none."""
    try:
        return first_seq(fd)
    except BrokenChainError:
        return 0


def say_deleted(path: str, first: int, last: int) -> None:
    """Say that records were deleted before they could be read."""
    which = f"record {first} was" if first == last else f"records {first} to {last} were"
    warn(f"audit log {path}: {which} deleted meanwhile, and could not be read")


def _say_keeper(path: str, own: os.stat_result) -> None:
    # No broker of ours uses such a trail: somebody named it, or its folder is not as a start demands it.
    if own.st_uid not in (0, os.geteuid()) and path not in _foreign:
        _foreign.add(path)
        warn(f"audit log {path}: belongs to user {own.st_uid}, who may have written what stands in it")


def again(sources: list[Source]) -> list[Source]:
    """Return the same files, to be read once more. Raises OSError."""
    return [
        source if source.held is None else source._replace(held=os.dup(source.held)) for source in sources
    ]


def opened(
    sources: Iterable[Source], gone: Callable[[Source], object] = lambda _: None
) -> Iterator[tuple[Source, int]]:
    """Yield each source with its descriptor, closed once the next one is asked for. Raises OSError.

    A rotated file that was deleted since it was listed is given to `gone` and left out.
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
                gone(source)
                continue
            try:
                yield source, fd
            finally:
                os.close(fd)
    finally:
        for source in waiting:
            if source.held is not None:
                os.close(source.held)


def opened_or_said(sources: list[Source]) -> Iterator[tuple[Source, int]]:
    """Yield what `opened` does, and say at the end which records were deleted before they could be read. Raises OSError."""
    gone: list[Source] = []
    try:
        yield from opened(sources, gone.append)
    finally:
        path = next((source.name for source in sources if source.keeper is None), "")
        for run in _runs(gone):
            if (path, *run) not in _gone:
                _gone.add((path, *run))
                say_deleted(path, *run)


def _runs(gone: list[Source]) -> list[tuple[int, int]]:
    """Return the records of files that followed each other as one run: first and last number."""
    runs: list[tuple[int, int]] = []
    for source in sorted(gone, key=lambda source: source.first):
        if runs and runs[-1][1] + 1 == source.first:
            runs[-1] = (runs[-1][0], source.last)
        else:
            runs.append((source.first, source.last))
    return runs


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
    for _ in range(_LOOKS):
        size = os.fstat(fd).st_size
        # had it been half of a record, it would be larger, or smaller again, once its writer is out
        if not is_being_written(fd) and os.fstat(fd).st_size == size:
            break
        time.sleep(0.001)
    return size


def end_of(source: Source, fd: int) -> int:
    """Return up to where a source is read: as far as it went when it was listed, or as it goes now."""
    return settled_size(fd) if source.size is None else source.size


def line_blocks(fd: int, start: int, size: int) -> Iterator[list[bytes]]:
    """Yield the whole lines between two offsets, without newline, in lists of about `BLOCK_BYTES`."""
    for _, block in placed_blocks(fd, start, size):
        yield block


def placed_blocks(fd: int, start: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the same, each list with the offset of its first line."""
    offset = start
    # Each read begins with a whole line: of a torn one, another broker may have taken the beginning away meanwhile.
    while offset < size and (block := os.pread(fd, min(BLOCK_BYTES, size - offset), offset)):
        found = block.split(b"\n")
        rest = found.pop()
        if not found:
            if len(block) < BLOCK_BYTES:
                return
            found, rest = (
                [rest],
                b"",
            )  # longer than any record: given out as it is, so that memory stays bounded
        yield offset, found
        offset += len(block) - len(rest)


def lines(fd: int, start: int, size: int) -> Iterator[bytes]:
    """Yield each whole line between two offsets."""
    for block in line_blocks(fd, start, size):
        yield from block


def lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """Yield each whole line before `size`, the last one first."""
    for block in blocks_backwards(fd, size):
        yield from block


def blocks_backwards(fd: int, size: int) -> Iterator[list[bytes]]:
    """Yield the same in lists of about `BLOCK_BYTES`."""
    offset, rest = size, b""
    torn = True
    while offset > 0:
        start = max(offset - BLOCK_BYTES, 0)
        parts = os.pread(fd, offset - start, start).split(b"\n")
        parts[-1] += rest
        offset = start
        rest = parts[0] if len(parts[0]) <= LINE_LIMIT_BYTES else b""
        whole = parts[1:]
        if torn and whole:
            whole.pop()
            torn = False
        yield whole[::-1]
    if not torn:
        yield [rest]


def last_line_end(fd: int, size: int) -> int:
    """Return the offset behind the last newline before `size`."""
    start = max(size - LINE_LIMIT_BYTES, 0)
    return start + os.pread(fd, size - start, start).rfind(b"\n") + 1


def entries(sources: list[Source], since: str | None = None) -> Iterator[Found]:
    """Yield the records of several files, oldest first, of the time `since` (RFC 3339, UTC) and later. Raises OSError."""
    yield from _entries(sources, _forwards, since)


def entries_backwards(sources: list[Source], since: str | None = None) -> Iterator[Found]:
    """Yield the records of several files, newest first, of the time `since` and later. Raises OSError."""
    yield from _entries(sources[::-1], blocks_backwards, since)


def _forwards(fd: int, size: int) -> Iterator[list[bytes]]:
    return line_blocks(fd, 0, size)


def _entries(
    sources: list[Source], blocks: Callable[[int, int], Iterator[list[bytes]]], since: str | None
) -> Iterator[Found]:
    for source, fd in opened_or_said(sources):
        for block in blocks(fd, end_of(source, fd)):
            yield from decoded(_later(block, since.encode()) if since else block, source.name, fd)


def _later(block: list[bytes], since: bytes) -> list[bytes]:
    """Return the lines that are not earlier than `since`, those too whose time is not where a broker writes it.

    Nothing is skipped unread: there are clocks that are set back. Decoding it all would take several times as long.
    """
    return [
        line
        for line in block
        if (at := line.find(_TS_FIELD, 0, _BEGINNING_BYTES)) < 0 or line[at + 7 : at + 34] >= since
    ]


def decoded(block: Iterable[bytes], name: str, fd: int) -> Iterator[Found]:
    """Yield the records of lines of a file; what is none is said, the first time."""
    for line in block:
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
                f"audit log {name}, line {number}: is no record, and left out; audit verify says if it was changed"
            )
            return
