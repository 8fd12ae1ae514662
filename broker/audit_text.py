"""The texts of a call as the trail shows them.

Always true: a text is redacted first and cut afterwards, so that a cut never leaves half a secret; a digest
is taken of redacted text only, because the digest of a short secret lets anybody try guesses against it; what
is returned can be encoded as UTF-8.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.audit_record import Call, Cut, digest

COMMAND_CHARACTERS = 8_192
ARGV_CHARACTERS = 8_192
ARGV_WORDS = 1_024
CWD_CHARACTERS = 4_096
REASON_CHARACTERS = 1_024
DETAIL_CHARACTERS = 2_048

HIDDEN_PARTS = 32
"""With more secrets in one command, `argv` is the redacted command between spaces."""
HIDDEN_CHARACTERS = 4
"""A shorter part of a secret is only hidden where it is a whole word."""
_MARKER = "[REDACTED:"

Redact = Callable[[str], str]


class Shown(NamedTuple):
    """A call's texts, redacted and bounded. `cut` names what was cut."""

    command_raw: str
    argv: tuple[str, ...] | None
    cwd: str | None
    cut: dict[str, Cut]


def show_call(call: Call, redact: Redact) -> Shown:
    """Return the texts of a call for its records."""
    cut: dict[str, Cut] = {}
    raw = printable(call.command_raw)
    clean = redact(raw)
    argv = None if call.argv is None else _bounded_words(_words(call.argv, raw, clean, redact), cut)
    cwd = None if call.cwd is None else _bounded(redact(printable(call.cwd)), CWD_CHARACTERS, "cwd", cut)
    return Shown(_bounded(clean, COMMAND_CHARACTERS, "command_raw", cut), argv, cwd, cut)


def _words(argv: tuple[str, ...], raw: str, clean: str, redact: Redact) -> tuple[str, ...]:
    # Quotes are gone in argv, and with them what some secrets are known by: what the command hides, its words hide too.
    hidden = hidden_parts(raw, clean)
    if len(hidden) > HIDDEN_PARTS:
        return tuple(clean.split(" "))
    markers = " ".join(marker for _, marker in hidden)
    for part, marker in hidden:
        argv = tuple(_hide(word, part, marker, markers) for word in argv)
    return redacted_words(argv, redact)


def hidden_parts(text: str, clean: str) -> list[tuple[str, str]]:
    """Return the parts of `text` for which markers stand in `clean`, each with its marker."""
    kept, markers = _taken_apart(clean)
    if not markers or not text.startswith(kept[0]):
        return []
    found: list[tuple[str, str]] = []
    at = len(kept[0])
    for number, marker in enumerate(markers):
        after = kept[number + 1]
        is_last = number + 1 == len(markers)
        end = len(text) - len(after) if is_last else text.find(after, at + 1)
        if end < 0:
            return [*found, (text[at:], marker)]
        found.append((text[at:end], marker))
        at = end + len(after)
    return found


def _taken_apart(clean: str) -> tuple[list[str], list[str]]:
    """Return the texts around the markers, and the markers; markers side by side count as one."""
    first, *rest = clean.split(_MARKER)
    kept, markers = [first], list[str]()
    for part in rest:
        name, bracket, after = part.partition("]")
        if markers and not kept[-1]:
            kept[-1] = after
        else:
            markers.append(_MARKER + name + bracket)
            kept.append(after)
    return kept, markers


def _hide(word: str, part: str, marker: str, markers: str) -> str:
    for form in (part, part.replace("\\", "").replace("'", "").replace('"', "")):
        for piece in (form, *form.split()):
            # What a marker contains is not looked for within words: each round would grow the words of the one before.
            if word == piece != "" or (len(piece) >= HIDDEN_CHARACTERS and piece not in markers):
                word = word.replace(piece, marker)
    return word


def show_text(text: str, limit: int, redact: Redact) -> str:
    """Return any other text, redacted and at most `limit` characters long."""
    return _bounded(redact(printable(text)), limit, "", {})


def printable(text: str) -> str:
    """Return `text` as something UTF-8 can carry: a byte of a file name that is not UTF-8 becomes `\\xff`."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(map(_printable_character, text))
    return text


def _printable_character(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # PEP 383: a byte that was no UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if 0xD800 <= number <= 0xDFFF else character


def _bounded(text: str, limit: int, name: str, cut: dict[str, Cut]) -> str:
    if len(text) <= limit:
        return text
    cut[name] = Cut(len(text), digest(text.encode()))
    return text[: limit - 1] + "…"


def redacted_words(argv: tuple[str, ...], redact: Redact) -> tuple[str, ...]:
    """Return the words without their secrets, judged together: a secret may need the words around it to be seen.

    Where it cannot be told which word it is in, word boundaries are given up, not the redaction.
    """
    words = tuple(map(printable, argv))
    typed = tuple(map(_typed, words))
    text = " ".join(typed)
    clean = redact(text)
    kept = words if clean == text else _aligned(words, typed, clean, redact)
    plain = " ".join(kept)
    clean = plain if plain == text else redact(plain)
    return kept if clean == plain else tuple(clean.split(" "))


def _typed(word: str) -> str:
    """Return a word with spaces as a person would quote it: unquoted, its second half would look like the next word."""
    if " " not in word and "\t" not in word:
        return word
    name, equals, value = word.partition("=")
    return f'{name}="{value}"' if equals and " " not in name else f'"{word}"'


def _aligned(words: tuple[str, ...], typed: tuple[str, ...], clean: str, redact: Redact) -> tuple[str, ...]:
    if len(words) <= ARGV_WORDS:
        kept = tuple(_redacted_word(typed, at, redact) for at in range(len(typed)))
        if " ".join(kept) == clean:
            return tuple(
                word if now == before else now for word, before, now in zip(words, typed, kept, strict=True)
            )
    return tuple(clean.split(" "))


def _redacted_word(words: tuple[str, ...], at: int, redact: Redact) -> str:
    # Some secrets are only seen together with the words before them: `--password X`, `Authorization: Bearer X`.
    for first in range(max(at - 2, 0), at):
        before = " ".join(words[first:at]) + " "
        whole = before + words[at]
        together = redact(whole)
        if together.startswith(before) and together != whole:
            return together[len(before) :]
    return redact(words[at])


def _bounded_words(words: tuple[str, ...], cut: dict[str, Cut]) -> tuple[str, ...]:
    kept: list[str] = []
    room = ARGV_CHARACTERS
    for word in words[:ARGV_WORDS]:
        if len(word) > room:
            break
        kept.append(word)
        room -= len(word)
    if len(kept) == len(words):
        return words
    joined = " ".join(words)
    cut["argv"] = Cut(len(joined), digest(joined.encode()))
    return (*kept, words[len(kept)][:room] + "…")
