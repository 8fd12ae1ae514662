"""How much room a text takes on a terminal, and how it is made to fit.

Always true: an East Asian wide character and an emoji count two cells (UAX #11: wide, fullwidth), a mark that stands upon the
character before it none, everything else one. Texts are printable: control characters have been escaped before.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby

_NARROWEST = 20
_WORD = re.compile(r"(\s*)(\S+)")


def cells(text: str) -> int:
    """Return how many cells of a terminal `text` takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, room: int) -> str:
    """Return `text` if it takes no more than `room` cells, else as much of it as fits before an ellipsis."""
    if cells(text) <= room:
        return text
    left, kept = room - 1, 0
    for character in text:
        left -= _cells_of(character)
        if left < 0:
            break
        kept += 1
    return f"{text[:kept]}…"


def padded(text: str, width: int) -> str:
    """Return `text` with blanks behind it, so that it takes at least `width` cells."""
    return text + " " * (width - cells(text))


def folded(line: str, width: int, indent: int = 2) -> str:
    """Return a line as it fits into `width` cells, 0 for any, what follows the first indented.

    No word is cut, but between two wide characters a line may end anywhere.
    """
    if not width or cells(line) <= width:
        return line
    room = max(width, _NARROWEST)
    lines, current = [], ""
    for gap, piece in _pieces(line):
        if current.strip() and cells(current) + len(gap) + cells(piece) > room:
            lines.append(current)
            current = " " * indent + piece
        else:
            current += gap + piece
    return "\n".join([*lines, current])


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """Yield what must not be cut, each with the blanks before it."""
    for gap, word in _WORD.findall(line):
        before = gap
        for wide, run in groupby(word, lambda character: _cells_of(character) == 2):
            for piece in run if wide else ("".join(run),):
                yield before, piece
                before = ""
