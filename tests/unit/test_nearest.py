"""A refusal names first what was perhaps meant, and says where the rest stands, however many programs there are."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from broker import policy_profiles
from broker.nearest import nearest, profile_of
from tests.support.gate import DEFAULT_POLICY, policy_over, refusal

SHIPPED = DEFAULT_POLICY.read_bytes()
COUNT = len(tomllib.loads(SHIPPED.decode())["commands"]["allow"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("gti status", "git"), ("/usr/bin/git status", "git"), ("grpe x", "grep"), ("lss", "ls")],
)
def test_a_refusal_names_the_nearest_program_first(tmp_path: Path, typed: str, meant: str) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), typed)
    assert f"meant, perhaps: {meant}" in reason
    assert reason.endswith(
        f"the tool's description, which check --describe prints, names all {COUNT} that are allowed"
    )
    assert len(reason) < 220


def test_a_refusal_says_where_the_programs_stand_where_none_is_near(tmp_path: Path) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), "qqqqqqqq")
    assert "perhaps" not in reason
    assert reason.endswith(
        f"the tool's description, which check --describe prints, names all {COUNT} that are allowed"
    )


def test_of_few_programs_a_refusal_names_all_the_nearest_first(tmp_path: Path) -> None:
    few = policy_over(tmp_path, "[commands]\nallow = ['ls', 'cat', 'git']")
    assert refusal(few, "gitt").endswith("; allowed: git ls cat")


@pytest.mark.parametrize("name", policy_profiles.profile_names())
def test_a_refusal_names_the_profile_that_has_entries_for_the_program(tmp_path: Path, name: str) -> None:
    shipped = policy_over(tmp_path, SHIPPED)
    raw = (Path(policy_profiles.FOLDER) / f"{name}.toml").read_text(encoding="utf-8")
    allowed = tomllib.loads(raw)["profile"][name]["allow"]
    assert allowed
    for program in allowed:
        assert profile_of(program) == name
        if program not in shipped.programs:
            assert f"ready-made entries: init --profile {name}; " in refusal(shipped, f"{program} test")


def test_a_refused_commit_names_the_profile_that_commits(tmp_path: Path) -> None:
    assert "init --profile git-write" in refusal(policy_over(tmp_path, SHIPPED), "git commit -m x")


def test_a_refusal_of_a_policy_that_allows_nothing_says_so(tmp_path: Path) -> None:
    nothing = policy_over(tmp_path, "[commands]\ndeny = ['rm']")
    assert refusal(nothing, "ls").endswith("; no program is allowed")


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
