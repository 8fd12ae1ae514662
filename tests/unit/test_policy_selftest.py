"""A policy's own tests depend on its file alone and fail loudly."""

from pathlib import Path

import pytest

from broker import policy_profiles
from tests.support.gate import DEFAULT_POLICY, policy_over

HEAD = "[commands]\nallow = ['ls', 'not-installed-anywhere']\n"


def failures(folder: Path, tests: str) -> list[str]:
    return policy_over(folder, HEAD + tests).self_test()


def test_a_test_that_holds_says_nothing(tmp_path: Path) -> None:
    assert failures(tmp_path, "[[tests]]\ncommand = 'ls src'\nexpect = 'allow'\nreason = '[commands]'") == []
    assert failures(tmp_path, "[[tests]]\ncommand = 'ls ../x'\nexpect = 'deny'\nreason = 'leads out'") == []
    assert failures(tmp_path, "[[tests]]\ncommand = 'ls ; ls'\nexpect = 'deny'") == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("command = 'ls'\nexpect = 'deny'", "'ls': deny expected, got allow"),
        ("command = 'rm x'\nexpect = 'allow'", "'rm x': allow expected, got deny: 'rm' is not on"),
        ("command = 'rm x'\nexpect = 'deny'\nreason = 'jail'", "a reason with 'jail' expected"),
        ("command = 'ls /etc'\nexpect = 'allow'", "allow expected, got deny"),
        ("command = 'ls \"x'\nexpect = 'allow'", "allow expected, got deny"),
    ],
)
def test_a_test_that_does_not_hold_is_told_with_its_command(tmp_path: Path, test: str, expected: str) -> None:
    (line,) = failures(tmp_path, f"[[tests]]\ncommand = 'ls'\nexpect = 'allow'\n[[tests]]\n{test}")
    assert line.startswith("tests.2: self-test failed: ")
    assert expected in line


def test_a_program_that_is_missing_here_fails_no_test(tmp_path: Path) -> None:
    assert failures(tmp_path, "[[tests]]\ncommand = 'not-installed-anywhere'\nexpect = 'allow'") == []


def test_a_hostile_jail_cannot_make_the_default_policys_tests_fail(tmp_path: Path) -> None:
    for name in ("a", "src", "x", "a.json"):
        (tmp_path / name).symlink_to("/etc/passwd")
    assert policy_over(tmp_path, DEFAULT_POLICY.read_bytes()).self_test() == []


def test_the_tests_of_the_default_policy_and_of_all_profiles_hold(tmp_path: Path) -> None:
    raw = policy_profiles.with_profiles(DEFAULT_POLICY.read_bytes(), policy_profiles.profile_names()).raw
    policy = policy_over(tmp_path, raw)
    assert len(policy.file.tests) > 60
    assert policy.self_test() == []


@pytest.mark.parametrize(
    ("command", "expect"),
    [
        ("ls notes.md ./sub/../notes.md", "allow"),
        ("ls .env", "deny"),
        ("ls x/../.env.md", "allow"),
        ("ls /x.md", "deny"),
        ("not-installed-anywhere x .env", "deny"),
        ("not-installed-anywhere x sub/../y", "allow"),
    ],
)
def test_a_path_with_an_expression_can_be_tested(tmp_path: Path, command: str, expect: str) -> None:
    (tmp_path / "notes.md").symlink_to(".env")
    rules = "[rules.ls]\noperands = ['path&/.*\\.md/']\n[rules.not-installed-anywhere]\noperands = ['path&!/\\.env/']\n"
    assert failures(tmp_path, f"{rules}[[tests]]\ncommand = '{command}'\nexpect = '{expect}'") == []
