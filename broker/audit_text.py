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
    command = _bounded(redact(printable(call.command_raw)), COMMAND_CHARACTERS, "command_raw", cut)
    argv = None if call.argv is None else _bounded_words(redacted_words(call.argv, redact), cut)
    cwd = None if call.cwd is None else _bounded(redact(printable(call.cwd)), CWD_CHARACTERS, "cwd", cut)
    return Shown(command, argv, cwd, cut)


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
    """Return the words without their secrets.

    Where a secret cannot be told from the words around it, word boundaries are given up, not the redaction.
    """
    words = tuple(map(printable, argv))
    joined = " ".join(words)
    clean = redact(joined)
    if clean == joined:
        return words
    if len(words) <= ARGV_WORDS:
        kept = tuple(_redacted_word(words, at, redact) for at in range(len(words)))
        again = " ".join(kept)
        if redact(again) == again:
            return kept
    return tuple(clean.split(" "))


def _redacted_word(words: tuple[str, ...], at: int, redact: Redact) -> str:
    # Some secrets are only seen together with the words before them: `--password X`, `Authorization: Bearer
    # X`.
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
