"""What the texts of one call hide together: what redaction took out of one of them, none of them shows.

Always true: quotes, backslashes and blanks make no difference, so that `gh"p_…"` shows no more than `ghp_…` would. Where it
cannot be told which part of a text is the secret, the text is given up, not the redaction.
"""

from collections.abc import Iterable

from msgspec import DecodeError
from msgspec.json import decode

PIECE_CHARACTERS = 6
"""So many characters of a secret in a row are a leak."""
_MARKER = "[REDACTED:"
_MARKER_CHARACTERS = 65
_QUOTES = str.maketrans("", "", "\"'\\")
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"'\\ \t\r\n")


class Taken:
    """What was taken out of texts, by pieces of `PIECE_CHARACTERS`."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """`pairs`: texts before and after their redaction."""
        self._pairs = [(_bare(before), _bare(after)) for before, after in pairs if before != after]

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def shows_in(self, text: str) -> bool:
        """Is a piece that was taken out of one of the texts still in this one?"""
        if not self._pairs:
            return False
        shown = _bare(text)
        wanted = {shown[at : at + PIECE_CHARACTERS] for at in range(len(shown) - PIECE_CHARACTERS + 1)}
        return any(_pieces(before, wanted) - _pieces(after, wanted) for before, after in self._pairs)


def _pieces(text: str, wanted: set[str]) -> set[str]:
    return {
        piece
        for at in range(len(text) - PIECE_CHARACTERS + 1)
        if (piece := text[at : at + PIECE_CHARACTERS]) in wanted
    }


def _bare(text: str) -> str:
    """The text without quotes, backslashes and blanks; each marker as one character that no text has."""
    first, *rest = text.split(_MARKER)
    pieces = [first.translate(_QUOTES_AND_BLANKS)]
    for part in rest:
        end = part.find("]", 0, _MARKER_CHARACTERS)
        pieces.append("\0" + (part[end + 1 :] if end >= 0 else part).translate(_QUOTES_AND_BLANKS))
    return "".join(pieces)


def readings(raw: str) -> list[str]:
    """What else `raw` may mean, to a shell or as the arguments of a call in JSON, if quotes or backslashes stand in it."""
    unquoted = raw.translate(_QUOTES)
    if unquoted == raw:
        return []
    if raw[:1] not in ("{", "["):
        return [unquoted]
    try:
        return [unquoted, "\n".join(_lines(decode(raw.encode())))]
    except (DecodeError, RecursionError):
        return [unquoted]


def _lines(value: object) -> Iterable[str]:
    """JSON as lines `name=value`; a list as the words of a command."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from (f"{name.translate(_QUOTES)}={line}" for line in _lines(inner))
    elif isinstance(value, list):
        yield " ".join(line for inner in value for line in _lines(inner))
    else:
        yield str(value).translate(_QUOTES)


def quoted(words: tuple[str, ...]) -> str:
    """The words as a shell would read them."""
    return " ".join(
        "'" + word.replace("'", "'\\''") + "'"
        if not word or word.translate(_QUOTES_AND_BLANKS) != word
        else word
        for word in words
    )
