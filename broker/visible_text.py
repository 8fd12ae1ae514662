"""Text as a reader sees it: what shows nothing is taken out, with the way back to the original positions.

Always true: a span of the visible text maps to the span of the original that shows it, what is hidden inside included.
What shows nothing: terminal control sequences; the characters that Unicode has ignored where they mean nothing to the
one who draws (DerivedCoreProperties.txt, Default_Ignorable_Code_Point); and colours whose escape character was lost on the
way, which do show, but which nobody takes for a part of a word.
"""

from bisect import bisect_right

from broker.regex_engine import Expression

_CONTROL = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~])?"
)
_COLOUR = r"\[[0-9]{1,3}(?:;[0-9]{1,3}){0,5}m"
_IGNORED = (
    r"(?:\xc2\xad|\xcd\x8f|\xd8\x9c"  # soft hyphen, grapheme joiner, Arabic letter mark
    r"|\xe1(?:\x85[\x9f\xa0]|\x9e[\xb4\xb5]|\xa0[\x8b-\x8f])"  # Hangul fillers, Khmer vowels, Mongolian separators
    r"|\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])"  # of width zero, joiners, directions, operators
    r"|\xe3\x85\xa4|\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbf[\xb0-\xb8])"  # selectors, byte order mark
    r"|\xf0(?:\x9b\xb2[\xa0-\xa3]|\x9d\x85[\xb3-\xba])|\xf3\xa0[\x80-\xbf][\x80-\xbf])+"  # shorthand, music, tags
)
_HIDDEN = Expression(f"{_CONTROL}|{_COLOUR}|{_IGNORED}")
_HIDDEN_IN_ASCII = Expression(_COLOUR)


def hides(data: bytes) -> bool:
    """Whether anything in UTF-8 `data` shows nothing."""
    if b"\x1b" in data:
        return True
    expression = _HIDDEN_IN_ASCII if data.isascii() else _HIDDEN
    return expression.first(data, 0, len(data)) is not None


class VisibleText:
    """`text` without what is left out; `original(start, end)` maps back."""

    __slots__ = ("_added", "_starts", "text")

    def __init__(self, data: bytes, cuts: list[tuple[int, int]] | None = None, base: int = 0) -> None:
        """Leaves out `cuts`, which are sorted and do not overlap, or else what shows nothing. `data` begins at `base`."""
        self._starts: list[int] = [0]
        self._added: list[int] = [base]
        pieces: list[bytes] = []
        shown = last = 0
        removed = base
        if cuts is None:
            cuts = [spans[0] for spans in _HIDDEN.each(data, 0, len(data))]
        for begin, end in cuts:
            pieces.append(data[last:begin])
            shown += begin - last
            removed += end - begin
            self._starts.append(shown)
            self._added.append(removed)
            last = end
        pieces.append(data[last:])
        self.text = b"".join(pieces)

    def behind(self, count: int) -> "VisibleText":
        """The same, for data before which `count` bytes stand in the original."""
        self._added = [added + count for added in self._added]
        return self

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the original data for a span of the visible text."""
        return self._place(start), self._place(end - 1) + 1

    def _place(self, position: int) -> int:
        return position + self._added[bisect_right(self._starts, position) - 1]
