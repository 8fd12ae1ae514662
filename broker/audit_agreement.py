"""What the texts of one call hide together: what redaction took out of one of them, none of them shows.

Always true: quotes, backslashes, blanks and escapes make no difference, so that `gh"p_…"` and `gh\\x70_…` show no more than
`ghp_…` would. Where it cannot be told which part of a text is the secret, the text is given up, not the redaction.
"""

from collections.abc import Iterable

from broker.audit_meanings import decoded, decoded_across_quotes

PIECE_CHARACTERS = 6
"""So many characters of a secret in a row are a leak."""
FEW_PIECES = 64
MIDDLE_CHARACTERS = 256 * 1024
"""Where secrets lie further apart, it is not looked what they were."""
_MARKER = "[REDACTED:"
_MARKER_CHARACTERS = 65
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"'\\ \t\r\n")


class Taken:
    """What was taken out of texts, by pieces of `PIECE_CHARACTERS`."""

    __slots__ = ("_pieces", "_untold")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """`pairs`: texts before and after their redaction."""
        self._pieces: set[str] = set()
        self._untold = False
        for before, after in {(_bare(before), _bare(after)) for before, after in pairs if before != after}:
            middle = _middle(before, after)
            if len(middle) > MIDDLE_CHARACTERS:
                self._untold = True
            else:
                self._pieces |= _not_in(after, _pieces_of(middle))

    def shows_in(self, text: str) -> bool:
        """Is a piece that was taken out of one of the texts still in this one, as far as that can be told?"""
        if not self._pieces:
            return self._untold
        return self._untold or any(
            self._has(form) for form in (text, *decoded(text), *decoded_across_quotes(text))
        )

    def _has(self, text: str) -> bool:
        return len(_not_in(_bare(text), self._pieces)) < len(self._pieces)


def _pieces_of(text: str) -> set[str]:
    return {text[at : at + PIECE_CHARACTERS] for at in range(len(text) - PIECE_CHARACTERS + 1)}


def _not_in(text: str, pieces: set[str]) -> set[str]:
    """Those of the pieces that the text has not."""
    if len(pieces) <= FEW_PIECES:
        return {piece for piece in pieces if piece not in text}
    return pieces.difference(
        text[at : at + PIECE_CHARACTERS] for at in range(len(text) - PIECE_CHARACTERS + 1)
    )


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


def _bare(text: str) -> str:
    """The text without quotes, backslashes and blanks; each marker as one character that no text has."""
    first, *rest = text.split(_MARKER)
    pieces = [first.translate(_QUOTES_AND_BLANKS)]
    for part in rest:
        end = part.find("]", 0, _MARKER_CHARACTERS)
        pieces.append("\0" + (part[end + 1 :] if end >= 0 else part).translate(_QUOTES_AND_BLANKS))
    return "".join(pieces)


def quoted(words: tuple[str, ...]) -> str:
    """The words as a shell would read them."""
    return " ".join(
        "'" + word.replace("'", "'\\''") + "'"
        if not word or word.translate(_QUOTES_AND_BLANKS) != word
        else word
        for word in words
    )
