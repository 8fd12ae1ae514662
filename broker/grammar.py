"""From a command string to an argv, or a refusal. No shell exists.

What always holds:
- what a POSIX shell would pass on literally is passed on literally; what a shell would act upon is refused.
  Where bash acts and POSIX does not (`{a,b}`, `a[0]=1`, `a=~`), people think of bash: refused as well;
- who reads the command reads what runs: no control or invisible character is let through, quoted or not;
- no word is split, joined or changed after this module; live globs are marked here, `globs` expands them;
- a reason names a character and its column (from 1), and repeats no word of the input: it might be a secret.

It must not look at the file system, and it must not know any program, `find` excepted, whose `(`, `)` and `!`
are operators of its own.
"""

import re
from typing import Literal

import msgspec

from broker import grammar_reasons as reasons
from broker.refusal import ParseError, PolicyDenied
from protocol.messages import COMMAND_CHARACTERS, PATH_CHARACTERS

WORDS = 4_096
"""The most words of a command."""

WORD_BYTES = 131_071
"""The longest word: MAX_ARG_STRLEN of linux/binfmts.h (32 pages) less the NUL."""

OPENERS = 64
"""The most unquoted `{`, and the most unquoted `[`, in one word: each is followed to its end, and time must not grow squared."""

QUOTED = "\0"
"""Stands in an outline for each quoted character; the input holds no NUL."""

_TOKEN = re.compile(
    r"""([ \t]+)                            # 1 blanks end a word
    |([^ \t\n'"`\\$;|&<>]+)                 # 2 unquoted, and judged by `_word`
    |'([^']*)'                              # 3
    |"([^"`\\$]*)"                          # 4
    |([\s\S])                               # 5 a metacharacter, or a quote that does not end well
    """,
    re.VERBOSE,
)
_BLANK, _UNQUOTED, _OTHER = 1, 2, 5
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f]")
_METACHARACTER = re.compile(r"[;|&<>`\\$\n]")
_NOTABLE = re.compile(r"[*?\[{()~#!]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=", re.DOTALL)
_TILDE_IN_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=(?:.*:)?~", re.DOTALL)
_BRACE_RANGE = re.compile(r"(?:[+-]?\d+\.\.[+-]?\d+|[A-Za-z]\.\.[A-Za-z])(?:\.\.[+-]?\d+)?\Z", re.ASCII)
_CHARACTER_CLASS = re.compile(r"\[([:.=])[^/\0]*?\1\]")


class Word(msgspec.Struct, frozen=True):
    """One word of a command.

    `column`, from 1, is where it begins. `pattern` is None, or, if the word has live globs, the word as
    a pattern in which a backslash stands before each special character that is literal.
    """

    text: str
    column: int
    pattern: str | None = None


class Argv(msgspec.Struct, frozen=True):
    """A command as words: at least one. Globs are not expanded yet."""

    words: tuple[Word, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The words' texts, globs as they were typed."""
        return tuple(word.text for word in self.words)

    @property
    def has_globs(self) -> bool:
        """Whether any word has live glob characters."""
        return any(word.pattern is not None for word in self.words)


def parse(
    untrusted: str,
    *,
    metacharacters: Literal["unquoted", "anywhere"] = "unquoted",
    globs: Literal["expand", "refuse"] = "expand",
) -> Argv:
    """Return the words of `untrusted` as a shell would pass them on (POSIX.1-2017 XCU 2.2, 2.3, 2.6, 2.9.1).

    Raises ParseError for what is no command text at all, PolicyDenied for what a shell would act upon and for
    an empty command. With `metacharacters` "anywhere" quotes do not protect metacharacters; with `globs`
    "refuse" a live glob is denied.
    """
    _check_characters(untrusted)
    if metacharacters == "anywhere" and (found := _METACHARACTER.search(untrusted)):
        raise PolicyDenied(reasons.anywhere(found[0], found.start() + 1))
    words = _split(untrusted)
    if not words:
        raise PolicyDenied(reasons.EMPTY)
    if globs == "refuse":
        for word in words:
            if word.pattern is not None:
                raise PolicyDenied(reasons.globs_off(word.column))
    return Argv(tuple(words))


def _check_characters(untrusted: str) -> None:
    if len(untrusted) > COMMAND_CHARACTERS:
        raise ParseError(
            f"the command has {len(untrusted)} characters; at most {COMMAND_CHARACTERS} are read"
        )
    if found := _CONTROL.search(untrusted):
        refusal = ParseError if found[0] == "\0" else PolicyDenied
        raise refusal(reasons.control(found[0], found.start() + 1))
    if untrusted.isascii():
        return
    try:
        untrusted.encode()
    except UnicodeEncodeError as error:
        raise ParseError(reasons.surrogate(error.start + 1)) from None
    if found := reasons.hidden_characters().search(untrusted):
        raise PolicyDenied(reasons.hidden(found[0], found.start() + 1))


def _split(untrusted: str) -> list[Word]:
    words: list[Word] = []
    pieces: list[tuple[str, bool]] = []
    start = 0
    for match in _TOKEN.finditer(untrusted):
        kind = match.lastindex or _OTHER
        if kind == _BLANK:
            if pieces:
                words.append(_word(pieces, start + 1, words))
                pieces = []
            continue
        if not pieces:
            start = match.start()
        if kind == _OTHER:
            _refuse_token(untrusted, match.start(), words)
        pieces.append((match[kind], kind != _UNQUOTED))
    if pieces:
        words.append(_word(pieces, start + 1, words))
    return words


def _refuse_token(untrusted: str, place: int, words: list[Word]) -> None:
    """Raise for the metacharacter, or the quote without a good end, at `place`."""
    character = untrusted[place]
    if character not in "'\"":
        raise PolicyDenied(reasons.metacharacter(untrusted, place, program=_program(words)))
    end = place + 1
    while character == '"' and end < len(untrusted) and untrusted[end] not in '"`\\$':
        end += 1
    if character == '"' and end < len(untrusted):
        raise PolicyDenied(reasons.in_double_quotes(untrusted, end))
    raise ParseError(reasons.unterminated(character, place + 1))


def _word(pieces: list[tuple[str, bool]], column: int, before: list[Word]) -> Word:
    text = "".join([piece for piece, _ in pieces])
    outline = "".join([QUOTED * len(piece) if quoted else piece for piece, quoted in pieces])
    _check_size(text, column, before)
    if not before and _ASSIGNMENT.match(outline):
        raise PolicyDenied(reasons.assignment(column))
    if not _NOTABLE.search(outline):
        return Word(text, column)
    _check_expansions(text, outline, column)
    _check_operators(outline, column, in_find=_is_find(before))
    pattern = _pattern(text, outline)
    if pattern is not None and not before:
        raise PolicyDenied(reasons.PROGRAM_IS_PATTERN)
    return Word(text, column, pattern)


def _check_size(text: str, column: int, before: list[Word]) -> None:
    if len(before) >= WORDS:
        raise ParseError(f"the command has more than {WORDS} words; split the work into several commands")
    if len(text) > PATH_CHARACTERS and not before:
        raise ParseError(
            f"the program's name has {len(text)} characters; no path is longer than {PATH_CHARACTERS}"
        )
    if len(text) > WORD_BYTES // 4 and len(text.encode()) > WORD_BYTES:
        raise ParseError(
            f"the word at column {column} has more than {WORD_BYTES} bytes, which the kernel does not pass on"
        )


def _check_expansions(text: str, outline: str, column: int) -> None:
    """Raise if a shell would expand the word, or drop it as a comment. Globs are judged apart."""
    if outline.count("{") > OPENERS or outline.count("[") > OPENERS:
        raise PolicyDenied(reasons.openers(column, OPENERS))
    if outline[0] == "~" or ("~" in outline and _TILDE_IN_ASSIGNMENT.match(outline)):
        raise PolicyDenied(reasons.tilde(column + outline.index("~")))
    if outline[0] == "#":
        raise PolicyDenied(reasons.comment(column))
    if "{" in outline and _has_brace_expansion(text, outline):
        raise PolicyDenied(reasons.brace(column))


def _check_operators(outline: str, column: int, *, in_find: bool) -> None:
    """Raise for unquoted `(`, `)` and a lone `!`, except where each is a word of find."""
    if in_find and outline in ("(", ")", "!"):
        return
    if outline == "!":
        raise PolicyDenied(reasons.negation(column))
    for character in "()":
        if character in outline:
            raise PolicyDenied(reasons.parenthesis(character, column, in_find=in_find))


def _is_find(words: list[Word]) -> bool:
    return _program(words) == "find"


def _program(words: list[Word]) -> str:
    return words[0].text.rpartition("/")[2] if words else ""


def _has_brace_expansion(text: str, outline: str) -> bool:
    """Whether bash would make several words of it."""
    starts = [place for place, character in enumerate(outline) if character == "{"]
    return any(_is_brace_expansion(text, outline, start) for start in starts)


def _is_brace_expansion(text: str, outline: str, start: int) -> bool:
    """Follow bash from one `{`: a `}` ends it only behind a `,` or a `..` of its own, so that `{a},b}` is two words."""
    depth, comma, dots = 0, False, False
    for place in range(start + 1, len(outline)):
        character = outline[place]
        if character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif depth == 0 and character == "}" and (comma or dots):
            # Where only `..` ended it, bash looks for commas again, and this time takes quoted ones too.
            return comma or "," in text[start:place] or bool(_BRACE_RANGE.match(outline[start + 1 : place]))
        elif depth == 0:
            comma = comma or character == ","
            dots = dots or (outline.startswith("..", place) and outline[place + 2 : place + 3] != "}")
    return False


def _pattern(text: str, outline: str) -> str | None:
    """Return the word as a pattern, or None if no character of it is live."""
    parts: list[str] = []
    live, place = False, 0
    while place < len(outline):
        character = outline[place]
        end = _bracket_end(text, outline, place) if character == "[" else 0
        if end:
            parts.append(_bracket(text, outline, place, end))
        elif character in "*?":
            parts.append(character)
        else:
            parts.append("\\" + text[place] if text[place] in "*?[\\" else text[place])
        live = live or bool(end) or character in "*?"
        place = end or place + 1
    return "".join(parts) if live else None


def _bracket_end(text: str, outline: str, start: int) -> int:
    """Return where the bracket expression begun at `start` is over; 0 if it is none (XCU 2.13.1, 2.13.3)."""
    place = start + 1
    if outline[place : place + 1] in ("!", "^"):
        place += 1
    first = place
    while place < len(outline) and text[place] != "/":
        if outline[place] == "]" and place > first:
            return place + 1
        inner = _CHARACTER_CLASS.match(outline, place)
        place = inner.end() if inner else place + 1
    return 0


def _bracket(text: str, outline: str, start: int, end: int) -> str:
    """Return a bracket expression with a backslash before each quoted character."""
    return "".join(
        "\\" + text[place] if outline[place] == QUOTED else text[place] for place in range(start, end)
    )
