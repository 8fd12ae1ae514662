"""Which attempts have no outcome yet, over all brokers that share the trail, and which lost their broker.

Always true: every record says in `oldest_open` how far back the oldest attempt without outcome stands, so a
start reads from there and no further, however long the trail is; an attempt is only called dead when no
process holds the lock of its session, on the file where it stands or on any later one.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from broker.audit_file import Head, TrailFile, read_chain, session_lives
from broker.audit_record import LINE_LIMIT_BYTES, BrokenChainError, CallLine, Line, decode, prev_of, seq_of
from broker.audit_rotation import rotated_files
from protocol.messages import ResultCode

DEAD = "the broker ended before the outcome of this command was recorded"
_BLOCK_BYTES = 64 * 1024
_BEGINNING_BYTES = 96


class Attempt(NamedTuple):
    """An attempt that has no outcome yet."""

    seq: int
    session: str


class OpenAttempts:
    """All attempts without outcome, oldest first.

    `ended`: the last record says that the file was rotated away.
    """

    def __init__(self) -> None:
        self.by_event: dict[str, Attempt] = {}
        self.ended = False

    def seen(self, _offset: int, line: bytes) -> None:
        """Take in a record that another broker wrote. Raises BrokenChainError."""
        self.take(decode(line))

    def take(self, record: Line) -> None:
        """Take in a record that stands in the trail now."""
        if record.record_type == "attempt":
            self.by_event[record.event_id] = Attempt(record.seq, record.session)
        elif record.record_type == "outcome":
            self.by_event.pop(record.event_id, None)
        self.ended = getattr(record, "event", "") == "rotated"

    def oldest_after(self, line: Line) -> int | None:
        """Return what `oldest_open` is once `line` stands in the trail."""
        for event_id, attempt in self.by_event.items():
            if event_id != line.event_id:
                return attempt.seq
        return line.seq if line.record_type == "attempt" else None


class Past:
    """The files in which open attempts may stand, oldest first, the trail's own last.

    Holds them open until closed.
    """

    def __init__(self, file: TrailFile) -> None:
        self._file = file
        self._older: list[int] = []

    def close(self) -> None:
        """Close the older files."""
        for fd in self._older:
            os.close(fd)
        self._older.clear()

    def read(self, attempts: OpenAttempts) -> None:
        """Find all open attempts up to the file's head. Raises BrokenChainError, OSError."""
        end = self._file.head.end
        if end == 0:
            return
        attempts.take(last := decode(_last_line(self._file.fd, end)))
        oldest = last.oldest_open
        attempts.by_event.clear()
        if oldest is None:
            return
        self.open_from(oldest)
        for fd in self._older:
            _read_from(fd, oldest, os.fstat(fd).st_size, attempts)
        _read_from(self._file.fd, oldest, end, attempts)

    def open_from(self, oldest: int) -> None:
        """Open the older files from the one that holds record `oldest` on.

        Raises OSError, BrokenChainError.
        """
        if oldest >= first_seq(self._file.fd):
            return
        names = rotated_files(self._file.path)
        starts = [first for first, _ in names if first <= oldest]
        for first, name in names[max(len(starts) - 1, 0) :]:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            self._older.append(fd)
            if first_seq(fd) != first:  # the attempts that are looked for may be in another one then
                raise BrokenChainError(f"{os.path.basename(name)} begins with another record: it was renamed")

    def lives(self, session: str) -> bool:
        """Whether the broker of that session lives, wherever in these files it still holds its lock."""
        return any(session_lives(fd, session) for fd in (*self._older, self._file.fd))

    def call_line(self, seq: int) -> CallLine | None:
        """Return the attempt with that number, None where its file was pruned.

        Raises BrokenChainError, OSError.
        """
        for fd in (*self._older, self._file.fd):
            size = os.fstat(fd).st_size
            if first_seq(fd) <= seq and (at := find(fd, seq, size)) < size:
                record = decode(line_at(fd, at))
                if record.seq == seq and isinstance(record, CallLine):
                    return record
        return None


def _read_from(fd: int, seq: int, size: int, attempts: OpenAttempts) -> None:
    start = find(fd, seq, size)
    if start < size:
        first = line_at(fd, start)
        read_chain(fd, Head(seq_of(first) - 1, prev_of(first), start), size, attempts.seen)


def _last_line(fd: int, end: int) -> bytes:
    window = 4096
    while True:
        data = os.pread(fd, min(window, end), max(end - window, 0))
        cut = data.rfind(b"\n", 0, -1)
        if cut >= 0 or window >= end:
            return data[cut + 1 : -1]
        window *= 4


def closing_line(attempt: CallLine) -> CallLine:
    """Return the outcome for an attempt whose broker died."""
    return msgspec.structs.replace(
        attempt, record_type="outcome", code=ResultCode.INTERNAL_ERROR, policy_reason=DEAD
    )


def line_at(fd: int, offset: int) -> bytes:
    """Return the line that begins at `offset`, without its newline. Raises BrokenChainError."""
    line, _, _ = os.pread(fd, LINE_LIMIT_BYTES + 1, offset).partition(b"\n")
    if len(line) > LINE_LIMIT_BYTES:
        raise BrokenChainError("a line is longer than any record")
    return line


def first_seq(fd: int) -> int:
    """Return the number of a file's first record. Raises BrokenChainError."""
    return seq_of(os.pread(fd, 32, 0))


def find(fd: int, seq: int, size: int) -> int:
    """Return the offset of the first record whose number is at least `seq`, in a file of `size` bytes.

    Raises BrokenChainError.
    """
    return find_first(fd, size, lambda line: seq_of(line) >= seq)


def find_first(fd: int, size: int, reached: Callable[[bytes], bool]) -> int:
    """Return the offset of the first line whose beginning is `reached`, which stays true once it is true."""
    low, high = 0, size
    while high - low > _BLOCK_BYTES:
        start = _line_start(fd, (low + high) // 2, high)
        if start >= high:
            break
        if not reached(os.pread(fd, _BEGINNING_BYTES, start)):
            low = start
        else:
            high = start
    while low < high and not reached(os.pread(fd, _BEGINNING_BYTES, low)):
        low = _next_line(fd, low, high)
    return low


def _line_start(fd: int, offset: int, end: int) -> int:
    if offset == 0 or os.pread(fd, 1, offset - 1) == b"\n":
        return offset
    return _next_line(fd, offset, end)


def _next_line(fd: int, offset: int, end: int) -> int:
    """Return the offset behind the first newline from `offset` on, `end` if none is before that."""
    while offset < end and (block := os.pread(fd, min(_BLOCK_BYTES, end - offset), offset)):
        if (newline := block.find(b"\n")) >= 0:
            return offset + newline + 1
        offset += len(block)
    return end
