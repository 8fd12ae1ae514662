"""`audit stats`: the sums over a trail, as text and as one object."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from broker.audit_show import duration, printable, shortened, size
from broker.audit_tally import SHOWN, Moment, Program, Tally
from broker.cells import fitted, folded, padded

_BARS = 24
_BAR_CHARACTERS = 40
_MOST = 15
_NAME = 20
_NUMBER = 9
_MARKS = "█▒░·"
"""Of a bar: one for each of `SHOWN`."""

_COLUMNS = ("CALLS", "REFUSED", "BROKE", "EXIT>0", "P50", "P95", "MAX", "OUTPUT")


def stats_lines(tally: Tally, width: int = 0) -> Iterator[str]:
    """Yield the lines of the whole text. On `width` columns, 0 for any, numbers are left out and texts shortened."""
    if not tally.calls:
        yield "no calls"
        return
    yield from (folded(line, width) for line in _summary(tally))
    for line in _details(tally, width):
        yield shortened(line, width, 0)


def _details(tally: Tally, width: int) -> Iterator[str]:
    yield from _programs(tally.programs, (width - _NAME) // _NUMBER if width else len(_COLUMNS))
    yield from ("", "CODES")
    yield from _counted(tally.codes)
    yield from _jails(tally.jails)
    yield from _reasons(tally)
    yield from _slowest(tally)
    yield from _over_time(
        tally.series(_BARS), min(_BAR_CHARACTERS, max(width - 32, 8)) if width else _BAR_CHARACTERS
    )
    if tally.events:
        yield from ("", "EVENTS")
        yield from _counted(tally.events)


def _counted(counts: Counter[str]) -> Iterator[str]:
    for name, count in counts.most_common():
        yield f"  {padded(printable(name), 18)} {count:>8,}"


def _summary(tally: Tally) -> Iterator[str]:
    yield (
        f"{tally.calls:,} call{_s(tally.calls)} ({tally.dry_runs:,} dry run{_s(tally.dry_runs)}) in {len(tally.sessions):,} "
        f"session{_s(len(tally.sessions))}, {_time(tally.first_ts)}Z to {_time(tally.last_ts)}Z"
    )
    counts = ", ".join(f"{tally.kinds[name]:,} {name}" for name in SHOWN)
    yield f"{counts}, {tally.kinds['asked']:,} only asked whether they may"


def _time(ts: str) -> str:
    return printable(ts[:19])


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _cells(program: Program) -> Iterable[str]:
    times = program.durations
    counts = (program.calls, program.kinds["refused"], program.kinds["broke"], program.nonzero)
    yield from (f"{count:,}" for count in counts)
    yield from map(duration, (times.percentile_ms(0.5), times.percentile_ms(0.95), times.longest_ms))
    yield size(program.output_bytes)


def _programs(programs: dict[str, Program], columns: int) -> Iterator[str]:
    yield ""
    yield _line("PROGRAM", _COLUMNS, columns)
    ranked = _ranked(programs)
    for name, program in ranked[:_MOST]:
        yield _line(printable(name), _cells(program), columns)
    if len(ranked) > _MOST:
        rest = sum(program.calls for _, program in ranked[_MOST:])
        yield _line(f"and {len(ranked) - _MOST} more", (f"{rest:,}",), columns)


def _line(name: str, cells: Iterable[str], columns: int) -> str:
    shown = list(cells)[: max(columns, 1)]
    return padded(fitted(name, _NAME), _NAME) + "".join(f"{cell:>{_NUMBER}}" for cell in shown)


def _jails(jails: dict[str, Counter[str]]) -> Iterator[str]:
    yield from ("", f"{'CALLS':>10} {'REFUSED':>8}  JAIL")
    ranked = sorted(jails.items(), key=lambda item: -item[1].total())
    for name, kinds in ranked[:_MOST]:
        yield f"{kinds.total():>10,} {kinds['refused']:>8,}  {printable(name)}"


def _reasons(tally: Tally) -> Iterator[str]:
    if tally.reasons:
        yield from ("", "REFUSED AND BROKEN, BY REASON")
    for (code, reason), count in tally.reasons.most_common(_MOST):
        yield f"  {count:>8,}  {padded(printable(code), 17)}  {printable(reason)}"


def _slowest(tally: Tally) -> Iterator[str]:
    if tally.slowest:
        yield from ("", "SLOWEST")
    for slow in sorted(tally.slowest, reverse=True):
        yield f"  {duration(slow.duration_ms):>8}  {_time(slow.ts).replace('T', ' ')}  {printable(slow.command)}"


def _over_time(series: list[Moment], characters: int) -> Iterator[str]:
    if not series:
        return
    yield from ("", f"OVER TIME (UTC; {', '.join(map(' '.join, zip(_MARKS, SHOWN, strict=True)))})")
    most = max(moment.total for moment in series)
    for moment in series:
        bar = _bar(moment, characters / most)
        yield f"  {printable(moment.label):16}  {bar:{characters + 2}} {moment.total:>8,}"


def _bar(moment: Moment, scale: float) -> str:
    # What happened at all is seen: at least one character each.
    return "".join(
        mark * max(round(count * scale), 1)
        for mark, count in zip(_MARKS, moment.counts, strict=True)
        if count
    )


def stats_object(tally: Tally) -> dict[str, Any]:
    """Return the sums as one object: all that was counted, names and texts as they stand in the trail."""
    return {
        "calls": tally.calls,
        "dry_runs": tally.dry_runs,
        "sessions": len(tally.sessions),
        "first": tally.first_ts or None,
        "last": tally.last_ts or None,
        **{name: tally.kinds[name] for name in (*SHOWN, "asked")},
        "codes": dict(tally.codes.most_common()),
        "programs": [_program_object(name, program) for name, program in _ranked(tally.programs)],
        "jails": [
            {"jail": name, "calls": kinds.total(), "refused": kinds["refused"]}
            for name, kinds in tally.jails.items()
        ],
        "reasons": [
            {"code": code, "reason": reason, "calls": count}
            for (code, reason), count in tally.reasons.most_common()
        ],
        "slowest": [slow._asdict() for slow in sorted(tally.slowest, reverse=True)],
        "over_time": [
            {"time": moment.label, **dict(zip(SHOWN, moment.counts, strict=True))}
            for moment in tally.series(_BARS)
        ],
        "events": dict(tally.events.most_common()),
    }


def _program_object(name: str, program: Program) -> dict[str, Any]:
    times = program.durations
    return {
        "program": name,
        "calls": program.calls,
        **{kind: program.kinds[kind] for kind in (*SHOWN, "asked")},
        "exit_not_0": program.nonzero,
        "p50_ms": times.percentile_ms(0.5),
        "p95_ms": times.percentile_ms(0.95),
        "max_ms": times.longest_ms,
        "output_bytes": program.output_bytes,
    }


def _ranked(programs: dict[str, Program]) -> list[tuple[str, Program]]:
    return sorted(programs.items(), key=lambda item: -item[1].calls)
