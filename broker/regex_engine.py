"""The regular expression engine behind one small interface: RE2, which is linear in the input whatever the expression.

Always true: an expression either compiles here and then never takes more than linear time, or it is refused with
`ExpressionError`. Everything works on bytes. This module knows nothing of secrets; nobody else imports `re2`.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import re2

Spans = tuple[tuple[int, int], ...]
NOWHERE = (-1, -1)
RUN = 32
_ANYWHERE = re2._Anchor.UNANCHORED
_AT_START = re2._Anchor.ANCHOR_START


class ExpressionError(ValueError):
    """The engine does not take this expression: a syntax fault, or something that has no linear-time form."""


@lru_cache(maxsize=4)
def _options(*, utf8: bool, longest: bool) -> "re2.Options":
    options = re2.Options()
    options.longest_match = longest
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8 if utf8 else re2.Options.Encoding.LATIN1
    return options


class Expression:
    """One expression, compiled when it is first used (`compile` does it at once).

    Shipped expressions are ASCII and see single bytes, which keeps the automaton small; an operator's
    expression sees UTF-8 characters (`utf8=True`). `longest` prefers the longest alternative to the first.
    """

    __slots__ = ("_compiled", "_longest", "_match", "_utf8", "source")

    def __init__(self, source: str, *, utf8: bool = False, longest: bool = False) -> None:
        self.source = source
        self._utf8 = utf8
        self._longest = longest
        self._compiled: re2._Regexp | None = None
        self._match: Callable[[re2._Anchor, bytes, int, int], Spans] | None = None

    def compile(self) -> "re2._Regexp":
        """The engine's object; raises ExpressionError."""
        if self._compiled is None:
            try:
                self._compiled = re2.compile(
                    self.source.encode(), _options(utf8=self._utf8, longest=self._longest)
                )
            except (re2.error, UnicodeEncodeError) as fault:
                detail = fault.args[0] if fault.args else fault
                text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
                raise ExpressionError(text) from None
        return self._compiled

    @property
    def groups(self) -> int:
        """How many capturing groups there are."""
        return int(self.compile().groups)

    @property
    def group_names(self) -> dict[str, int]:
        """Named groups and their numbers."""
        return {
            name if isinstance(name, str) else name.decode(): number
            for name, number in self.compile().groupindex.items()
        }

    def each(self, data: bytes, start: int, end: int) -> Iterator[Spans]:
        """All matches within `data[start:end]`, leftmost first, none overlapping: the spans of group 0, 1, …"""
        run, anywhere = self._run(), _ANYWHERE
        while start <= end:
            spans = run(anywhere, data, start, end)
            if spans[0] == NOWHERE:
                return
            yield spans
            stop = spans[0][1]
            start = stop if stop > start else start + 1

    def each_last_of_a_run(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where all matches in `data` are, but of a match repeated without anything between only the last.

        A long run is passed over at memory speed: text of nothing but `key=` costs no more than other text.
        """
        run, anywhere = self._run(), _ANYWHERE
        position, size = 0, len(data)
        while position <= size:
            start, end = run(anywhere, data, position, size)[0]
            if start < 0:
                return
            position = end if end > position else position + 1
            text = data[start:end]
            if not data.startswith(text, end):
                yield start, end
            elif start < end and data.startswith(text * RUN, end):
                position = _end_of_run(data, end, text * RUN)

    def first(self, data: bytes, start: int, end: int) -> Spans | None:
        """The leftmost match within `data[start:end]`."""
        return self._found(_ANYWHERE, data, start, end)

    def here(self, data: bytes, start: int, end: int) -> Spans | None:
        """The match that begins exactly at `start`, seeing no further than `end`."""
        return self._found(_AT_START, data, start, end)

    def _found(self, anchor: "re2._Anchor", data: bytes, start: int, end: int) -> Spans | None:
        if start > end:
            return None
        spans = self._run()(anchor, data, start, min(end, len(data)))
        return None if spans[0] == NOWHERE else spans

    def _run(self) -> Callable[["re2._Anchor", bytes, int, int], Spans]:
        """The engine's own function: the objects that its Python side wraps around each match cost more than the match."""
        if self._match is None:
            self._match = self.compile()._regexp.Match
        return self._match


def _end_of_run(data: bytes, position: int, run: bytes) -> int:
    while data.startswith(run, position):
        position += len(run)
    return position


def escaped(text: str) -> str:
    """An expression that matches `text` and nothing else."""
    return re2.escape(text)  # type: ignore[no-any-return]
