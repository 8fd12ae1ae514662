"""Which attempts of a trail have no outcome.

Always true: every record says where the oldest such attempt stands, so it is read from there to the end and no further
back; no more than `_MOST` are known, the newest, whatever stands in the trail. Only the beginnings of lines are looked
at, as brokers write them: where somebody forged one, the worst is an attempt that is shown beside its outcome, or not.
"""

from broker.audit_reading import Source, again, end_of, entries_backwards, line_blocks, opened_or_said
from broker.audit_record import BrokenChainError, Line
from broker.audit_recovery import find

_MOST = 10_000
_BEGINNING_BYTES = 200
_ID_FIELD = b',"event_id":"'
_ATTEMPT = b'"record_type":"attempt"'


class Unended:
    """The attempts that have no outcome in some files. The files can still be read afterwards. Raises OSError."""

    def __init__(self, sources: list[Source]) -> None:
        self._ids: dict[bytes, None] = {}
        oldest = next((entry.oldest_open for _, entry in entries_backwards(again(sources))), None)
        if oldest is not None:
            self._read(sources, oldest)

    def _read(self, sources: list[Source], oldest: int) -> None:
        newer = [source for source in sources if not 0 < source.last < oldest]
        for source, fd in opened_or_said(again(newer)):
            size = end_of(source, fd)
            for block in line_blocks(fd, _offset_of(fd, oldest, size), size):
                for line in block:
                    self._take(line[:_BEGINNING_BYTES])

    def _take(self, beginning: bytes) -> None:
        before, _, rest = beginning.partition(_ID_FIELD)
        name = rest.partition(b'"')[0]
        if before.endswith(_ATTEMPT):
            self._ids[name] = None
            if len(self._ids) > _MOST:
                del self._ids[next(iter(self._ids))]
        else:
            self._ids.pop(name, None)

    def leaves_out(self, entry: Line) -> bool:
        """Whether a record is an attempt whose outcome is a row of its own."""
        return entry.record_type == "attempt" and entry.event_id.encode() not in self._ids


def _offset_of(fd: int, seq: int, size: int) -> int:
    try:
        return find(fd, seq, size)
    except BrokenChainError:  # where lines were changed, the numbers lead nowhere
        return 0
