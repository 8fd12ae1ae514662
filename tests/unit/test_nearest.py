"""A refusal names first what was perhaps meant, and says where the rest stands, however many programs there are."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.nearest import nearest
from broker.refusal import REASON_CHARACTERS
from tests.support.gate import DEFAULT_POLICY, policy_over, refusal

SHIPPED = DEFAULT_POLICY.read_bytes()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("gti status", "git"), ("/usr/bin/git status", "git"), ("grpe x", "grep"), ("lss", "ls")],
)
def test_a_refusal_names_the_nearest_program_first(tmp_path: Path, typed: str, meant: str) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), typed)
    assert f"meant, perhaps: {meant}" in reason
    assert "programs are allowed, the tool's description names them: " in reason
    assert len(reason) <= REASON_CHARACTERS


def test_a_refusal_says_where_the_programs_stand_where_none_is_near(tmp_path: Path) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), "qqqqqqqq")
    assert "perhaps" not in reason
    assert "the tool's description names them" in reason


def test_of_few_programs_a_refusal_names_all_the_nearest_first(tmp_path: Path) -> None:
    few = policy_over(tmp_path, "[commands]\nallow = ['ls', 'cat', 'git']")
    assert refusal(few, "gitt").endswith("; allowed: git ls cat")


def test_a_refusal_names_the_nearest_subcommand_first(tmp_path: Path) -> None:
    assert "allowed: status, " in refusal(policy_over(tmp_path, SHIPPED), "git statsu")
    assert "allowed: shortlog, " in refusal(policy_over(tmp_path, SHIPPED), "git shortlg")


def test_the_search_costs_little_whatever_was_typed_and_however_many_names_there_are() -> None:
    names = [f"program-{number}" for number in range(1_000)]
    since = time.process_time()
    assert nearest("program-77x", names)
    assert nearest("program" * 10_000, names) == []
    assert nearest("p" * 33, ["p" * 32]) == nearest("p" * 32, ["p" * 33]) == []
    assert time.process_time() - since < 0.5


def test_a_start_does_not_pay_for_the_search() -> None:
    code = "import sys, broker.main, broker.serving, broker.startup; print('difflib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, timeout=30, check=True)
    assert ended.stdout == b"False\n"
