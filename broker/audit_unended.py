"""Which attempts of a trail have no outcome.

Always true: every record says where the oldest such attempt stands, so it is read from there to the end and no further
back; no more than `_MOST` are known, the newest, whatever stands in the trail.
"""

from broker.audit_reading import (
    Source,
    again,
    decoded,
    end_of,
    entries_backwards,
    line_blocks,
    opened_or_said,
)
from broker.audit_record import BrokenChainError, Line
from broker.audit_recovery import find

_MOST = 10_000
_ID_CHARACTERS = 64
"""Twice as many as a broker writes."""


class Unended:
    """The attempts that have no outcome in some files. The files can still be read afterwards. Raises OSError."""

    def __init__(self, sources: list[Source]) -> None:
        self._ids: dict[str, None] = {}
        oldest = next((entry.oldest_open for _, entry in entries_backwards(again(sources))), None)
        if oldest is not None:
            self._read(sources, oldest)

    def _read(self, sources: list[Source], oldest: int) -> None:
        newer = [source for source in sources if not 0 < source.last < oldest]
        for source, fd in opened_or_said(again(newer)):
            size = end_of(source, fd)
            for block in line_blocks(fd, _offset_of(fd, oldest, size), size):
                for _, entry in decoded(block, source.name, fd):
                    self._take(entry)

    def _take(self, entry: Line) -> None:
        name = entry.event_id[:_ID_CHARACTERS]
        if entry.record_type == "attempt":
            self._ids[name] = None
            if len(self._ids) > _MOST:
                del self._ids[next(iter(self._ids))]
        elif entry.record_type == "outcome":
            self._ids.pop(name, None)

    def leaves_out(self, entry: Line) -> bool:
        """Whether a record is an attempt whose outcome is a row of its own."""
        return entry.record_type == "attempt" and entry.event_id[:_ID_CHARACTERS] not in self._ids


def _offset_of(fd: int, seq: int, size: int) -> int:
    try:
        return find(fd, seq, size)
    except BrokenChainError:  # where lines were changed, the numbers lead nowhere
        return 0
