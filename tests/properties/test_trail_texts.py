"""No placement of quotes within a secret leaves any of it in a record, whether the command can be read or not."""

import re
import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.audit_record import Call
from broker.audit_text import Shown, show_call, show_reason
from broker.redaction import Redactor
from broker.redaction_catalogue import catalogue
from tests.support.random_text import filled

redact = Redactor().redact
EXAMPLES = sorted({example for pattern in catalogue().patterns for example in pattern.examples})
KEYED = ["DB_PASSWORD={base62:20}", "tool --token {base62:20} x", "api.key={hex:32}", "--password {base62:9}"]
KEYED += ["https://{base62:24}@git.example.com/"]
TEXTS = st.builds(filled, st.sampled_from([e for e in EXAMPLES if "\n" not in e] + KEYED), st.integers(1, 50))
MARKS = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["''", '""', "'", '"', "\\"])), max_size=5)
PIECE = 6
MARKER = re.compile(r"\[REDACTED:\w+\]")


def marked(text: str, marks: list[tuple[int, str]]) -> str:
    """The text with the marks in it, each at its place or at the end."""
    for place, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text


def shown_for(command: str) -> Shown:
    """What the trail shows of the command, where a shell would split it, or where it cannot be read."""
    try:
        argv: tuple[str, ...] | None = tuple(shlex.split(command))
    except ValueError:
        argv = None
    call = Call(tool="run_command", command_raw=command, policy_sha256="", argv=argv, cwd="src")
    return show_call(call, redact)


def bare(text: str) -> str:
    return text.translate(str.maketrans("", "", "'\"\\ "))


def removed(before: str, after: str) -> set[str]:
    """The pieces that redaction took out."""
    shown = bare(after)
    whole = bare(before)
    pieces = {whole[at : at + PIECE] for at in range(len(whole) - PIECE + 1)}
    return {piece for piece in pieces if piece not in shown}


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, marks=MARKS)
def test_no_quotes_in_a_secret_leave_a_piece_of_it_in_a_record(
    text: str, marks: list[tuple[int, str]]
) -> None:
    plain = "echo " + text.translate(str.maketrans("", "", "'\"\\"))
    command = "echo " + marked(text, marks)
    if plain == redact(plain):
        return
    shown = shown_for(command)
    record = bare(MARKER.sub("\0", " ".join((shown.command_raw, *(shown.argv or ())))))
    assert not [piece for piece in removed(plain, redact(plain)) if piece in record]


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, marks=MARKS)
def test_the_reason_shows_no_more_than_the_command(text: str, marks: list[tuple[int, str]]) -> None:
    command = "tool --token " + marked(text.replace(" ", ""), marks)
    shown = shown_for(command)
    for word in command.split():
        reason = show_reason(f"no rule for {bare(word)}", shown, redact)
        assert not shown.taken.shows_in(reason)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60), marks=MARKS)
def test_a_command_without_a_secret_is_shown_as_it_was_typed(text: str, marks: list[tuple[int, str]]) -> None:
    command = "cat " + marked(text.replace("\\", "").replace("'", "").replace('"', ""), marks)
    assert shown_for(command).command_raw == command
