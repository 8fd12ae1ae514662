"""Every hostile command under a policy that lets everything through: with the gate open, the kernel alone stands in the way.

A program that is not installed is played by one that tries everything (`programs/hostile.py`), where that may be had: for an
ordinary user under each of their names, for root under some, as it does the same under all.
"""

from collections.abc import Iterator

import pytest

from tests.adversarial import policies
from tests.adversarial.cage import Cage
from tests.adversarial.cases import HOSTILE, Case
from tests.adversarial.identity import IDENTITIES, Identity
from tests.adversarial.policies import MISSING

PLAYED_FOR_ROOT = 10


@pytest.fixture(scope="module")
def cage(identity: Identity) -> Iterator[Cage]:
    made = Cage(policies.KERNEL_ALONE, identity)
    made.add_standins(MISSING if identity == IDENTITIES[-1] else MISSING[:PLAYED_FOR_ROOT])
    with made as caged:
        _insist_on_the_layers(caged)
        yield caged


_PROBE = (
    """sh -c 'kill -9 $PPID; echo x > ../scratch/reached; read line < ../outside/secret.txt; echo "$line"'"""
)


def _insist_on_the_layers(cage: Cage) -> None:
    """Nothing hostile starts unless the layers are there that protect this machine."""
    seen = cage.run(_PROBE, programs=("sh",))
    assert not seen.traces, seen
    assert not (cage.base / "scratch" / "reached").exists()


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.id)
def test_a_hostile_command_escapes_nowhere_with_the_gate_open(cage: Cage, case: Case) -> None:
    seen = cage.hold(case)
    assert seen.ran or seen.refused or not cage.watched or seen.result.code == "EXECUTOR_ERROR", seen
    assert seen.result.code != "EXECUTOR_ERROR" or case.program in MISSING, seen
