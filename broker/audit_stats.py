"""`audit stats`: the sums over a trail as text."""

from collections.abc import Iterator

from broker.audit_show import duration, printable, size
from broker.audit_tally import Moment, Program, Tally

_BARS = 24
_BAR_CHARACTERS = 40
_MOST = 15


def stats_lines(tally: Tally) -> Iterator[str]:
    """Yield the lines of the whole text."""
    if not tally.calls:
        yield "no calls"
        return
    yield from _summary(tally)
    yield from _programs(tally.programs)
    yield from ("", "CODES")
    yield from (f"  {code:18} {count:>8,}" for code, count in tally.codes.most_common())
    yield from _reasons(tally)
    yield from _slowest(tally)
    yield from _over_time(tally.series(_BARS))
    if tally.events:
        yield from ("", "EVENTS")
        yield from (f"  {printable(name):18} {count:>8,}" for name, count in tally.events.most_common())


def _summary(tally: Tally) -> Iterator[str]:
    yield (
        f"{tally.calls:,} calls ({tally.dry_runs:,} dry runs) in {len(tally.sessions):,} session{_s(len(tally.sessions))}, "
        f"{tally.first_ts[:19]}Z to {tally.last_ts[:19]}Z"
    )
    yield f"{tally.kinds['ran']:,} ran, {tally.kinds['refused']:,} refused, {tally.kinds['broke']:,} broke"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _programs(programs: dict[str, Program]) -> Iterator[str]:
    yield ""
    yield f"{'PROGRAM':20} {'CALLS':>8} {'REFUSED':>8} {'BROKE':>8} {'EXIT>0':>8} {'P50':>8} {'P95':>8} {'MAX':>8} {'OUTPUT':>8}"
    ranked = sorted(programs.items(), key=lambda item: -item[1].calls)
    for name, program in ranked[:_MOST]:
        times = program.durations
        longest = times.longest_ms if times.percentile_ms(1.0) is not None else None
        yield (
            f"{printable(name)[:20]:20} {program.calls:>8,} {program.kinds['refused']:>8,} {program.kinds['broke']:>8,} "
            f"{program.nonzero:>8,} {duration(times.percentile_ms(0.5)):>8} {duration(times.percentile_ms(0.95)):>8} "
            f"{duration(longest):>8} {size(program.output_bytes):>8}"
        )
    if len(ranked) > _MOST:
        rest = sum(program.calls for _, program in ranked[_MOST:])
        yield f"{f'and {len(ranked) - _MOST} more':20} {rest:>8,}"


def _reasons(tally: Tally) -> Iterator[str]:
    if tally.reasons:
        yield from ("", "REFUSED AND BROKEN, BY REASON")
    for (code, reason), count in tally.reasons.most_common(_MOST):
        yield f"  {count:>8,}  {code:17}  {printable(reason)}"


def _slowest(tally: Tally) -> Iterator[str]:
    if tally.slowest:
        yield from ("", "SLOWEST")
    for slow in sorted(tally.slowest, reverse=True):
        yield f"  {duration(slow.duration_ms):>8}  {slow.ts[:19].replace('T', ' ')}  {printable(slow.command)}"


def _over_time(series: list[Moment]) -> Iterator[str]:
    yield from ("", "OVER TIME (UTC; █ ran, ▒ refused, ░ broke)")
    most = max(moment.ran + moment.refused + moment.broke for moment in series)
    for moment in series:
        total = moment.ran + moment.refused + moment.broke
        bar = _bar(moment, _BAR_CHARACTERS / most)
        yield f"  {moment.label:16}  {bar:{_BAR_CHARACTERS + 2}} {total:>8,}"


def _bar(moment: Moment, scale: float) -> str:
    # What happened at all is seen: at least one character each.
    return "".join(
        mark * max(round(count * scale), 1)
        for mark, count in (("█", moment.ran), ("▒", moment.refused), ("░", moment.broke))
        if count
    )
