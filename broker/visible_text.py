"""Text as a reader sees it: terminal control sequences taken out, with the way back to the original positions.

Always true: a span of the visible text maps to the span of the original that shows it, sequences inside included.
"""

from bisect import bisect_right

from broker.regex_engine import Expression

CONTROL = Expression(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~])?"
)


class VisibleText:
    """`text` without control sequences; `original(start, end)` maps back."""

    __slots__ = ("_added", "_starts", "text")

    def __init__(self, data: bytes) -> None:
        self._starts: list[int] = [0]
        self._added: list[int] = [0]
        pieces: list[bytes] = []
        shown = last = removed = 0
        for (begin, end), *_rest in CONTROL.each(data, 0, len(data)):
            pieces.append(data[last:begin])
            shown += begin - last
            removed += end - begin
            self._starts.append(shown)
            self._added.append(removed)
            last = end
        pieces.append(data[last:])
        self.text = b"".join(pieces)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the original data for a span of the visible text."""
        return self._place(start), self._place(end - 1) + 1

    def _place(self, position: int) -> int:
        return position + self._added[bisect_right(self._starts, position) - 1]
