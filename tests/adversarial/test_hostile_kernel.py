"""Every hostile command under a policy that lets everything through: with the gate open, the kernel alone stands in the way.

A program that is not installed is played by one that tries everything (`programs/hostile.py`), where that may be had.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.adversarial import policies
from tests.adversarial.cage import Cage
from tests.adversarial.cases import HOSTILE, Case
from tests.adversarial.identity import Identity
from tests.adversarial.programs_on_path import POLICY_PATH

MISSING = [name for name in policies.LISTED if shutil.which(name, path=POLICY_PATH) is None]


@pytest.fixture(scope="module")
def cage(identity: Identity) -> Iterator[Cage]:
    made = Cage(policies.KERNEL_ALONE, identity)
    made.add_standins(MISSING)
    with made as caged:
        _insist_on_the_layers(caged)
        yield caged


def _insist_on_the_layers(cage: Cage) -> None:
    """Nothing hostile starts unless the layers are there that protect this machine: capabilities, filter, domain."""
    seen = cage.run(
        """sh -c 'kill -9 $PPID; echo x > ../scratch/reached; read line < ../outside/secret.txt; echo "$line"'"""
    )
    assert not seen.traces, seen
    assert not (cage.base / "scratch" / "reached").exists()


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.id)
def test_a_hostile_command_escapes_nowhere_with_the_gate_open(cage: Cage, case: Case) -> None:
    seen = cage.run_case(case, case.spellings[-1])
    assert not seen.traces, seen
    assert seen.result.code != "INTERNAL_ERROR", seen
