"""Every hostile command with the gate open and with every right: it may write, start programs and has a temporary folder.

What happens in the jail is then its own affair. Outside, nothing is read or written, nothing is started that is not in
`may_run`, nothing is sent, and nothing is left.
"""

from collections.abc import Iterator

import pytest

from tests.adversarial import policies
from tests.adversarial.cage import Cage
from tests.adversarial.cases import HOSTILE, Case
from tests.adversarial.identity import Identity
from tests.adversarial.policies import MISSING


@pytest.fixture(scope="module")
def cage(least_identity: Identity) -> Iterator[Cage]:
    made = Cage(policies.KERNEL_WITH_RIGHTS, least_identity, runnable=policies.MAY_RUN)
    made.add_standins(MISSING)
    with made as caged:
        yield caged


_ACTIVE = {
    "abbrev", "build-tool", "config-exec", "file-write", "library-load", "link-follow", "network", "operand-write", "option-exec",
    "option-write", "privilege", "program-text", "shell", "wrapper", "write-in-jail",
}  # fmt: skip
PLAYED = [case for case in HOSTILE if case.program in MISSING][:4]
"""The program that plays the missing ones does the same under every name."""
ACTIVE = [
    case
    for case in HOSTILE
    if case in PLAYED
    or (case.program not in MISSING and (case.kind in _ACTIVE or case.expected == "contained"))
]
"""Cases that do something: one that only reads meets the same kernel without rights."""


@pytest.mark.parametrize("case", ACTIVE, ids=lambda case: case.id)
def test_a_hostile_command_with_every_right_stays_in_the_jail(cage: Cage, case: Case) -> None:
    seen = cage.hold(case)
    assert seen.ran or seen.refused or not cage.watched, f"nothing ran: {seen}"
