"""Is the trail what was written? Names the first line that was changed, removed, moved or inserted, and why.

Always true: every byte of every file is covered; memory stays bounded. What the chain cannot show by itself
is a tail that was cut off, or a trail that was written anew from some line on: for that a hash that was noted
elsewhere is needed (`head`), which must stand in the chain.
"""

import os
from hashlib import sha256

import msgspec

from broker.audit_reading import (
    Source,
    last_line_end,
    line_blocks,
    lines_backwards,
    open_to_read,
    opened,
    settled_size,
)
from broker.audit_record import (
    GENESIS,
    BrokenChainError,
    check,
    check_first,
    check_torn,
    decode,
    seq_of,
)


class Fault(msgspec.Struct, frozen=True):
    """The first line that is not what was written. Lines count from 1."""

    file: str
    line: int
    why: str


class Verdict(msgspec.Struct):
    """What was found. `head` is the last record's hash: note it elsewhere for the next time."""

    records: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_prev: str = GENESIS
    head: str = GENESIS
    torn_bytes: int = 0
    wanted: str | None = None
    wanted_seq: int | None = None
    fault: Fault | None = None

    @property
    def sound(self) -> bool:
        """Whether everything that could be checked is as it was written."""
        return self.fault is None and (self.wanted is None or self.wanted_seq is not None)


def verify(sources: list[Source], head: str | None = None) -> Verdict:
    """Verify files that follow each other, oldest first. Stops at the first fault. Raises OSError.

    Where a broker deletes its oldest files meanwhile, it begins anew at the first one that is left.
    """
    verdict = _nothing_yet(head)
    read_from = _read_from(sources[-1]) if sources else 0
    following = 0
    for source, fd in opened(sources):
        number = sources.index(source, following)
        if number > following and _pruned(sources[:number]):
            verdict = _nothing_yet(head)
        following = number + 1
        is_last = source is sources[-1]
        _File(source, fd, verdict, read_from).verify(is_last=is_last, is_only=len(sources) == 1)
        if verdict.fault is not None:
            break
    return verdict


def _read_from(last: Source) -> int:
    """Return from which record on a start decodes a trail that ends in this file: its oldest attempt without outcome.

    It decodes the last record only where there is none; all of them could be decoded here too, at half the speed.
    """
    fd = open_to_read(last.name) if last.held is None else os.dup(last.held)
    try:
        lines = lines_backwards(fd, last_line_end(fd, os.fstat(fd).st_size))
        record = decode(next(lines, b""))
    except BrokenChainError:
        return 0
    finally:
        os.close(fd)
    return record.seq if record.oldest_open is None else record.oldest_open


def _nothing_yet(head: str | None) -> Verdict:
    return Verdict(wanted=head, wanted_seq=0 if head == GENESIS else None)


def _pruned(older: list[Source]) -> bool:
    """Whether a file that vanished was one of the oldest, as a broker deletes them: none before it is left."""
    return not any(os.path.lexists(source.name) for source in older)


class _File:
    """One file on its way through `verify`."""

    def __init__(self, source: Source, fd: int, verdict: Verdict, read_from: int) -> None:
        self._source = source
        self._read_from = read_from
        self._fd = fd
        self._verdict = verdict
        self._line = 0
        self._offset = 0

    def verify(self, *, is_last: bool, is_only: bool) -> None:
        try:
            try:
                self._go_on(is_last=is_last, is_only=is_only)
            except BrokenChainError:
                # A torn line may have been set aside and written over while it was read: once more from there.
                self._go_on(is_last=is_last, is_only=is_only)
        except BrokenChainError as error:
            self._verdict.fault = Fault(self._source.name, self._line + 1, str(error))
        self._verdict.bytes += self._offset

    def _go_on(self, *, is_last: bool, is_only: bool) -> None:
        size = settled_size(self._fd)
        for block in line_blocks(self._fd, self._offset, size):
            self._check(block)
        if self._offset < size:
            self._take_torn(os.pread(self._fd, size - self._offset, self._offset), is_last=is_last)
        if self._line == 0 and not is_only:
            raise BrokenChainError("it holds no record, and other files of the trail stand beside it")

    def _check(self, block: list[bytes]) -> None:
        if not block:
            return
        if self._line == 0:
            self._begin(block[0])
        # A block at once is faster than line by line; where it is not whole, line by line to the fault.
        hashes = [sha256(line[:-75] + b"}").hexdigest() for line in block]
        prevs = [self._verdict.head, *hashes]
        ends = "".join(
            [f',"prev":"{prev}","hash":"{own}"}}' for prev, own in zip(prevs, hashes, strict=False)]
        )
        if b"".join([line[-149:] for line in block]) == ends.encode() and self._are_records(block):
            self._take(block, hashes)
            return
        for line in block:
            own = check(line, self._verdict.last_seq + 1, self._verdict.head.encode())
            if self._verdict.last_seq + 1 >= self._read_from:
                decode(line)
            self._take([line], [own.decode()])

    def _are_records(self, block: list[bytes]) -> bool:
        """Whether the lines have the numbers that should stand here, and a start can decode those that it reads."""
        first = self._verdict.last_seq + 1
        begins = [b'{"seq":%d,' % seq for seq in range(first, first + len(block))]
        try:
            for line in block[max(self._read_from - first, 0) :]:
                decode(line)
        except BrokenChainError:
            return False
        return all(map(bytes.startswith, block, begins))

    def _take(self, block: list[bytes], hashes: list[str]) -> None:
        verdict = self._verdict
        if verdict.wanted in hashes:
            verdict.wanted_seq = verdict.last_seq + hashes.index(verdict.wanted) + 1
        verdict.records += len(block)
        verdict.last_seq += len(block)
        verdict.head = hashes[-1]
        self._line += len(block)
        self._offset += sum(map(len, block)) + len(block)

    def _begin(self, line: bytes) -> None:
        """Take in how the file begins: as one may, and with the number that its name has."""
        verdict = self._verdict
        if verdict.records:
            check(line, verdict.last_seq + 1, verdict.head.encode())
        else:
            check(line, None, None)
        before, first = check_first(line), seq_of(line)
        if self._source.keeper is not None and first != int(self._source.name.rpartition(".")[2]):
            raise BrokenChainError(f"the file's name is not that of one that begins with record {first}")
        if verdict.records == 0:
            verdict.first_prev = verdict.head = before
            verdict.first_seq, verdict.last_seq = first, first - 1
            if verdict.wanted == before:
                verdict.wanted_seq = first - 1

    def _take_torn(self, rest: bytes, *, is_last: bool) -> None:
        """Accept the beginning of the next record, which a broker leaves that is killed while it writes."""
        if not is_last:
            raise BrokenChainError("what follows the last whole record is not the beginning of a record")
        check_torn(rest, self._verdict.last_seq + 1)
        self._verdict.torn_bytes = len(rest)
