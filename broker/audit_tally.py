"""Sums over a trail: calls by program and code, refusals by reason, the slowest, and how it went over time.

Always true: memory is bounded whatever stands in the trail, names that callers invented too: what does not
fit is counted together, and a name without end is cut. Percentiles come from a histogram whose steps are a tenth apart.
"""

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from broker.audit_jails import jail_of, key_of
from broker.audit_reading import Found
from broker.audit_record import CallLine, EventLine, Line
from broker.audit_selection import Selection

RAN = frozenset({"OK", "OUTPUT_TRUNCATED"})
BROKE = frozenset({"TIMEOUT", "EXECUTOR_ERROR", "INTERNAL_ERROR"})
OTHER = "(others)"
NO_PROGRAM = "(no program)"
DRY_RUN = "(dry run)"
"""In the place of a code: asked about, and allowed. Nothing ran."""
CANCELLED = "(cancelled)"
"""In the place of a code: the client, or the one at the terminal, did not want it any more. Nothing broke."""
_CANCELLED_REASON = "cancelled by the client"
_IN_PLACE = {DRY_RUN: "asked", CANCELLED: "cancelled"}
NO_JAIL = "(began earlier)"
SLOWEST = 10
_PROGRAMS = 1_000
_REASONS = 2_000
_SESSIONS = 100_000
_MOMENTS = 5_000
_REASON_CHARACTERS = 200
_NAME_CHARACTERS = 1_000
_STEP = 1.1


def kind(code: str | None) -> str:
    """Return what a code comes down to: ran, refused, broke (allowed, but did not end by itself), cancelled, or only asked."""
    if code in RAN:
        return "ran"
    if code in _IN_PLACE:
        return _IN_PLACE[code]
    return "broke" if code in BROKE else "refused"


def code_of(entry: CallLine) -> str:
    """Return the code of an outcome, or what stands in its place."""
    code = entry.code or "?"
    if code in RAN and entry.tool == "explain_command":
        return DRY_RUN
    if code in ("EXECUTOR_ERROR", "PARSE_ERROR") and (entry.policy_reason or "").startswith(
        _CANCELLED_REASON
    ):
        return CANCELLED
    return code


class Durations:
    """A histogram of milliseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._longest_ms = 0

    def add(self, ms: int) -> None:
        """Count one duration."""
        self._counts[round(math.log(ms + 1, _STEP))] += 1
        self._longest_ms = max(self._longest_ms, ms)

    @property
    def longest_ms(self) -> int | None:
        """The longest of all, None without any."""
        return self._longest_ms if self._counts else None

    def percentile_ms(self, share: float) -> int | None:
        """Return the duration that `share` of all do not exceed, None without any."""
        left = share * self._counts.total()
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return min(round(_STEP**step - 1), self._longest_ms)
        return None


class Program:
    """One program's share. `nonzero`: ran, with an exit status other than 0."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.nonzero = 0
        self.output_bytes = 0
        self.durations = Durations()

    @property
    def calls(self) -> int:
        """All calls, whatever became of them."""
        return self.kinds.total()


SHOWN = ("ran", "refused", "broke", "cancelled")
"""The kinds of calls that charts show, in their order: not what was only asked."""


class Slow(NamedTuple):
    """One of the slowest runs."""

    duration_ms: int
    seq: int
    ts: str
    command: str


class Moment(NamedTuple):
    """A stretch of time in a series; how many calls of each of `SHOWN`."""

    label: str
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All calls that were more than asked about."""
        return sum(self.counts)


class Tally:
    """What `add` has seen so far."""

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.programs: dict[str, Program] = {}
        self.jails: dict[str, Counter[str]] = {}
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.slowest: list[Slow] = []
        self.sessions: set[str] = set()
        self.dry_runs = 0
        self.first_ts = ""
        self.last_ts = ""
        self._unnamed_jail = NO_JAIL
        self._jail_of: dict[str, str] = {}
        self._jail_names: dict[str, str] = {}
        self._moments: dict[str, Counter[str]] = {}
        self._moment_characters = 16  # of a time: up to its minute

    @property
    def calls(self) -> int:
        """All calls with an outcome."""
        return self.codes.total()

    def add_all(self, found: Iterable[Found], selection: Selection) -> None:
        """Add the records that are wanted, oldest first."""
        if selection.jail is not None:
            self._unnamed_jail = selection.jail.path
        for _, entry in found:
            if selection.takes(entry):
                self.add(entry)

    def add(self, entry: Line) -> None:
        """Add one record; attempts only say that their session was there."""
        if entry.ts < self.first_ts or not self.first_ts:
            self.first_ts = entry.ts
        self.last_ts = max(self.last_ts, entry.ts)
        if len(self.sessions) < _SESSIONS:
            self.sessions.add(key_of(entry))
        if isinstance(entry, EventLine):
            self.events[_bounded(entry.event, self.events, _PROGRAMS)] += 1
            if entry.event == "start" and len(self._jail_of) < _SESSIONS:
                jail = _bounded(jail_of(entry), self._jail_names, _PROGRAMS)
                self._jail_of[key_of(entry)] = self._jail_names.setdefault(jail, jail)
        elif entry.record_type == "outcome":
            self._add_outcome(entry)

    def _add_outcome(self, entry: CallLine) -> None:
        what = kind(code_of(entry))
        code = _bounded(code_of(entry), self.codes, _PROGRAMS)
        self.codes[code] += 1
        self.kinds[what] += 1
        self.dry_runs += entry.tool == "explain_command"
        jail = _bounded(self._jail_of.get(key_of(entry), self._unnamed_jail), self.jails, _PROGRAMS)
        self.jails.setdefault(jail, Counter())[what] += 1
        if what != "asked":
            self._add_moment(entry.ts, what)
        self._add_program(entry, what)
        if what in ("refused", "broke"):
            reason = (code, (entry.policy_reason or "")[:_REASON_CHARACTERS])
            self.reasons[
                reason if reason in self.reasons or len(self.reasons) < _REASONS else (code, OTHER)
            ] += 1

    def _add_program(self, entry: CallLine, what: str) -> None:
        name = _bounded(entry.program or NO_PROGRAM, self.programs, _PROGRAMS)
        program = self.programs.setdefault(name, Program())
        program.kinds[what] += 1
        program.output_bytes += (entry.stdout_bytes or 0) + (entry.stderr_bytes or 0)
        if what == "refused" or entry.tool == "explain_command" or entry.duration_ms is None:
            return
        program.nonzero += entry.exit_code not in (0, None)
        program.durations.add(entry.duration_ms)
        slow = Slow(entry.duration_ms, entry.seq, entry.ts, entry.command_raw[:_REASON_CHARACTERS])
        if len(self.slowest) < SLOWEST:
            heapq.heappush(self.slowest, slow)
        elif slow > self.slowest[0]:
            heapq.heapreplace(self.slowest, slow)

    def _add_moment(self, ts: str, what: str) -> None:
        self._moments.setdefault(ts[: self._moment_characters], Counter())[what] += 1
        if len(self._moments) > _MOMENTS and self._moment_characters > 10:
            self._coarsen(self._moment_characters - 3)

    def _coarsen(self, characters: int) -> None:
        finer, self._moments = self._moments, {}
        self._moment_characters = characters
        for label, counts in finer.items():
            self._moments.setdefault(label[:characters], Counter()).update(counts)

    def series(self, most: int) -> list[Moment]:
        """Return how it went over time in at most about `most` equal stretches, empty ones included."""
        if not self._moments:
            return []
        labels = sorted(self._moments)
        first, last = _when(labels[0]), _when(labels[-1])
        step = _step(last - first, most, self._moment_characters)
        start = datetime.fromtimestamp(first.timestamp() // step.total_seconds() * step.total_seconds(), UTC)
        slots = [Counter[str]() for _ in range(int((last - start) / step) + 1)]
        for label, counts in self._moments.items():
            slots[int((_when(label) - start) / step)].update(counts)
        return [_moment(start + step * number, step, slot) for number, slot in enumerate(slots)]


def _bounded(name: str, known: Collection[str], limit: int) -> str:
    if len(name) > _NAME_CHARACTERS:
        name = name[:_NAME_CHARACTERS] + "…"
    return name if name in known or len(known) < limit else OTHER


def _when(label: str) -> datetime:
    return datetime.fromisoformat(label + ":00" if len(label) == 13 else label).replace(tzinfo=UTC)


_STEPS_MIN = (1, 5, 15, 60, 180, 720, 1_440, 10_080, 43_200, 525_600)


def _step(span: timedelta, most: int, characters: int) -> timedelta:
    finest_min = {16: 1, 13: 60}.get(characters, 1_440)
    for minutes in _STEPS_MIN:
        step = timedelta(minutes=minutes)
        if minutes >= finest_min and span / step < most:
            return step
    return max(span / most, timedelta(minutes=_STEPS_MIN[-1]))


def _moment(start: datetime, step: timedelta, counts: Counter[str]) -> Moment:
    label = start.strftime("%Y-%m-%d" if step >= timedelta(days=1) else "%Y-%m-%d %H:%M")
    return Moment(label, tuple(counts[name] for name in SHOWN))
