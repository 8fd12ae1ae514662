"""The description of a policy is complete where it fits, bounded where it does not, and tells nothing private."""

from pathlib import Path

import pytest

from broker import policy_profiles
from broker.describe import DESCRIPTION_BYTES
from tests.support.gate import DEFAULT_POLICY, policy_over


def test_the_default_policy_is_described_with_every_program_and_subcommand_under_8_kib(
    tmp_path: Path,
) -> None:
    policy = policy_over(tmp_path, DEFAULT_POLICY.read_bytes())
    text = policy.describe()
    assert len(text.encode()) < DESCRIPTION_BYTES
    lines = text.splitlines()
    for name in policy.programs:
        assert any(name in line.partition(":")[0].split(", ") for line in lines)
    assert any(line.startswith("  git log, show") and " -n " in line for line in lines)
    assert "30 s" in text
    assert "Never available: a shell, pipes" in text


@pytest.mark.parametrize("count", [0, 1, 300, 3_000])
def test_any_policy_is_described_under_8_kib(tmp_path: Path, count: int) -> None:
    names = [f"program-with-a-long-name-{number}" for number in range(count)]
    text = policy_over(tmp_path, f"[commands]\nallow = {names}").describe()
    assert len(text.encode()) < DESCRIPTION_BYTES
    assert count < 300 or "more" in text or names[-1] in text


def test_rights_are_described(tmp_path: Path) -> None:
    policy = policy_over(
        tmp_path,
        "[commands]\nallow = ['a', 'b']\n[rules.a]\nwrites = true\nnetwork = true\n[rules.b]\ntemporary = true",
    )
    assert "\na [writes] [network]: any options" in policy.describe()
    assert "\nb [temporary folder]: any options" in policy.describe()


def test_what_is_not_installed_is_said_to_be_so(tmp_path: Path) -> None:
    policy = policy_over(tmp_path, "[commands]\nallow = ['ls', 'a', 'cat', 'b']")
    assert "\nAllowed, but not installed here: a, b.\n" in policy.describe()
    assert policy.callable == ("ls", "cat")
    assert "not installed" not in policy_over(tmp_path, "[commands]\nallow = ['ls']").describe()


def test_places_outside_the_jail_and_fixed_variables_are_not_described(tmp_path: Path) -> None:
    policy = policy_over(
        tmp_path,
        "[commands]\nallow = ['a']\n[rules.a]\nread = ['/opt/private']\nenvironment = { A = 'hidden' }\n"
        "arguments_before = ['--inner']",
    )
    for private in ("/opt/private", "hidden", "--inner", str(tmp_path)):
        assert private not in policy.describe()


def test_a_policy_with_all_profiles_still_names_every_program(tmp_path: Path) -> None:
    raw = policy_profiles.with_profiles(DEFAULT_POLICY.read_bytes(), policy_profiles.profile_names()).raw
    policy = policy_over(tmp_path, raw)
    lines = policy.describe().splitlines()
    for name in policy.programs:
        assert any(name in line.partition(":")[0].partition(" [")[0].split(", ") for line in lines)


EVERYDAY = {
    "ls": "laRth1",
    "grep": "rinlwcEF",
    "find": ["-maxdepth", "-name", "-type", "-newer"],
    "cat": "n",
    "head": ["-NUM", "-n", "-c"],
    "tail": ["-NUM", "-n"],
    "wc": "lwc",
    "sort": "nrukt",
    "diff": "urqU",
    "du": "shad",
    "tree": "adL",
    "cut": "dfc",
    "git log, show, whatchanged": "pn",
    "git diff": "wU",
    "git status": "sb",
}
"""What people type most; a text behind a program is letters."""


@pytest.mark.parametrize("program", EVERYDAY)
def test_the_default_policy_shows_the_options_that_are_used_most(tmp_path: Path, program: str) -> None:
    text = policy_over(tmp_path, DEFAULT_POLICY.read_bytes()).describe()
    line = next(line for line in text.splitlines() if line.lstrip().startswith(program + ":"))
    shown = line.partition(": ")[2].partition(";")[0].split(" ")
    letters = {letter for word in shown if not word.startswith("--") for letter in word[1:]}
    wanted = EVERYDAY[program]
    assert set(wanted) <= (letters if isinstance(wanted, str) else set(shown)), line


def test_a_description_says_that_it_is_short_and_who_knows_the_rest(tmp_path: Path) -> None:
    text = policy_over(tmp_path, DEFAULT_POLICY.read_bytes()).describe()
    assert "This is shortened" in text
    assert "explain_command knows the rest" in text
    assert len(text.encode()) > 0.97 * DESCRIPTION_BYTES, "room is left that could say more"


def test_an_option_is_described_by_its_shortest_name_and_flags_are_one_word(tmp_path: Path) -> None:
    policy = policy_over(
        tmp_path,
        "[commands]\nallow = ['a', 'b', 'c']\n[rules.a]\n"
        "allow_options = ['-l', '--help', '-NUM', '-x5', '-n, --lines=integer', '--[no-]color', '-q, --quiet']\n"
        "[rules.b]\nallow_options = ['-H -print', '-name=text']\noption_style = 'single-dash'\noperands = ['none']\n"
        "[rules.c]\nallow_options = []",
    )
    lines = policy.describe().splitlines()
    assert lines[-3:] == [
        "a: -lxq -NUM -n --[no-]color --help",
        "b: -name -H -print; operands: none",
        "c: no options",
    ]


def test_a_word_of_flags_that_is_too_long_is_cut_between_letters(tmp_path: Path) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = [f"program-{number}" for number in range(140)]
    rules = "".join(
        f"[rules.{name}]\nallow_options = ['-{letters}']\noperands = ['/x{name}/']\n" for name in names
    )
    text = policy_over(tmp_path, f"[commands]\nallow = {names}\n{rules}").describe()
    assert "\nprogram-0: -abc" in text
    assert "…; operands: /xprogram-0/ …" in text


def test_what_two_programs_share_is_described_once(tmp_path: Path) -> None:
    rules = "".join(f"[rules.{name}.subcommand.run]\nallow_options = ['-x']\n" for name in ("py", "python"))
    text = policy_over(tmp_path, f"[commands]\nallow = ['py', 'python']\n{rules}").describe()
    assert text.splitlines()[-2:] == ["py, python: no options; then a subcommand", "  py|python run: -x"]
