"""The grammar against real shells, on generated input: what we accept, a shell passes on as the same words."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.grammar import parse
from broker.grammar_reasons import hidden_characters
from broker.refusal import Refusal

EXAMPLES = 150
BATCH = 40
SEPARATOR = "\x01"  # never in an accepted command

# Mostly what a shell treats in some way, so that many texts come near an edge.
PIECES = st.sampled_from(
    [
        *"ab1'\"{},.~#!()[]*?-=:/\\$;&|<> \t\n^%@+_",
        "\u00e9",
        "..",
        "{a,b}",
        "{1..3}",
        "''",
        '""',
        "[ab]",
        "a=",
        "~/",
        "' '",
    ]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=12).map("".join)
VISIBLE = st.characters(blacklist_categories=("Cs", "Cc", "Cf", "Zs", "Zl", "Zp")).filter(
    lambda character: not hidden_characters().search("\u2600" + character)
)
WORDS = st.lists(st.text(VISIBLE | st.sampled_from(" '\"\\$`\n\t")), min_size=1, max_size=8)

SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]


def accepted(text: str) -> tuple[str, ...] | None:
    """The words behind the program's name, None if the command is refused or has live globs."""
    try:
        argv = parse("printf " + text)
    except Refusal:
        return None
    return None if argv.has_globs else argv.texts[1:]


def shell_words(shell: str, texts: list[str], folder: Path) -> list[tuple[str, ...]]:
    """What `shell` passes on for each text, all in one run; HOME is set so that an expanded tilde shows."""
    marks = "".join(f"\nset -- {text}\nprintf '%s\\0' \"$@\"; printf '\\1\\0'" for text in texts)
    done = subprocess.run(
        [shell, "-c", marks],
        cwd=folder,
        env={"LC_ALL": "C.UTF-8", "HOME": "/expanded"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    groups = done.stdout.decode().split(f"{SEPARATOR}\0")[:-1]
    return [tuple(group.split("\0")[:-1]) for group in groups]


def real_words(shell: str, texts: list[str], folder: Path) -> list[tuple[str, ...]]:
    # printf '%s\0' without an operand prints one NUL: no operands and one empty operand look alike, so a first word is added.
    return [words[1:] for words in shell_words(shell, ["first " + text for text in texts], folder)]


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=EXAMPLES // 5, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(texts=st.lists(TEXTS, min_size=BATCH, max_size=BATCH * 3))
def test_what_is_accepted_is_what_a_real_shell_passes_on(
    shell: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours = {text: words for text in texts if (words := accepted(text)) is not None}
    folder = tmp_path_factory.getbasetemp()
    assert real_words(shell, list(ours), folder) == list(ours.values())


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(words=WORDS)
def test_a_quoted_argv_parses_back_to_itself(words: list[str]) -> None:
    assert parse("x " + shlex.join(words)).texts == ("x", *words)


@settings(max_examples=EXAMPLES * 4, deadline=None, database=None)
@given(text=TEXTS | st.text(max_size=30))
def test_every_command_is_parsed_or_refused_and_never_anything_else(text: str) -> None:
    try:
        argv = parse(text)
    except Refusal as refusal:
        reason = refusal.reason
    else:
        reason = "x"
        assert argv.words
        assert all("\0" not in word.text for word in argv.words)
    assert 0 < len(reason) < 300


@settings(max_examples=EXAMPLES * 4, deadline=None, database=None)
@given(text=TEXTS)
def test_a_stricter_policy_never_accepts_more(text: str) -> None:
    for options in ({"metacharacters": "anywhere"}, {"globs": "refuse"}):
        try:
            strict = parse(text, **options)  # type: ignore[arg-type]
        except Refusal:
            continue
        assert parse(text) == strict
