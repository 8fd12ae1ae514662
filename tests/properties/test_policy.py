"""Properties of the verdict: deny only takes away, options are read as getopt reads them, allowed paths stay inside."""

import getopt
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.options import OptionTable, read
from broker.paths import declared, undeclared
from broker.policy import Policy
from broker.refusal import PolicyDenied
from broker.schema import Rule
from tests.support.gate import DEFAULT_POLICY, policy_over, verdict

settings.register_profile("policy", max_examples=150, deadline=None)
settings.load_profile("policy")


def one_of(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


NAMES = one_of("a b src sub x.py link out new ../a ../.. /etc/passwd . .. in")
OPTIONS = one_of(
    "-o -l -la -lo -ro -oa -k -kx --out --output --output=a --o --reverse --rev -n5 -5 -- - -e -C --color=always "
    "--file=../x -f/etc/x -fa --no-such"
)
WORDS = st.lists(NAMES | OPTIONS, max_size=5)
PROGRAMS = st.sampled_from(["ls", "sort", "grep", "git", "cat", "find"])
DENIED_OPTIONS = st.sets(
    st.sampled_from(["-o", "-l", "--output", "--reverse", "-e", "--color", "-C", "-name"])
)

RULES = {
    "bare": "",
    "deny": "deny_options = ['-k', '--no-such']\n",
    "allow": "allow_options = ['-l -a -r --reverse', '-o, --output=path', '-k, -C=text', '--color=always|never']\n",
    "operands": "operands = ['text', 'path']\n",
}


@pytest.fixture(scope="module")
def jail() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "jail"
        (root / "src" / "sub").mkdir(parents=True)
        (root.parent / "outside").mkdir()
        (root / "a").write_text("")
        (root / "link").symlink_to("/etc/passwd")
        (root / "out").symlink_to("../outside")
        (root / "in").symlink_to("src/sub")
        yield root


def rule_text(kind: str, denied: set[str]) -> str:
    text = RULES[kind]
    if denied and kind == "deny":
        return f"deny_options = {['-k', '--no-such', *sorted(denied)]}\n"
    return text + (f"deny_options = {sorted(denied)}\n" if denied else "")


def build(jail: Path, kind: str, denied_names: set[str], denied_options: set[str]) -> Policy:
    return policy_over(
        jail,
        f"[commands]\nallow = ['ls', 'sort', 'grep', 'git', 'cat', 'find']\ndeny = {sorted(denied_names)}\n"
        f"[rules.sort]\n{rule_text(kind, denied_options)}",
    )


@given(
    program=PROGRAMS,
    words=WORDS,
    kind=st.sampled_from(sorted(RULES)),
    names=st.sets(PROGRAMS),
    options=DENIED_OPTIONS,
)
def test_adding_a_deny_never_allows_more(
    jail: Path, program: str, words: list[str], kind: str, names: set[str], options: set[str]
) -> None:
    command = shlex.join(["sort" if options else program, *words])
    before, after = build(jail, kind, set(), set()), build(jail, kind, names, options)
    try:
        if verdict(after, command)[0]:
            assert verdict(before, command)[0]
    finally:
        before.jail.close()
        after.jail.close()


SHORT = "abcov"
LONG = ["all", "output", "color", "number"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[OptionTable, str, list[str]]:
    """Return a table, and the same options as getopt(3) spells them."""
    table, letters, names = OptionTable(Rule(), "[rules.x]"), "", []
    for letter in draw(st.sets(st.sampled_from(SHORT))):
        takes = draw(st.booleans())
        table.add(f"-{letter}=text" if takes else f"-{letter}")
        letters += letter + (":" if takes else "")
    for name in draw(st.sets(st.sampled_from(LONG))):
        takes = draw(st.booleans())
        table.add(f"--{name}=text" if takes else f"--{name}")
        names.append(name + ("=" if takes else ""))
    return table, letters, names


ARGUMENTS = st.lists(
    one_of("x y - -- -a -b -ab -oc -ovalue -o --all --output --output=1 --color --number=2 --out -v=1"),
    max_size=6,
)


@given(made=tables(), words=ARGUMENTS)
@settings(max_examples=400)
def test_what_is_accepted_is_read_as_getopt_reads_it(
    made: tuple[OptionTable, str, list[str]], words: list[str]
) -> None:
    table, letters, names = made
    try:
        reading = read(table, words)
    except PolicyDenied:
        return
    found, operands = getopt.gnu_getopt(words, letters, names)
    assert [word.text for word in reading.operands] == operands
    with_value = [(name, value) for name, value in found if table.options[name].kinds]
    assert [(word.option, word.text) for word in reading.values] == with_value


@given(words=st.lists(NAMES | OPTIONS | st.text("ab/.=:,@-~", max_size=12), max_size=4))
@example(words=["-//"])
@example(words=["-//etc/passwd"])
@example(words=["-/"])
@settings(max_examples=400)
def test_every_path_in_an_allowed_command_ends_beneath_the_jail(jail: Path, words: list[str]) -> None:
    policy = policy_over(jail, "[commands]\nallow = ['cat']")
    try:
        if verdict(policy, shlex.join(["cat", *words]))[0]:
            for word in words:
                attached = word[2:] if word.startswith("-") and not word.startswith("--") else ""
                for part in (word, *undeclared(word), *declared(word), attached, word.rpartition("=")[2]):
                    real = os.path.realpath(os.path.join(jail, part))
                    assert real == str(jail) or real.startswith(f"{jail}/")
    finally:
        policy.jail.close()


@pytest.fixture(scope="module")
def shipped(jail: Path) -> Policy:
    return policy_over(jail, DEFAULT_POLICY.read_bytes())


@given(
    program=st.sampled_from(["ls", "cat", "head", "sort", "wc", "diff", "stat", "du", "file"]), words=WORDS
)
def test_no_word_of_an_allowed_reading_command_of_the_default_policy_leads_out(
    jail: Path, shipped: Policy, program: str, words: list[str]
) -> None:
    if verdict(shipped, shlex.join([program, *words]))[0]:
        operands = [word for word in words if not word.startswith("-")]
        for word in operands:
            real = os.path.realpath(os.path.join(jail, word))
            taken_as_value = words[words.index(word) - 1].startswith("-") if words.index(word) else False
            assert taken_as_value or real == str(jail) or real.startswith(f"{jail}/")


@given(words=st.lists(st.text(max_size=30), max_size=4), program=PROGRAMS)
def test_any_words_get_a_verdict_with_a_short_reason(shipped: Policy, program: str, words: list[str]) -> None:
    _allowed, reason = verdict(shipped, shlex.join([program, *words]))
    assert 0 < len(reason) <= 300
