"""What the texts of one call hide together: what redaction took out of one of them, none of them shows.

Always true: quotes, backslashes, blanks and escapes make no difference, so that `gh"p_…"` and `gh\\x70_…` show no more than
`ghp_…` would. Where it cannot be told which part of a word is the secret, the word is given up, not the redaction.
"""

from collections.abc import Iterable, Sequence

from broker.audit_meanings import as_echo, decoded, meanings

PIECE_CHARACTERS = 6
"""So many characters of a secret in a row are a leak."""
FEW_PIECES = 64
MIDDLE_CHARACTERS = 256 * 1024
"""Where secrets lie further apart, it is not looked what they were."""
_MARKER = "[REDACTED:"
_MARK = "\ufdd0"
_MARKER_CHARACTERS = 65
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"'\\ \t\r\n")


class Taken:
    """What was taken out of texts, by pieces of `PIECE_CHARACTERS`."""

    __slots__ = ("_pieces", "_untold")

    def __init__(self, pairs: Iterable[tuple[str, str]], kept: str = "") -> None:
        """`pairs`: texts before and after their redaction. `kept`: what is shown whatever was taken."""
        self._pieces: set[str] = set()
        self._untold = False
        for before, after in {(_bare(before), _bare(after)) for before, after in pairs if before != after}:
            middle = _middle(before, after)
            if len(middle) > MIDDLE_CHARACTERS:
                self._untold = True
            else:
                self._pieces |= _not_in(after, _pieces_of(middle))
        self._pieces -= _pieces_of(_bare(kept))

    def shows_in(self, text: str, words: tuple[str, ...] | None = None) -> bool:
        """Is a piece that was taken out of one of the texts still in this one, as far as that can be told?

        `words`: what the text was put together from.
        """
        if not self._pieces:
            return self._untold
        return self._untold or any(map(self._has, (text, *meanings(_marked(text), words))))

    def _has(self, text: str) -> bool:
        bare = _bare(text)
        if len(self._pieces) <= FEW_PIECES:
            return any(piece in bare for piece in self._pieces)
        return not self._pieces.isdisjoint(_each(bare))

    def shown_by(self, words: Sequence[str]) -> set[int]:
        """Return the numbers of the words in which such a piece is, and of those that are too short for the one in them."""
        if self._untold or not self._pieces:
            return set(range(len(words) if self._untold else 0))
        readings = [_readings(word) for word in words]
        shown = {number for number, forms in enumerate(readings) if any(map(self._has, dict.fromkeys(forms)))}
        for forms in dict.fromkeys(zip(*readings, strict=True)):
            bare = [_MARK if number in shown else _bare(form) for number, form in enumerate(forms)]
            owners = [number for number, word in enumerate(bare) for _ in word]
            for at, piece in enumerate(_each("".join(bare))):
                if piece in self._pieces:
                    shown.update(owners[at : at + PIECE_CHARACTERS])
        return shown


def _each(text: str) -> Iterable[str]:
    return (text[at : at + PIECE_CHARACTERS] for at in range(len(text) - PIECE_CHARACTERS + 1))


def _pieces_of(text: str) -> set[str]:
    return set(_each(text))


def _not_in(text: str, pieces: set[str]) -> set[str]:
    """Those of the pieces that the text has not."""
    if len(pieces) <= FEW_PIECES:
        return {piece for piece in pieces if piece not in text}
    return pieces.difference(_each(text))


def _middle(before: str, after: str) -> str:
    """What of `before` lies between the parts that it has in common with `after`, and a piece of each of them."""
    start = _common(before, after)
    rest = _common(before[start:][::-1], after[start:][::-1])
    return before[max(0, start - PIECE_CHARACTERS + 1) : len(before) - rest + PIECE_CHARACTERS - 1]


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if one[low:half] == other[low:half] else (low, half - 1)
    return low


def _readings(word: str) -> tuple[str, str, str]:
    return word, decoded(word), decoded(as_echo(word))


def _bare(text: str) -> str:
    """The text without quotes, backslashes and blanks; each marker as one character that no text has."""
    return _marked(text).translate(_QUOTES_AND_BLANKS)


def _marked(text: str) -> str:
    first, *rest = text.split(_MARKER)
    pieces = [first]
    for part in rest:
        end = part.find("]", 0, _MARKER_CHARACTERS)
        pieces.append(_MARK + (part[end + 1 :] if end >= 0 else part))
    return "".join(pieces)


def quoted(words: tuple[str, ...]) -> str:
    """The words as a shell would read them."""
    return " ".join(
        "'" + word.replace("'", "'\\''") + "'"
        if not word or word.translate(_QUOTES_AND_BLANKS) != word
        else word
        for word in words
    )
