"""Which jail a record's session had: from the `start` records, which name jail and policy of each broker that began.

Always true: memory is bounded by the sessions of one jail, of which only so many are kept, the newest; a whole line is
decoded only if it is a start.
"""

import os

from broker.audit_reading import decode, end_of, line_blocks, opened_or_said, sources_of
from broker.audit_record import EventLine, Line
from broker.notice import warn

SHORT = 8
"""Characters at the end of a session's name that tell it from others: they are random."""

_SESSION_CHARACTERS = 100
"""Twice as many as a broker writes."""

_SESSIONS = 100_000
_NAMED = 5
"""Jails that are named where the one that was asked for is not there."""

_IS_START = b'"event":"start"'
_BEGINNING_BYTES = 200


def jail_of(entry: EventLine) -> str:
    """Return the jail that a `start` names; an empty text if it names none."""
    before, _, rest = entry.detail.partition("jail ")
    return "" if before else rest.rpartition(", policy ")[0]


def key_of(entry: Line) -> str:
    """Return what is remembered of a record's session: its name, which has no end only where somebody forged it."""
    return entry.session[:_SESSION_CHARACTERS]


class Jail:
    """One jail, and the sessions that had it: those that were found in a trail, and those that begin while it is read."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._sessions: dict[str, None] = {}
        self._others: dict[str, None] = {}

    def find(self, trail: str) -> "Jail":
        """Take the sessions of the whole trail; say it if there is none. Raises OSError."""
        for source, fd in opened_or_said(sources_of(trail)):
            for block in line_blocks(fd, 0, end_of(source, fd)):
                for line in block:
                    if _IS_START in line[:_BEGINNING_BYTES] and (entry := decode(line)) is not None:
                        self.had(entry)
        if not self._sessions:
            others = f"; the newest others are {', '.join(self._others)}" if self._others else ""
            warn(f"audit log {trail}: no broker had the jail {self.path}{others}")
        return self

    def had(self, entry: Line) -> bool:
        """Return whether the record is of a session that had this jail."""
        if isinstance(entry, EventLine) and entry.event == "start":
            self._begin(key_of(entry), jail_of(entry))
        return key_of(entry) in self._sessions

    def _begin(self, session: str, jail: str) -> None:
        known, name, most = (
            (self._sessions, session, _SESSIONS) if jail == self.path else (self._others, jail, _NAMED)
        )
        known.pop(name, None)
        known[name] = None
        if len(known) > most:
            del known[next(iter(known))]
