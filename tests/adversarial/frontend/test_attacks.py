"""Code execution inside the frontend gains nothing: it tries everything, and the same code without the confinement succeeds."""

from collections.abc import Iterator

import pytest

from tests.adversarial.frontend import on_files, on_kernel, on_processes
from tests.adversarial.frontend.kit import ATTACKS
from tests.adversarial.frontend.target import Target
from tests.adversarial.identity import Identity
from tests.support import trail
from tests.support.place import CANARY_NAME

LISTS = (on_files, on_processes, on_kernel)
LEAST = 40
REFUSALS = {
    "EPERM",
    "EACCES",
    "ENOSYS",
    "ENOTSUP",
    "ENOTTY",
    "EMFILE",
    "ENOMEM",
    "EAGAIN",
    "ESRCH",
    "RuntimeError",
    "MemoryError",
    "ValueError",
}
"""What the confinement answers. ESRCH: a process out of scope is none. The last ones: no more threads, memory, limits."""


class Attacked:
    """A target after the attacks of a confined frontend, and what could be seen before and after."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.before = target.traces()
        target.attack_confined()
        self.after = target.traces()


@pytest.fixture(scope="module")
def confined(identity: Identity) -> Iterator[Attacked]:
    with Target(identity) as target:
        yield Attacked(target)


@pytest.fixture(scope="module")
def free(identity: Identity) -> Iterator[Target]:
    with Target(identity) as target:
        target.before = target.traces()
        target.attack_freely()
        yield target


def test_there_are_enough_attacks() -> None:
    assert all("ATTACKS" not in vars(each) for each in LISTS)
    assert len(ATTACKS) >= LEAST


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_inside_the_frontend(confined: Attacked, name: str) -> None:
    assert confined.target.results.get(name) in REFUSALS, confined.target.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_attack_gets_further_without_the_confinement(
    free: Target, identity: Identity, name: str
) -> None:
    attack = ATTACKS[name]
    expected = attack.as_root if identity.name == "root" else attack.as_ordinary
    assert free.results.get(name) in expected, free.stderr


def test_nothing_was_changed_nobody_harmed_and_nobody_called(confined: Attacked) -> None:
    assert confined.after == confined.before
    assert not confined.target.typed


def test_the_broker_serves_on_and_its_trail_holds_its_calls(confined: Attacked) -> None:
    results = confined.target.results
    assert (results["served before"], results["served after"]) == (True, True), confined.target.stderr
    commands = [record["command_raw"] for record in trail.calls(confined.target.place.trail)]
    assert commands == ["echo hi"] * 4  # two attempts, two outcomes


def test_the_frontend_was_given_its_streams_and_the_socket_and_no_secret(confined: Attacked) -> None:
    facts = confined.target.results["facts"]
    assert facts["descriptors"] == [0, 1, 2, 3]
    assert set(facts["environment"]) <= {"LANG", "LC_CTYPE", "PATH", "HTMCP_BROKER_FD"}
    assert CANARY_NAME not in facts["environment"]


def test_the_canaries_sing_when_nothing_is_confined(free: Target) -> None:
    after = free.traces()
    changed = {name for name in {*free.before, *after} if free.before.get(name) != after.get(name)}
    place = free.place
    assert {str(place.policy), str(place.jail / "planted.txt"), "decoy", "called"} <= changed
    assert after["called"] == [True, True, True, True]
    assert free.typed == (free.results["type_into_the_terminal"] == "worked")
