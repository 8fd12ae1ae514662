"""`audit report`: the sums over a trail and its newest records as one page that needs nothing but a browser.

Always true: every text from the trail is shown printable and escaped; memory is bounded by the number of rows
asked for: of a text in them no more is kept than a broker writes.
"""

from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from typing import NamedTuple

from broker.audit_jails import SHORT
from broker.audit_page import FOOT, HEAD
from broker.audit_reading import again, entries, sources_of
from broker.audit_record import EventLine, Line
from broker.audit_selection import Selection
from broker.audit_show import detail_of, duration, newest_first, printable, size
from broker.audit_tally import SHOWN, Moment, Tally, code_of, kind
from broker.audit_target import write_page
from broker.audit_text import COMMAND_CHARACTERS
from broker.cells import fitted

_COLUMNS = 60
_BARS = 12
_REASONS = 20
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1100, 240, 46, 26
_LABEL = 110
_NAME = 20
_CODE_CHARACTERS = 100
_ROWS_STAND_HERE = "\0"
_NUMBERS = frozenset({"Calls", "Refused", "Time", "Exit", "Out", "Err", "Seq"})
_KEY = (
    '<p class="key"><span class="ran">ran</span><span class="refused">refused</span>'
    '<span class="broke">broke (time, start or server failed)</span>'
    '<span class="cancelled">cancelled by the client</span></p>'
)


def write_report(path: str, selection: Selection, rows: int, target: str) -> int:
    """Write the page to `target`, "-" for standard output, with the newest `rows` records; returns its characters.

    Raises OSError.
    """
    tally = Tally()
    sources = sources_of(path)
    tally.add_all(entries(again(sources), selection.since), selection)
    shown = [_row(entry) for _, entry in islice(newest_first(sources, selection), rows)]
    return write_page(target, _page(path, tally, shown), path)


class _Row(NamedTuple):
    code: str
    html: str


def _page(path: str, tally: Tally, shown: list[_Row]) -> Iterator[str]:
    yield HEAD
    yield f'<h1>Audit report</h1><p class="soft">{_text(path)}, {_span(tally)}</p>'
    yield _tiles(tally)
    if tally.calls:
        if series := tally.series(_COLUMNS):
            yield _section("Over time (UTC)", _KEY + _columns(series))
        yield '<div class="pair">'
        yield _section("Calls by program", _KEY + _bars(_by_program(tally)))
        yield _section("Calls by code", _bars(_by_code(tally)))
        yield "</div>"
        yield from _tables(tally)
    yield from _records(shown)
    yield FOOT


def _text(text: str) -> str:
    if len(text) > COMMAND_CHARACTERS:
        text = text[:COMMAND_CHARACTERS] + "…"
    return escape(printable(text))


def _span(tally: Tally) -> str:
    if not tally.first_ts:
        return "no records"
    return f"{_when(tally.first_ts)} to {_when(tally.last_ts)} UTC"


def _when(ts: str) -> str:
    return _text(ts[:19].replace("T", " "))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _tiles(tally: Tally) -> str:
    tiles = [
        ("calls", tally.calls, ""),
        ("ran", tally.kinds["ran"], "ran"),
        ("refused", tally.kinds["refused"], "refused"),
        ("broke", tally.kinds["broke"], "broke"),
        ("cancelled", tally.kinds["cancelled"], "cancelled"),
        ("only asked (allowed dry runs)", tally.kinds["asked"], ""),
        ("sessions", len(tally.sessions), ""),
        ("events", tally.events.total(), ""),
    ]
    inner = "".join(
        f'<div class="tile"><b class="{name}">{count:,}</b><span class="soft">{label}</span></div>'
        for label, count, name in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _columns(series: list[Moment]) -> str:
    """Return stacked columns, one a stretch of time."""
    most = max(moment.total for moment in series)
    top = _round_up(most)
    room = _HEIGHT - _BOTTOM - 10
    step = (_WIDTH - _LEFT) / len(series)
    parts = [_grid(top, room)]
    for number, moment in enumerate(series):
        parts.append(_column(moment, _LEFT + number * step, min(step * 0.8, 60), room / top, room + 10))
    for number in range(0, len(series), max(len(series) // 6, 1)):
        x = _LEFT + number * step
        if x < _WIDTH - _LABEL:
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}">{series[number].label}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Calls over time">{"".join(parts)}</svg>'


def _grid(top: int, room: int) -> str:
    lines = []
    for part in range(5):
        y = 10 + room * part / 4
        value = top * (4 - part) / 4
        label = f"{value:,.0f}" if value == int(value) else ""
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    return "".join(lines)


def _column(moment: Moment, x: float, width: float, scale: float, floor: float) -> str:
    counted = ", ".join(f"{count:,} {name}" for name, count in zip(SHOWN, moment.counts, strict=True))
    title = f"{moment.label}: {counted}"
    parts = []
    for name, count in zip(SHOWN, moment.counts, strict=True):
        floor -= count * scale
        if count:
            parts.append(
                f'<rect class="{name}" x="{x:.1f}" y="{floor:.1f}" width="{width:.1f}" height="{count * scale:.1f}"/>'
            )
    return f"<g><title>{title}</title>{''.join(parts)}</g>"


def _round_up(number: int) -> int:
    unit = int(10 ** (len(str(number)) - 1))
    return min(step * unit for step in (1, 2, 4, 6, 8, 10) if step * unit >= number)


Bar = tuple[str, tuple[int, ...]]


def _by_program(tally: Tally) -> list[Bar]:
    ranked = sorted(tally.programs.items(), key=lambda item: -item[1].calls)[:_BARS]
    return [(name, tuple(p.kinds[kind] for kind in SHOWN)) for name, p in ranked]


def _by_code(tally: Tally) -> list[Bar]:
    return [
        (code, tuple(count * (kind(code) == name) for name in SHOWN))
        for code, count in tally.codes.most_common(_BARS)
    ]


def _bars(bars: list[Bar]) -> str:
    """Return horizontal bars, one a name, each in its kinds."""
    bars = [bar for bar in bars if sum(bar[1])]
    most = max((sum(counts) for _, counts in bars), default=1)
    left, room, height = 150, 300, 26
    parts = []
    for number, (name, counts) in enumerate(bars):
        x, y = float(left), number * height
        parts.append(
            f'<text class="name" x="{left - 8}" y="{y + 17}" text-anchor="end">{_text(fitted(name, _NAME))}</text>'
        )
        for label, count in zip(SHOWN, counts, strict=True):
            width = max(count * room / most, 1.0) if count else 0.0
            if count:
                parts.append(
                    f'<rect class="{label}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{height - 8}">'
                    f"<title>{_text(name)}: {count:,} {label}</title></rect>"
                )
            x += width
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 17}">{sum(counts):,}</text>')
    return f'<svg viewBox="0 0 520 {len(bars) * height}" role="img">{"".join(parts)}</svg>'


def _tables(tally: Tally) -> Iterator[str]:
    jails = (
        f'<tr><td class="number">{kinds.total():,}</td><td class="number">{kinds["refused"]:,}</td>'
        f'<td class="text mono">{_text(name)}</td></tr>'
        for name, kinds in sorted(tally.jails.items(), key=lambda item: -item[1].total())[:_REASONS]
    )
    yield _section("Calls by jail", _table(("Calls", "Refused", "Jail"), jails))
    reasons = (
        f'<tr><td class="number">{count:,}</td><td class="code {kind(code)}">{_text(code)}</td>'
        f'<td class="text">{_text(reason)}</td></tr>'
        for (code, reason), count in tally.reasons.most_common(_REASONS)
    )
    if tally.reasons:
        yield _section("Refused and broken, by reason", _table(("Calls", "Code", "Reason"), reasons))
    slowest = (
        f'<tr><td class="number">{duration(slow.duration_ms)}</td><td class="when">{_when(slow.ts)}</td>'
        f'<td class="text mono">{_text(slow.command)}</td></tr>'
        for slow in sorted(tally.slowest, reverse=True)
    )
    if tally.slowest:
        yield _section("Slowest runs", _table(("Time", "Ended (UTC)", "Command"), slowest))


def _table(headings: Iterable[str], rows: Iterable[str], name: str = "") -> str:
    head = "".join(
        f'<th class="number">{heading}</th>' if heading in _NUMBERS else f"<th>{heading}</th>"
        for heading in headings
    )
    name = f' id="{name}"' if name else ""
    return f"<table{name}><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _records(shown: list[_Row]) -> Iterator[str]:
    options = "".join(f"<option>{code}</option>" for code in sorted({row.code for row in shown if row.code}))
    search = (
        '<div class="search"><input id="words" type="search" placeholder="Search" aria-label="Search the records">'
        f'<select id="code" aria-label="Code"><option value="">every code</option>{options}</select>'
        f'<span id="shown" class="soft">{len(shown)} rows</span></div>'
    )
    headings = ("Seq", "Time (UTC)", "Verdict", "Exit", "Time", "Out", "Err", "Command and reason", "Session")
    table = search + _table(headings, [_ROWS_STAND_HERE], "records")
    before, _, after = _section(f"Newest {len(shown):,} records", table).partition(_ROWS_STAND_HERE)
    yield before
    yield from (row.html for row in shown)
    yield after


def _row(entry: Line) -> _Row:
    if isinstance(entry, EventLine):
        code, verdict, name, text = "", entry.event, "event", _text(detail_of(entry))
        numbers = ("", "", "", "")
    else:
        code, name = entry.code or "", kind(code_of(entry)) if entry.code else "broke"
        verdict = code or "no outcome"
        dry = "(dry run) " if entry.tool == "explain_command" else ""
        reason = f'<br><span class="soft">{_text(entry.policy_reason)}</span>' if entry.policy_reason else ""
        text = f'<span class="mono">{dry}{_text(entry.command_raw)}</span>{reason}'
        exit_code = "" if entry.exit_code is None else str(entry.exit_code)
        numbers = (exit_code, duration(entry.duration_ms), size(entry.stdout_bytes), size(entry.stderr_bytes))
    code, verdict = _text(code[:_CODE_CHARACTERS]), _text(verdict[:_CODE_CHARACTERS])
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    html = (
        f'<tr data-code="{verdict}"><td class="number">{entry.seq}</td><td class="when">{_when(entry.ts)}</td>'
        f'<td class="code {name}">{verdict}</td>{cells}<td class="text">{text}</td>'
        f'<td class="mono soft">{_text(entry.session[-SHORT:])}</td></tr>'
    )
    return _Row(code, html)
