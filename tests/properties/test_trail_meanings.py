"""However a secret is written in a command, or in arguments that are none, no record shows it.

Each text here is one that redaction hides from. It is written as a shell, `printf`, `echo -e` or JSON reads it, in quotes and
escapes by chance, within a command that the gate can read, one that it cannot, and arguments that are cut.
"""

import json
import random
import re
import shlex
import string
from collections.abc import Callable

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker.audit_meanings import decoded, meanings
from broker.audit_record import Call
from broker.audit_text import hidden_parts, show_call
from broker.redaction import Redactor
from broker.redaction_catalogue import catalogue
from protocol.client import excerpt
from protocol.messages import ARGUMENTS_CHARACTERS
from tests.support.made_secrets import every_kind
from tests.support.random_text import filled

redact = Redactor().redact
CATALOGUE = sorted(
    {pattern_example for pattern in catalogue().patterns for pattern_example in pattern.examples}
)
KEYED = [
    "password:\n  {base62:20}",
    "DB_PASSWORD\t{base62:20}",
    "password,user\n{base62:20},bob",
    'secret_key "{base62:20}"',
    'password: "{base62:20}"',
    "contraseña={base62:20}",
    "пароль: {base62:20}",
    "--password={base62:20}",
    "https://bob:{base62:20}@example.com/x",
    '{{"password": "{base62:20}"}}',
    "Authorization: Bearer {base62:32}",
]
TEXTS = st.one_of(
    st.builds(filled, st.sampled_from(CATALOGUE), st.integers(1, 20)),
    st.builds(filled, st.sampled_from(KEYED), st.integers(1, 20)),
    st.sampled_from([made.text for made in every_kind()]),
)
PIECE = 8
UNSLASHED = re.compile(r"(?<!\\)(?:x[0-9a-f]{2}|u[0-9a-f]{4}|(?<![0-9])[0-7]{3})")
"""An escape that has lost its backslash: who looks for it can read it all the same."""


def bare(text: str) -> str:
    return text.translate(str.maketrans("", "", "'\"\\ \t\n"))


def secret_pieces(text: str) -> set[str]:
    """The pieces of what redaction hides of the text that it does not show elsewhere."""
    clean = redact(text)
    hidden = [bare(part) for part, _ in hidden_parts(text, clean)]
    pieces = {part[at : at + PIECE] for part in hidden for at in range(max(1, len(part) - PIECE + 1))}
    return {
        piece for piece in pieces if len(piece) == PIECE and "---" not in piece and piece not in bare(clean)
    }


def escaped(text: str, chance: random.Random, part: float) -> str:
    """As printf and echo -e read it, `part` of its characters in escapes."""
    return "".join(
        _escape(character, chance) if _must(character) or chance.random() < part else character
        for character in text
    )


def _must(character: str) -> bool:
    return character in "\n\t\\'"


def _escape(character: str, chance: random.Random) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}
    if character in named and chance.random() < 0.7:
        return named[character]
    ways = ["".join(f"\\x{byte:02x}" for byte in character.encode()), f"\\u{ord(character):04x}"]
    ways += ["".join(f"\\{byte:03o}" for byte in character.encode())]
    return chance.choice(ways)


def quoted(text: str, chance: random.Random) -> str:
    """As a shell reads it, with quotes wherever they may be."""
    out: list[str] = []
    while text:
        size = chance.choice([1, 3, 9, 30])
        piece, text = text[:size], text[size:]
        if set(piece) <= set(string.ascii_letters + string.digits + "_-=:/.,@+%") and chance.random() < 0.4:
            out.append(piece)
        elif not set(piece) & set('"$`\\!') and chance.random() < 0.5:
            out.append(f'"{piece}"')
        else:
            out.append(shlex.quote(piece))
    return "".join(out)


def in_c_quotes(text: str, chance: random.Random) -> str:
    return "$'" + escaped(text, chance, 0.1) + "'"


def for_printf(text: str, chance: random.Random) -> str:
    return quoted(escaped(text, chance, 0.1), chance)


WRITTEN: dict[str, Callable[[str, random.Random], str]] = {
    "in quotes": quoted,
    "in escapes": for_printf,
    "in C quotes": in_c_quotes,
}
COMMANDS = ["printf @", "echo -e @ tail", "tool -x @", "sh -c @"]
UNREAD = [
    "cd x && printf @ | tee f",
    "echo $(x) @",
    "echo it\\'s; cat <<< @",
    "{ printf @; }",
    "a=@ tool > f",
]
ARGUMENTS = [
    '{"command": #, "x": NaN}',
    '{"command": #, "command": #}',
    '{"command": # , "y": "zzz',
    '{"argv": ["ls", #]}',
]


def leaks(text: str, call: Call) -> list[str]:
    """The pieces of the text's secrets that the record shows, as it stands or to whom decodes it."""
    shown = show_call(call, redact)
    record = " ".join((shown.command_raw, *(shown.argv or ())))
    readers = (
        record,
        UNSLASHED.sub(r"\\\g<0>", record),
        *meanings(record, None),
    )
    forms = [bare(form) for reader in readers for form in (reader, decoded(reader))]
    return [piece for piece in secret_pieces(text) if any(piece in form for form in forms)]


def a_call(command: str, argv: tuple[str, ...] | None) -> Call:
    return Call(tool="run_command", command_raw=command, policy_sha256="", argv=argv, cwd=".")


@settings(max_examples=600, deadline=None)
@given(
    text=TEXTS,
    command=st.sampled_from(COMMANDS + UNREAD),
    way=st.sampled_from(sorted(WRITTEN)),
    seed=st.integers(0, 10**6),
)
def test_no_way_to_write_a_secret_in_a_command_shows_it(text: str, command: str, way: str, seed: int) -> None:
    is_read = command in COMMANDS
    # some are only known where nothing else stands in their line: however they are written, they are not in a command
    assume(not leaks(text, _call_of(command, shlex.quote(text), is_read=is_read)))
    word = WRITTEN[way](text, random.Random(seed))
    assert not leaks(text, _call_of(command, word, is_read=is_read and "$'" not in word))


def _call_of(command: str, word: str, *, is_read: bool) -> Call:
    command = command.replace("@", word)
    return a_call(command, tuple(shlex.split(command)) if is_read else None)


@settings(max_examples=300, deadline=None)
@given(
    text=TEXTS,
    arguments=st.sampled_from(ARGUMENTS),
    way=st.sampled_from(sorted(WRITTEN)),
    before=st.integers(0, 2_000),
    seed=st.integers(0, 10**6),
    ascii_only=st.booleans(),
)
def test_no_way_to_write_a_secret_in_arguments_that_are_none_shows_it(
    text: str, arguments: str, way: str, before: int, seed: int, *, ascii_only: bool
) -> None:
    command = "x " * before + "printf " + WRITTEN[way](text, random.Random(seed))
    arguments = arguments.replace("#", json.dumps(command, ensure_ascii=ascii_only))
    assert not leaks(text, a_call(excerpt(arguments, ARGUMENTS_CHARACTERS), None))
