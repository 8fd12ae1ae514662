"""The texts of a call as the trail shows them.

Always true: a text is redacted first and cut afterwards, so that a cut never leaves half a secret; a digest
is taken of redacted text only, because the digest of a short secret lets anybody try guesses against it; what
one text of a call hides, none of them shows; what is returned can be encoded as UTF-8.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from broker.audit_agreement import Taken, quoted
from broker.audit_meanings import decoded, meanings
from broker.audit_record import Call, Cut, digest

COMMAND_CHARACTERS = 8_192
ARGV_CHARACTERS = 8_192
ARGV_WORDS = 1_024
CWD_CHARACTERS = 4_096
REASON_CHARACTERS = 1_024
DETAIL_CHARACTERS = 2_048

HIDDEN_PARTS = 32
"""With more secrets in one call, they are not looked for word by word: `argv` is the redacted command between spaces."""
HIDDEN_CHARACTERS = 4
"""A shorter part of a secret is only hidden where it is a whole word."""
GIVEN_UP = "[REDACTED:command]"
"""Stands for all of a command but its program's name, where its secrets cannot be told from the rest."""
_GIVEN_UP_PART = "[REDACTED:secret]"
_MARKER = "[REDACTED:"

_BETWEEN = "\0"
"""Stands in no word: no program can be given it."""

Redact = Callable[[str], str]
Hidden = dict[str, str]


class Shown(NamedTuple):
    """A call's texts, redacted and bounded. `cut` names what was cut, `taken` and `hidden` what was taken out of them."""

    command_raw: str
    argv: tuple[str, ...] | None
    cwd: str | None
    cut: dict[str, Cut]
    taken: Taken
    hidden: Hidden


def show_call(call: Call, redact: Redact) -> Shown:
    """Return the texts of a call for its records: what one of them hides, none of them shows."""
    cut: dict[str, Cut] = {}
    raw, argv, cwd, taken, hidden = _agreed(call, redact)
    return Shown(
        _bounded(raw, COMMAND_CHARACTERS, "command_raw", cut),
        None if argv is None else _bounded_words(argv, cut),
        None if cwd is None else _bounded(cwd, CWD_CHARACTERS, "cwd", cut),
        cut,
        taken,
        hidden,
    )


def _agreed(call: Call, redact: Redact) -> tuple[str, tuple[str, ...] | None, str | None, Taken, Hidden]:
    """The texts without their secrets, unbounded, and what was taken out of them."""
    raw = printable(call.command_raw)
    words = None if call.argv is None else tuple(map(printable, call.argv))
    own = None if words is None else redacted_words(words, redact)
    cwd = None if call.cwd is None else printable(call.cwd)
    clean = redact(raw)
    texts = [(raw, clean), *((text, redact(text)) for text in meanings(raw, words))]
    if words is not None and own is not None:
        texts.append((" ".join(words), " ".join(own)))
    if cwd is not None:
        texts += [(text, redact(text)) for text in dict.fromkeys((cwd, decoded(cwd)))]
    pairs = [(before, after) for before, after in texts if before != after]
    if not pairs:
        return raw, words, cwd, Taken(()), {}
    parts = list(dict.fromkeys(part for before, after in pairs for part in hidden_parts(before, after)))
    hidden = _hidden(parts if len(parts) <= HIDDEN_PARTS else [])
    name = _name(words[0], redact) if words else ""
    taken = Taken(pairs, name)
    if words and own is not None:
        own = (name, *(_without(own[1:], hidden) if len(own) > 1 else ()))
    forms = _forms(clean, own, hidden, taken)
    shown = next((form for form, read in forms if not taken.shows_in(form, read)), None)
    if shown is None:
        shown = f"{name or _first_word(clean, redact, taken)} {GIVEN_UP}".lstrip()
    kept = None if own is None else _given_up(own, taken, 1)
    return shown, kept, None if cwd is None else _without_in_folders(redact(cwd), taken), taken, hidden


def _name(word: str, redact: Redact) -> str:
    """The program's name, which no other word hides: else a call would choose that it is not known what it ran."""
    typed = _typed(word)
    clean = redact(typed)
    if clean != typed:
        return clean
    return _GIVEN_UP_PART if any(redact(text) != text for text in meanings(word, (word,))) else word


def _first_word(clean: str, redact: Redact, taken: Taken) -> str:
    name = _name("".join(clean.split(maxsplit=1)[:1]), redact)
    return "" if taken.shows_in(name) else name


def _forms(
    clean: str, own: tuple[str, ...] | None, hidden: Hidden, taken: Taken
) -> Iterable[tuple[str, tuple[str, ...] | None]]:
    """In what form a command may be shown, the best first: as it was typed, by its words, without some of them."""
    yield clean, None
    if own is not None:
        yield quoted(own), own
    without = _BETWEEN.join(_without((clean,), hidden))
    yield without, None
    if own is None:
        yield " ".join(_given_up(without.split(" "), taken, 0)), None
    else:
        own = _given_up(own, taken, 1)
        yield quoted(own), own


def _given_up(words: Sequence[str], taken: Taken, first: int) -> tuple[str, ...]:
    """The words, and markers for those from `first` on that show what was taken."""
    shown = taken.shown_by(words)
    return tuple(
        _GIVEN_UP_PART if number in shown and number >= first else word for number, word in enumerate(words)
    )


def _hidden(parts: Iterable[tuple[str, str]]) -> Hidden:
    """By what the parts of secrets are replaced, each as a whole and where blanks part it; quotes may stand in it or not."""
    hidden: Hidden = {}
    for part, marker in parts:
        for form in (part, part.replace("\\", "").replace("'", "").replace('"', "")):
            pieces = form.split(maxsplit=HIDDEN_PARTS)
            # of more pieces only the whole is hidden: where one of them shows, the word is given up
            for piece in (form, *(pieces if len(pieces) <= HIDDEN_PARTS else ())):
                if piece and _BETWEEN not in piece:
                    hidden.setdefault(piece, marker)
    return hidden


def _without(words: Iterable[str], hidden: Hidden) -> tuple[str, ...]:
    # Quotes are gone in argv, and with them what some secrets are known by: what the command hides, its words hide too.
    text = _BETWEEN.join(hidden.get(word, word) for word in words)
    markers = " ".join(hidden.values())
    for piece, marker in hidden.items():
        # What a marker contains is not looked for within words: each round would grow the words of the one before.
        if len(piece) >= HIDDEN_CHARACTERS and piece not in markers:
            text = text.replace(piece, marker)
    return tuple(text.split(_BETWEEN))


def _without_in_folders(path: str, taken: Taken) -> str:
    if not taken.shows_in(path):
        return path
    kept = "/".join(_GIVEN_UP_PART if taken.shows_in(name) else name for name in path.split("/"))
    return _GIVEN_UP_PART if taken.shows_in(kept) else kept


def show_reason(text: str, shown: Shown, redact: Redact) -> str:
    """Return the reason of a refusal, which may speak of words of the command: what the call's texts hide, it hides."""
    clean = redact(printable(text))
    for piece, marker in shown.hidden.items():
        clean = clean.replace(f"'{piece}'", f"'{marker}'")  # as a reason quotes a word, however short
    if shown.taken.shows_in(clean):
        clean = " ".join(_given_up(clean.split(" "), shown.taken, 0))
        clean = _GIVEN_UP_PART if shown.taken.shows_in(clean) else clean
    return _bounded(clean, REASON_CHARACTERS, "", {})


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
