"""Ready-made entries come below a policy that is there: whole, once, and never against what it says itself."""

import re
from pathlib import Path

import pytest

from broker import policy_profiles
from broker.policy_file import load
from broker.policy_profiles import check, profile_names, with_profiles
from broker.refusal import StartupError
from tests.support.gate import DEFAULT_POLICY

SHIPPED = DEFAULT_POLICY.read_bytes()
OWN = (
    SHIPPED
    + b"""
[profile.folders]
allow = ["mkdir"]
[rules.mkdir]
writes = true"""
)


@pytest.mark.parametrize("name", profile_names())
def test_each_profile_can_be_added_to_the_shipped_policy_and_to_one_that_was_edited(name: str) -> None:
    for raw in (SHIPPED, OWN):
        merged = with_profiles(raw, [name]).raw
        assert merged.startswith(raw)
        file = load(merged, "p")
        assert set(file.commands.allow) >= set(file.profile[name].allow)


def test_all_profiles_together_can_be_added_and_pass_their_tests(tmp_path: Path) -> None:
    merged = with_profiles(OWN, profile_names())
    check(merged.raw, str(tmp_path / "policy.toml"))
    for name in profile_names():
        assert f"[profile.{name}]" in merged.headers


@pytest.mark.parametrize("name", profile_names())
def test_what_is_added_is_all_of_the_profile_with_its_comments(name: str) -> None:
    shipped = (Path(policy_profiles.FOLDER) / f"{name}.toml").read_bytes()
    assert with_profiles(SHIPPED, [name]).raw == SHIPPED + shipped


def test_a_profile_that_is_there_is_not_added_again() -> None:
    once = with_profiles(OWN, profile_names()).raw
    assert with_profiles(once, [*reversed(profile_names()), "python"]) == (once, [])


def test_a_table_of_advice_that_was_changed_is_named() -> None:
    once = with_profiles(SHIPPED, ["go"]).raw
    changed = once.replace(b'get = "there is no network', b'get = "ask me first')
    assert changed != once
    with pytest.raises(StartupError, match=re.escape("[rules.go.instead] is in it already")):
        with_profiles(changed, ["go"])


def test_of_a_profile_that_is_there_in_part_the_rest_is_added() -> None:
    once = with_profiles(OWN, ["python"]).raw
    cut = once[: once.rindex(b"[rules.pip.subcommand.freeze]")]
    added = with_profiles(cut, ["python"])
    assert added.headers[0] == "[rules.pip.subcommand.freeze]"
    assert set(added.headers[1:]) == {"[[tests]]"}
    assert load(added.raw, "p") == load(once, "p")


@pytest.mark.parametrize(
    ("own", "profile", "named"),
    [
        (
            b"[rules.make]\nwrites = true\n[profile.x]\nallow = ['make']",
            "make",
            "[rules.make] is in it already",
        ),
        (
            b"[rules.git.subcommand.add]\nwrites = true",
            "git-write",
            "[rules.git.subcommand.add] is in it already",
        ),
        (b"[profile.make]\nallow = []", "make", "[profile.make] is in it already"),
        (b"[profile.x.options]\n[profile.go]", "go", "[profile.go] is in it already"),
    ],
)
def test_a_profile_that_contradicts_the_policy_is_refused_by_name(
    own: bytes, profile: str, named: str
) -> None:
    with pytest.raises(StartupError, match=re.escape(named)):
        with_profiles(SHIPPED + own, [profile])


def test_a_set_of_options_that_would_win_over_the_profiles_is_named() -> None:
    raw = SHIPPED.replace(b"\n[options]\n", b"\n[options]\npytest = ['-c=text']\n")
    with pytest.raises(StartupError, match=r"\[options\] pytest is in it already"):
        with_profiles(raw, ["python"])


def test_a_profile_is_not_added_where_the_entry_that_hardens_it_is_missing() -> None:
    bare = b"[commands]\nallow = ['ls']\n"
    with pytest.raises(StartupError, match=r"\[rules.git\] is missing"):
        with_profiles(bare, ["git-write"])
    assert with_profiles(bare, ["make"]).headers[0] == "[profile.make]"


def test_a_profile_of_a_denied_program_is_not_added() -> None:
    raw = SHIPPED.replace(b"[commands]\n", b"[commands]\ndeny = ['git']\n")
    with pytest.raises(StartupError, match="git is on the deny list"):
        with_profiles(raw, ["git-write"])


def test_a_profile_that_breaks_a_test_of_the_policy_is_told_before_it_is_written(tmp_path: Path) -> None:
    raw = SHIPPED + b"\n[[tests]]\ncommand = 'git add a'\nexpect = 'deny'\n"
    with pytest.raises(StartupError, match="self-test failed: 'git add a'"):
        check(with_profiles(raw, ["git-write"]).raw, str(tmp_path / "policy.toml"))


@pytest.mark.parametrize("name", ["nope", "../policy", ""])
def test_an_unknown_profile_is_refused_by_name(name: str) -> None:
    with pytest.raises(StartupError, match="git-write, go, make, node, python, rust"):
        with_profiles(b"", [name])
