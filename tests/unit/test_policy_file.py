"""A policy file is decoded strictly, and all of its faults are told at once."""

import pytest

from broker.policy_file import check, grants_writes, load, named_programs
from broker.refusal import PolicyFaults, StartupError
from broker.schema import Rule
from tests.support.gate import DEFAULT_POLICY


def faults(text: str | bytes) -> list[str]:
    with pytest.raises(StartupError) as caught:
        load(text.encode() if isinstance(text, str) else text, "p.toml")
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, PolicyFaults):
        told = [f"line {fault}" for fault in caught.value.faults]
        assert str(caught.value) == "policy p.toml: " + "; ".join(told)
        return [f"policy p.toml: {fault}" for fault in told]
    return [str(caught.value)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "x: unknown key; one of commands,"),
        ("[commands]\nx = []", "line 2: commands.x: unknown key; one of allow, deny is expected"),
        ("[commands]\nalow = []", "line 2: commands.alow: unknown key; allow is meant, perhaps"),
        (
            "[commands]\nallow = 'ls'",
            "commands.allow: 'ls': Expected `array`, got `str`; a list is written ['ls']",
        ),
        ("[commands]\nallow = [1]", "commands.allow.1: 1: Expected `str`"),
        ("commands = 1", "commands: 1: a table is expected"),
        ("[limits]\ntimeout_s = 0", "limits.timeout_s: 0: Expected `float` > 0.0"),
        ("[rules.ls]\nwrites = 'yes'", "rules.ls.writes: 'yes': Expected `bool`"),
        ("[rules.git.subcommand.log]\nwrite = true", "rules.git.subcommand.log.write: unknown key"),
        ("[[tests]]\ncommand = 'ls'", "line 1: tests.1.expect: missing ('ls')"),
        (
            "[[tests]]\ncommand = 'ls'\nexpect = 'deny'\n\n[[tests]]\ncommand = 'cat a'\nexpect = 'maybe'",
            "line 7: tests.2.expect: 'maybe': 'allow' or 'deny' is expected ('cat a')",
        ),
        (
            "[[tests]]\ncommand = 'ls'\nexpect = 'deny'\n[[tests]]\ncommand = ' '\nexpect = 'deny'",
            "line 5: tests.2.command: '': a command is expected",
        ),
        (
            "[containment]\nmode = 'of'",
            "line 2: containment.mode: 'of': 'required' or 'best-effort' or 'off' is expected",
        ),
        (
            "[redaction]\nextra_patterns = [{ name = 'x', regx = '(' , regex = 'a' }]",
            "line 2: redaction.extra_patterns.1.regx: unknown key; regex is meant, perhaps ('x')",
        ),
        (
            "[commands]\nallow = ['a b']",
            "commands.allow: 'a b': a program's name or absolute path is expected",
        ),
        ("[commands]\nallow = ['./ls']", "commands.allow: './ls'"),
        ("[rules.ls]\noperands = []", "rules.ls: 'ls' is on no list"),
        ("[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['a']", "[rules.ls]: allow_options: 'a'"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['@x']",
            "line 4: [rules.ls]: allow_options: '@x': [options] has no such set; it has none",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['/(/']",
            "[rules.ls]: operands: '(' is no expression of RE2",
        ),
        ("[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['/a)|(b/']", "is no expression of RE2"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['pth']",
            "[rules.ls]: operands: 'pth' is no kind; path is meant, perhaps",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['?']",
            "operands: '?' is no kind; folder, integer, none, path,",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['src/a.out']",
            r"a|b or /…/ is expected; the word itself is written '/src/a\.out/'",
        ),
        ("[commands]\n[rule.ls]\nwrites = true", "line 2: rule: unknown key; rules is meant, perhaps"),
        ("[jail]\nroot = 5", "line 2: jail.root: 5: Expected `str`, got `int`"),
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
        ("a = 1\n\n b: 2", "line 3: no TOML: Expected '=' after a key in a key/value pair, column 3"),
        ("a = 1\n[x\n", "line 2: no TOML: "),
        ("a = [1,\n2,\n", "line 2: no TOML: "),
        ("a = 1\na = 2", "line 2: no TOML: Cannot overwrite a value, at the end"),
        ("[a.b]\nc = 1\n[a.b]\n", "line 3: no TOML: Cannot declare [a.b] twice (first in line 1), column 5"),
        ("[a]\nb.c = 1\n[a.b]\n", "line 3: no TOML: Cannot declare [a.b] twice, column 5"),
        (
            "a = []\n[[a]]\n",
            "line 2: no TOML: Cannot mutate immutable namespace [a] (first in line 1), column 4",
        ),
        (b"\xff", "byte 0 is no UTF-8"),
        (b"\xef\xbb\xbfx = 1", "begins with a byte order mark; save it as UTF-8 without one"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nmay_run = ['*']",
            "rules.ls.may_run: '*': a program's name or absolute path is expected",
        ),
    ],
)
def test_a_fault_is_told_with_file_key_value_and_expectation(text: str | bytes, expected: str) -> None:
    told = faults(text)
    assert len(told) == 1
    assert told[0].startswith("policy p.toml: ")
    assert expected in told[0]


BEFORE = r"""# [[tests]]
metacharacters = "unquoted" # = [
[commands]
allow = [
  'ls', # ]
  'a]b',
]
[environment]
set = { A = '''
[rules.ls]
''', B = "\"\n[" }
[[tests]]
command = '''
a
[rules.ls.limits]'''
expect = "deny"
"""


def test_a_fault_is_told_with_its_line_whatever_stands_before_it() -> None:
    (told,) = faults(f"{BEFORE}[rules . ls]\n\n writes=1\n[rules.'ls'.limits]\ncpu_s = 5\n")
    assert told == "policy p.toml: line 19: rules.ls.writes: 1: Expected `bool`, got `int`"


def test_the_faults_of_a_file_are_told_in_the_order_of_their_lines() -> None:
    told = faults(
        "[commands]\nallow = ['g']\n[rules.g]\n[rules.g.subcommand.b]\noperands = ['q']\n\nallow_options = ['y']\n"
        "[rules.h]\n[[tests]]\ncommand = ''\nexpect = 'deny'\n"
    )
    assert [fault.split(": ")[1] for fault in told] == [f"line {line}" for line in (5, 7, 8, 10)]


def test_all_faults_of_shape_are_told_at_once() -> None:
    told = faults("x = 1\ny = 2\n[commands]\nallow = [1, 2]\n[rules.ls]\nz = 1\n[[tests]]\nexpect = 1")
    assert len(told) == 7


EVERYTHING_WRONG = """
globls = "refuse"
[commands]
allow = ["ls", "cat", "wc"]
[rules.ls]
wrties = true
[rules.cat]
operands = ["pth"]
[rules.grep]
writes = true
[environment]
path = ["bin"]
[containment]
run_as = "nobody-of-that-name"
[redaction]
extra_patterns = [{ name = "x", regex = "(" }, { name = "y", regex = "[" }]
[[tests]]
command = "wc a"
expect = "deny"
[[tests]]
command = "cat a"
expect = "deny"
[[tests]]
command = "ls a"
expect = "deny"
"""


def test_no_kind_of_fault_hides_another() -> None:
    told = "\n".join(faults(EVERYTHING_WRONG))
    for expected in (
        "line 2: globls: unknown key",
        "line 6: rules.ls.wrties: unknown key",
        "line 8: [rules.cat]: operands: 'pth' is no kind",
        "line 9: rules.grep: 'grep' is on no list",
        "line 12: environment.path: 'bin'",
        "line 14: containment.run_as: there is no user",
        "line 16: redaction.extra_patterns: x: ",
        "line 16: redaction.extra_patterns: y: ",
        "line 17: tests.1: self-test failed: 'wc a': deny expected, got allow",
    ):
        assert expected in told
    assert told.count("\n") == 8, (
        "the tests of cat and ls may fail only because of what is wrong with their rules"
    )


def test_whoever_checks_a_policy_for_root_need_not_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    check(b'[containment]\nrun_as = "daemon"', "p.toml")
    with pytest.raises(PolicyFaults, match="there is no user 'nobody-of-that-name'"):
        check(b'[containment]\nrun_as = "nobody-of-that-name"', "p.toml")


@pytest.mark.parametrize(
    "text",
    [
        "[commands]\nallow = 'ls'\n[rules.ls]\nwrites = true\n[[tests]]\ncommand = 'ls'\nexpect = 'allow'",
        "[commands]\nallow = ['ls']\n[options]\nx = 5\n[rules.ls]\nallow_options = ['@x']\nrequire_options = ['-a']",
        "[commands]\nallow = ['ls']\n[profile.p]\nalow = ['cat']\n[profile.p.rules.cat]\nwrites = true",
        "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = [5]\nrequire_options = ['-a']",
        "[commands]\nallow = ['ls']\n[[tests]]\ncommand = 'ls'",
    ],
)
def test_nothing_is_told_that_is_only_so_because_of_another_fault(text: str) -> None:
    assert len(faults(text)) == 1


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


OVER = b"""
[commands]
allow = ["g"]
[rules.g]
arguments_before = ["--safe"]
[rules.g.subcommand.list]
allow_options = ["-v"]
[rules.g.subcommand.show]
[profile.more.rules.g.subcommand.list]
writes = true
[profile.more.rules.g.subcommand.new]
operands = ["text"]
"""


def test_the_rules_of_a_profile_replace_those_of_the_same_name_and_leave_the_others() -> None:
    rule = load(OVER, "p").rules["g"]
    assert rule.arguments_before == ("--safe",)
    assert set(rule.subcommand) == {"list", "show", "new"}
    assert rule.subcommand["list"] == Rule(writes=True)
    assert grants_writes(load(OVER, "p"))


def test_a_rule_of_a_profile_that_says_something_itself_replaces_all_of_the_one_below() -> None:
    rule = load(OVER + b"[profile.more.rules.g]\noptions_first = true\n", "p").rules["g"]
    assert (rule.arguments_before, set(rule.subcommand)) == ((), {"list", "new"})


def test_a_fault_in_a_rule_of_a_profile_is_told_with_its_own_line() -> None:
    (told,) = faults(OVER + b"[profile.more.rules.h]\n")
    assert told.startswith(f"policy p.toml: line {OVER.count(10) + 1}: rules.h: 'h' is on no list")


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
