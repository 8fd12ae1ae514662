"""What is not run as it stands is written down with its reason, and the list says neither too little nor too much."""

from tests.adversarial.cases import GATE_ALONE, HOSTILE, not_run
from tests.adversarial.policies import LISTED, MISSING


def test_every_program_that_is_missing_here_is_on_the_list() -> None:
    assert set(MISSING) <= not_run("program").keys()


def test_the_list_names_only_programs_and_cases_that_exist() -> None:
    assert not_run("program").keys() <= set(LISTED)
    assert GATE_ALONE.keys() <= {case.id for case in HOSTILE}


def test_every_reason_is_a_sentence() -> None:
    for about in ("case", "program", "identity", "watch", "everyday", "refused by design"):
        assert not_run(about)
        assert all(len(reason) > 30 for reason in not_run(about).values())
