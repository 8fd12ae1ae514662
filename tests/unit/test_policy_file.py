"""A policy file is decoded strictly, and all of its faults are told at once."""

import pytest

from broker import policy_file
from broker.policy_file import grants_writes, load, named_programs
from broker.refusal import PolicyFaults, StartupError
from tests.support.gate import DEFAULT_POLICY


def faults(text: str | bytes) -> list[str]:
    with pytest.raises(StartupError) as caught:
        load(text.encode() if isinstance(text, str) else text, "p.toml")
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, PolicyFaults):
        return [f"policy p.toml: {fault}" for fault in caught.value.faults]
    return [str(caught.value)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "x: unknown key; one of commands,"),
        ("[commands]\nalow = []", "commands.alow: unknown key; one of allow, deny is expected"),
        ("[commands]\nallow = 'ls'", "commands.allow: 'ls': Expected `array`"),
        ("[commands]\nallow = [1]", "commands.allow.0: 1: Expected `str`"),
        ("commands = 1", "commands: 1: a table is expected"),
        ("[limits]\ntimeout_s = 0", "limits.timeout_s: 0: Expected `float` > 0.0"),
        ("[rules.ls]\nwrites = 'yes'", "rules.ls.writes: 'yes': Expected `bool`"),
        ("[rules.git.subcommand.log]\nwrite = true", "rules.git.subcommand.log.write: unknown key"),
        ("[[tests]]\ncommand = 'ls'", "tests.0.expect: missing"),
        ("[containment]\nmode = 'of'", "containment.mode: 'of': Invalid enum value"),
        (
            "[commands]\nallow = ['a b']",
            "commands.allow: 'a b': a program's name or absolute path is expected",
        ),
        ("[commands]\nallow = ['./ls']", "commands.allow: './ls'"),
        ("[rules.ls]\noperands = []", "rules.ls: 'ls' is on no list"),
        ("[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['a']", "[rules.ls]: allow_options: 'a'"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['@x']",
            "[rules.ls]: allow_options: '@x': a set",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['/(/']",
            "[rules.ls]: operands: '(' is no expression of RE2",
        ),
        ("[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['/a)|(b/']", "is no expression of RE2"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['pth']",
            "[rules.ls]: operands: 'pth' is no kind",
        ),
        ("[commands]\nallow = ['ls']\n[rules.ls]\ndeny_options = ['o']", "[rules.ls]: deny_options: 'o'"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nrequire_options = ['-o']",
            "[rules.ls]: require_options: '-o'",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g]\nsubcommands = ['a']\n[rules.g.subcommand.b]",
            "[rules.g]: subcommand.b: a name in [rules.g] subcommands is expected",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g]\nsubcommands = ['a']\noperands = ['path']",
            "rules.g.operands: none are",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g]\narguments = 'any'\nallow_options = []",
            "rules.g.arguments: 'any'",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g]\nread = ['x']",
            "rules.g.read: 'x': an absolute path is expected",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g]\nenvironment = { '1' = '' }",
            "rules.g.environment.1: a variable's name",
        ),
        ("[environment]\npath = ['bin']", "environment.path: 'bin': an absolute path is expected"),
        (
            "[options]\na = ['@a']\n[commands]\nallow = ['g']\n[rules.g]\nallow_options = ['@a']",
            "contain itself",
        ),
        ("[x", "no TOML"),
        (b"\xff", "byte 0 is no UTF-8"),
    ],
)
def test_a_fault_is_told_with_file_key_value_and_expectation(text: str | bytes, expected: str) -> None:
    told = faults(text)
    assert len(told) == 1
    assert told[0].startswith("policy p.toml: ")
    assert expected in told[0]


def test_all_faults_of_shape_are_told_at_once() -> None:
    told = faults("x = 1\ny = 2\n[commands]\nallow = [1, 2]\n[rules.ls]\nz = 1\n[[tests]]\nexpect = 1")
    assert len(told) == 7


def test_all_faults_of_meaning_are_told_at_once() -> None:
    told = faults(
        "[commands]\nallow = ['ls', 'a b']\n[rules.cat]\nallow_options = ['x', '-A=foo']\noperands = ['/(/']\n"
        "[rules.ls.subcommand.a]\nallow_options = ['y']\n[rules.ls.subcommand.b]\noperands = ['q']"
    )
    assert len(told) == 7


def test_a_policy_with_nothing_in_it_allows_nothing() -> None:
    assert load(b"", "p.toml").commands.allow == ()


def test_deeply_nested_lists_are_a_fault() -> None:
    assert "p.toml" in faults(b"x = " + b"[" * 100_000)[0]


@pytest.mark.parametrize("name", policy_file.profile_names())
def test_each_profile_can_be_added_to_the_default_policy(name: str) -> None:
    merged = policy_file.with_profiles(DEFAULT_POLICY.read_bytes(), [name])
    assert merged.startswith(DEFAULT_POLICY.read_bytes())
    assert set(load(merged, "p").commands.allow) >= set(load(merged, "p").profile[name].allow)


def test_all_profiles_together_can_be_added() -> None:
    policy_file.with_profiles(DEFAULT_POLICY.read_bytes(), policy_file.profile_names())


@pytest.mark.parametrize("name", ["nope", "../policy", ""])
def test_an_unknown_profile_is_refused_by_name(name: str) -> None:
    with pytest.raises(StartupError, match="git-write, go, make, node, python, rust"):
        policy_file.with_profiles(b"", [name])


def test_writes_of_a_subcommand_count_as_writes() -> None:
    assert not grants_writes(load(DEFAULT_POLICY.read_bytes(), "p"))
    assert grants_writes(load(b"[commands]\nallow = ['g']\n[rules.g.subcommand.a]\nwrites = true", "p"))


def test_programs_to_look_up_are_the_allowed_and_the_startable_less_the_denied() -> None:
    file = load(
        b"[commands]\nallow = ['a', 'b']\ndeny = ['b', 'c']\n[rules.a]\nmay_run = ['d', '/x/c']\n"
        b"[rules.a.subcommand.s]\nmay_run = ['e', '/usr/bin/en*v']",
        "p",
    )
    assert named_programs(file) == {"a", "d", "e", "/usr/bin/env"}
