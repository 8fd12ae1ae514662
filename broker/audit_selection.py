"""Which records a reader wants: by time, code, program, session, tool and text, or by the name of an event.

Always true: times are compared as the trail writes them, in UTC, as text; a time that cannot be understood is
an error.
"""

import argparse
import re
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from broker.audit_jails import Jail
from broker.audit_record import CallLine, Line
from protocol.messages import ResultCode, Tool

_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

CODES = tuple(code.value for code in ResultCode)
TOOLS = ("run", "explain")
"""The names of tools in short; records have them in full."""
EVENTS = (
    "start",
    "policy",
    "torn",
    "gap",
    "rotated",
    "continued",
    "mirror",
    "repaired",
    "sealed",
    "protocol_violation",
)
"""What brokers and `audit repair` note besides calls."""

_SEVERAL: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}


class Selection(NamedTuple):
    """What to show; an empty field selects everything."""

    since: str | None = None
    until: str | None = None
    codes: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    session: str = ""
    tool: str = ""
    text: str = ""
    events: tuple[str, ...] = ()
    starts: bool = True
    jail: Jail | None = None

    def takes(self, entry: Line) -> bool:
        """Whether a record is wanted. Without `starts`, those of brokers that began are so only by name."""
        if (self.since and entry.ts < self.since) or (self.until and entry.ts >= self.until):
            return False
        if self.session and self.session not in entry.session:
            return False
        if self.jail is not None and not self.jail.had(entry):
            return False
        of_calls = bool(self.codes or self.programs or self.tool or self.text)
        if isinstance(entry, CallLine):
            return self._takes_call(entry) if of_calls else not self.events
        if self.events:
            return entry.event in self.events
        return not of_calls and (self.starts or entry.event != "start")

    def _takes_call(self, entry: CallLine) -> bool:
        return (
            (not self.codes or entry.code in self.codes)
            and (not self.programs or entry.program in self.programs)
            and (not self.tool or entry.tool.startswith(self.tool))
            and (not self.text or self.text in f"{entry.command_raw}\n{entry.policy_reason}")
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of a selection."""
    group = parser.add_argument_group(
        "which records",
        "Each option narrows what is taken, but --event adds to it: the events of that name, to the calls that --code, "
        "--program, --tool and --text select. Alone it selects no calls.",
    )
    group.add_argument(
        "--since", type=moment, metavar="TIME", help="from 15m, 2h, 7d ago, a date or a time (UTC) on"
    )
    group.add_argument("--until", type=moment, metavar="TIME", help="before that time")
    codes, events = ", ".join(CODES), ", ".join(EVENTS)
    group.add_argument("--code", type=_code, help=f"result code: {codes}; may be repeated", **_SEVERAL)
    group.add_argument(
        "--event", choices=EVENTS, help=f"what was no call: {events}; may be repeated", **_SEVERAL
    )
    group.add_argument("--program", help="program; may be repeated", **_SEVERAL)
    group.add_argument("--jail", metavar="DIR", help="calls of the brokers that had this jail: one project's")
    group.add_argument(
        "--session", default="", metavar="PART", help="part of a session's name, such as the one shown"
    )
    group.add_argument("--tool", default="", choices=(*TOOLS, *map(str, Tool)), help="runs or dry runs only")
    group.add_argument("--text", default="", metavar="TEXT", help="part of the command or of the reason")


def selection_of(options: argparse.Namespace) -> Selection:
    """Return the selection that the options describe. Raises OSError: for a jail the trail is read."""
    return Selection(
        since=options.since,
        until=options.until,
        codes=tuple(options.code),
        programs=tuple(options.program),
        session=options.session,
        tool=options.tool,
        text=options.text,
        events=tuple(options.event),
        jail=Jail(options.jail).find(options.log) if options.jail else None,
    )


def _code(text: str) -> str:
    if text.upper() not in CODES:
        raise argparse.ArgumentTypeError(f"{text!r} is no result code; one of {', '.join(CODES)} is")
    return text.upper()


def moment(text: str) -> str:
    """Return a time as the trail writes it. Raises argparse.ArgumentTypeError."""
    ago = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    try:
        when = _ago(int(ago[1]) * _UNIT_S[ago[2]]) if ago else _parsed(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; 2h, 2026-01-31 or 2026-01-31T12:00 is"
        ) from None
    return f"{when.isoformat(timespec='microseconds')}Z"


def _ago(seconds: int) -> datetime:
    return datetime.fromtimestamp(time.time() - seconds, UTC).replace(tzinfo=None)


def _parsed(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    return when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)
