"""Every hostile command under the policy that ships: what must be refused is, what must run does, and nothing escapes."""

from collections.abc import Iterator

import pytest

from tests.adversarial import evidence, policies
from tests.adversarial.cage import Cage
from tests.adversarial.cases import HOSTILE, REFUSED_BY_DESIGN, Case
from tests.adversarial.identity import Identity


@pytest.fixture(scope="module")
def cage(identity: Identity) -> Iterator[Cage]:
    with Cage(policies.SHIPPED, identity) as caged:
        yield caged


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.id)
def test_a_hostile_command_is_refused_or_harmless(cage: Cage, case: Case) -> None:
    for spelling in case.spellings:
        seen = cage.run_case(case, spelling)
        assert not seen.traces, seen
        assert not evidence.passwd_found_in(seen.output), seen
        if case.expected == "refuse" or case.id in REFUSED_BY_DESIGN:
            assert seen.refused, seen
        elif case.expected == "allow":
            assert seen.result.code == "OK" or _is_missing(seen.result.policy_reason), seen
        else:
            assert seen.result.code != "INTERNAL_ERROR", seen


def _is_missing(reason: str) -> bool:
    return "not installed" in reason
