"""Either side dies at every step of a call: nothing is left, nothing is lost, nobody hangs."""

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.hooked_run import BOUND_S, Fault, HookedRun, check_fresh_start
from tests.support import processes
from tests.support.place import Place

AT_ONCE = 3
"""Brokers that die beside each other, on one trail: a broker's wait is another's turn."""

STEPS = (
    "frame read",
    "verdict",
    "attempt written",
    "program started",
    "output read",
    "program ended",
    "outcome written",
    "reply sent",
)
PLACES = [
    *itertools.product(STEPS, ("before", "after")),
    (
        "exec asked",
        "before",
    ),  # the new process waits for the broker's answer, and holds no way to learn of its death
    ("half of a reply", "after"),
]
KILLS = [
    (victim, kind, calls)
    for victim, kind, calls in itertools.product(
        ("broker", "frontend"), ("SIGKILL", "SIGTERM", "stop", "close"), (1, 16)
    )
    # A socket that is shut down is the same for both; a frontend that handles no signal dies by each as by the other.
    if victim == "broker" or kind not in ("close", "SIGTERM")
]


STARTING = (
    "settings read",
    "frontend started",
    "layers found",
    "reaper started",
    "containment proved",
    "trail opened",
)
STARTING_KILLS = [
    (victim, kind)
    for victim, kind in itertools.product(("broker", "frontend"), ("SIGKILL", "SIGTERM", "stop"))
    if victim == "broker" or kind != "SIGTERM"
]


def survive_all(place: Place, faults: list[Fault]) -> None:
    """Run a broker into each fault, some at once on one trail; then a fresh one. Raises AssertionError, naming the fault."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda fault: HookedRun(place, fault).survive(), faults))
    check_fresh_start(place)


@pytest.mark.parametrize(("step", "when"), PLACES)
def test_a_side_that_dies_takes_nothing_with_it(place: Place, step: str, when: str) -> None:
    survive_all(place, [Fault(step, when, *kill) for kill in KILLS])


@pytest.mark.parametrize("step", STARTING)
def test_a_side_that_dies_during_the_start_takes_nothing_with_it(place: Place, step: str) -> None:
    has_frontend = STARTING.index(step) > STARTING.index("frontend started")
    kills = [kill for kill in STARTING_KILLS if has_frontend or kill[0] == "broker"]
    survive_all(place, [Fault(step, when, *kill) for when in ("before", "after") for kill in kills])


def test_the_suite_kills_at_least_two_hundred_times() -> None:
    assert len(PLACES) * len(KILLS) >= 200


@pytest.mark.parametrize("victim", ["broker", "frontend"])
@pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM"])
def test_a_side_that_dies_while_idle_ends_the_other(place: Place, victim: str, kind: str) -> None:
    run = HookedRun(place, Fault("none", victim=victim, kind=kind))
    assert run.answered.wait(BOUND_S)
    broker = run.process.pid
    (frontend,) = [pid for pid in processes.children(broker) if "-I" in processes.command_line(pid)]
    os.kill(broker if victim == "broker" else frontend, getattr(signal, kind))
    run.finish()
    assert run.codes == ["OK"]
    check_fresh_start(place)
