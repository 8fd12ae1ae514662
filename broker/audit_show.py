"""`audit show`: a trail as a table that a person likes to read, newest last.

Always true: an attempt and its outcome are one row, however much lies between; an attempt without outcome says so;
whatever a caller wrote cannot move the cursor, change colours or reorder the text: what is not printable is shown
escaped. Memory is bounded by the number of rows asked for.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TextIO

from broker.audit_following import Place, follow, place_of
from broker.audit_jails import SHORT
from broker.audit_reading import Found, Source, again, entries, entries_backwards, sources_of
from broker.audit_record import EventLine, Line, escaped
from broker.audit_selection import Selection
from broker.audit_unended import Unended
from broker.cells import fitted, padded

_TIME = f"{'TIME (UTC)':19}"
_CLOCK = f"{'':11}{'UTC':8}"
_VERDICT_WIDTH = 17
_NUMBERS = (("EXIT", 4), ("TOOK", 7), ("OUT", 7), ("ERR", 7), ("SESSION", SHORT))
_COMMAND_ROOM = 24
"""Characters that a command needs to be told from others: a column that leaves less is left out."""

_POLL_S = 0.2
_COLUMNS_DIGITS = 6
_COLOURS = {
    "OK": 32,
    "OUTPUT_TRUNCATED": 32,
    "TIMEOUT": 33,
    "EXECUTOR_ERROR": 33,
    "no outcome": 33,
    "event": 36,
}
_REFUSED = 31


class Layout(NamedTuple):
    """What stands in front of a command: the time from this character on, and so many of the numbers."""

    time_from: int
    numbers: int

    def time(self, text: str) -> str:
        """Return as much of a time, or of its heading, as there is room for, and the gap behind it."""
        return f"{text[self.time_from :]}  " if self.time_from < len(_TIME) else ""


_CLOCK_AT = 11
_LAYOUTS = (
    Layout(0, 5),
    Layout(0, 4),
    Layout(0, 3),
    Layout(0, 2),
    Layout(0, 1),
    Layout(_CLOCK_AT, 1),
    Layout(_CLOCK_AT, 0),
    Layout(len(_TIME), 0),
)


class Style(NamedTuple):
    """How a table is printed. `width` 0: lines are not cut."""

    width: int = 0
    colour: bool = False


def style_of(stream: TextIO | None) -> Style:
    """Return the style for a stream: as wide as COLUMNS says or the terminal is, coloured there unless NO_COLOR is set.

    What goes into a file or a pipe is shortened only if COLUMNS says so, as ps(1) does.
    """
    if stream is not None and stream.isatty():
        return Style(shutil.get_terminal_size((120, 24)).columns, "NO_COLOR" not in os.environ)
    columns = os.environ.get("COLUMNS", "")
    return Style(int(columns) if columns.isdecimal() and len(columns) <= _COLUMNS_DIGITS else 0)


def newest_first(sources: list[Source], selection: Selection, *, every: bool = False) -> Iterator[Found]:
    """Yield the rows of some files, newest first; `every`: all attempts too. Raises OSError."""
    return _rows(sources, selection, every=every, backwards=True)


def _rows(
    sources: list[Source], selection: Selection, *, every: bool, backwards: bool = False
) -> Iterator[Found]:
    unended = None if every else Unended(sources)
    for line, entry in (entries_backwards if backwards else entries)(sources, selection.since):
        if selection.takes(entry) and (unended is None or not unended.leaves_out(entry)):
            yield line, entry


def show(path: str, selection: Selection, *, limit: int, following: bool, as_json: bool) -> bool:
    """Print the newest `limit` rows, 0 for all, then each new one if `following`, where 0 is for none before it.

    `as_json`: every record as it stands in the file, attempts too. Returns whether there was any. Raises OSError.
    """
    sources = sources_of(path)
    place = _end(again(sources)) if following else None
    style, some = style_of(sys.stdout), False
    if limit:
        rows = newest_first(sources, selection, every=as_json)
        # as they are printed, since that is shorter than what they say
        texts = reversed([_text(found, style, as_json=as_json) for found in islice(rows, limit)])
    else:
        every = _rows([] if following else sources, selection, every=as_json)
        texts = (_text(found, style, as_json=as_json) for found in every)
    if not as_json:
        print(headings(style))
    for text in texts:
        print(text)
        some = True
    if place is not None:
        _follow(path, place, selection, style, as_json=as_json)
    return some


def _follow(path: str, place: Place, selection: Selection, style: Style, *, as_json: bool) -> None:
    for found in follow(path, place):
        if found is None:
            print(end="", flush=True)
            time.sleep(_POLL_S)
        elif selection.takes(found[1]) and (as_json or found[1].record_type != "attempt"):
            print(_text(found, style, as_json=as_json))


def _end(sources: list[Source]) -> Place:
    return next(map(place_of, entries_backwards(sources)), Place())


def _text(found: Found, style: Style, *, as_json: bool) -> str:
    line, entry = found
    if as_json:
        return escaped(line.decode("utf-8", "replace").encode()).decode()
    return "\n".join(table_lines(entry, style))


def table_lines(entry: Line, style: Style) -> Iterable[str]:
    """Return the lines of a record's row: a second one for the reason of what did not simply run."""
    layout = layout_of(style.width)
    when = layout.time(printable(entry.ts[:19].replace("T", " ")))
    if isinstance(entry, EventLine):
        session = f"{entry.session[-SHORT:]}  " if entry.event == "start" else ""
        return [_row(when, "event", entry.event, session + detail_of(entry), style)]
    verdict = entry.code or "no outcome"
    numbers = (
        _number(entry.exit_code),
        duration(entry.duration_ms),
        size(entry.stdout_bytes),
        size(entry.stderr_bytes),
        printable(entry.session[-SHORT:]),
    )
    cells = "".join(
        f"{text:>{width}}  " for text, (_, width) in zip(numbers, _NUMBERS[: layout.numbers], strict=False)
    )
    dry = "(dry run) " if entry.tool == "explain_command" else ""
    row = _row(when, verdict, verdict, cells + dry + entry.command_raw, style)
    if verdict == "OK" or not entry.policy_reason:
        return [row]
    reason = printable(entry.policy_reason)
    return [row, f"{' ' * len(when)}└ {shortened(reason, style.width, len(when) + 2)}"]


def detail_of(entry: EventLine) -> str:
    """Return what an event's record says, how many records it is about included."""
    return entry.detail if entry.count is None else f"{entry.detail} (count {entry.count:,})"


def _row(when: str, kind: str, verdict: str, text: str, style: Style) -> str:
    painted = _paint(kind, padded(printable(verdict), _VERDICT_WIDTH), style)
    return f"{when}{painted}  {shortened(printable(text), style.width, len(when) + _VERDICT_WIDTH + 2)}"


def headings(style: Style) -> str:
    """Return the first line of the table."""
    layout = layout_of(style.width)
    numbers = "".join(f"{name:>{width}}  " for name, width in _NUMBERS[: layout.numbers])
    return f"{layout.time(_TIME if layout.time_from == 0 else _CLOCK)}{'VERDICT':{_VERDICT_WIDTH}}  {numbers}COMMAND"


def layout_of(width: int) -> Layout:
    """Return what fits: columns give way, the last first, then the date, until the command has its room."""
    for layout in _LAYOUTS:
        numbers = sum(column + 2 for _, column in _NUMBERS[: layout.numbers])
        taken = len(layout.time(_TIME)) + _VERDICT_WIDTH + 2 + numbers
        if not width or width - taken >= _COMMAND_ROOM:
            return layout
    return _LAYOUTS[-1]


def printable(text: str) -> str:
    """Return `text` with everything escaped that a terminal would act upon or that a person could not see."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _paint(verdict: str, text: str, style: Style) -> str:
    return f"\x1b[{_COLOURS.get(verdict, _REFUSED)}m{text}\x1b[0m" if style.colour else text


def shortened(text: str, width: int, taken: int) -> str:
    """Return `text` as it fits behind `taken` cells of a line; 0 is a line without end."""
    return fitted(text, max(width - taken, 1)) if width else text


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def duration(ms: int | None) -> str:
    """Return milliseconds for a person."""
    if ms is None:
        return ""
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.0f} min"


def size(count: int | None) -> str:
    """Return a number of bytes for a person."""
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"
