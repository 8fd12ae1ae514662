"""Kills either side at random steps of random calls, for as long as it is told, and prints what came of it.

Every broker finds the trail as those before it, and beside it, left it. The first thing that does not hold ends the soak
with status 1 and a line that names fault and seed: a process left, a hang, a broken chain, an attempt without outcome, a
fresh start that does not work.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.hooked_run import Fault, HookedRun, check_fresh_start
from tests.faults.test_kills import KILLS, PLACES
from tests.support import trail
from tests.support.place import Place

AT_ONCE = 3
BATCH = 15
"""After so many kills a fresh broker is started, and the trail is verified."""
CALLS = (1, 2, 5, 16, 40)


class Survived(NamedTuple):
    """A kill that everything survived, and how long the whole run took."""

    fault: Fault
    seconds: float
    answers: Counter[str]


def survive(place: Place, fault: Fault) -> Survived:
    """Run one broker into its fault. Raises AssertionError, naming the fault."""
    since = time.monotonic()
    run = HookedRun(place, fault)
    run.survive()
    return Survived(fault, time.monotonic() - since, Counter(run.codes))


def drawn(source: random.Random) -> Fault:
    """Return a random fault."""
    (step, when), (victim, kind, _) = source.choice(PLACES), source.choice(KILLS)
    return Fault(step, when, victim, kind, source.choice(CALLS))


def soak(place: Place, minutes: float, source: random.Random) -> list[Survived]:
    """Kill until the time is over. Raises AssertionError for what does not hold."""
    survived: list[Survived] = []
    deadline = time.monotonic() + minutes * 60
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while time.monotonic() < deadline:
            faults = [drawn(source) for _ in range(BATCH)]
            survived += pool.map(lambda fault: survive(place, fault), faults)
            check_fresh_start(place)
    return survived


def report(place: Place, survived: list[Survived]) -> None:
    """Print the figures."""
    records = trail.records(place.trail)
    kinds = Counter(str(record.get("record_type", record.get("event"))) for record in records)
    answers = sum((each.answers for each in survived), Counter())
    slowest = max(survived, key=lambda each: each.seconds)
    print(
        f"{len(survived)} kills, {sum(each.fault.calls for each in survived)} calls; answers {dict(answers)}"
    )
    print(f"by victim and fault: {dict(Counter((each.fault.victim, each.fault.kind) for each in survived))}")
    print(f"by step: {dict(Counter(each.fault.step for each in survived))}")
    print(f"slowest: {slowest.seconds:.1f} s, {slowest.fault}")
    print(f"trail: whole, {len(records)} records, {dict(kinds)}")


def main() -> int:
    """Soak and report; return the exit status."""
    options = argparse.ArgumentParser(
        prog="python -m tests.bench.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("minutes", nargs="?", type=float, default=2.0)
    options.add_argument("seed", nargs="?", type=int, default=random.randrange(10**6), help="default: drawn")
    chosen = options.parse_args()
    minutes, seed = chosen.minutes, chosen.seed
    print(f"seed {seed}, {minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        try:
            survived = soak(place, minutes, random.Random(seed))
        except AssertionError as problem:
            print(f"does not hold (seed {seed}): {problem}")
            return 1
        report(place, survived)
    return 0


if __name__ == "__main__":
    sys.exit(main())
