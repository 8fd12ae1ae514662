"""Text as the file has it that a program printed: without what the program set before, around and between its lines.

Always true: a view is a function of the text alone, and only leaves things out, so that each of its spans is one of the
original. The text itself is looked at too: a view that leaves out too much hides nothing.
Known: numbers and names of files (`grep -n`, `cat -n`, `uniq -c`), diffs, also beside a graph or side by side, `git blame`
in all its forms, word diffs, and the JSON lines of `rg`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator

from msgspec import DecodeError
from msgspec.json import decode

from broker.regex_engine import NOWHERE, Expression
from broker.visible_text import VisibleText

NEAR_BYTES = 1024
SHORT_BYTES = 40
Span = tuple[int, int]
Found = tuple[int, int, int, str]
_PATH = r"[^\s:\[{=\"']"
_NO_TIME = r"(?:[^0-9]|[0-9]{1,2}[^0-9 \t,.\]Z]|[0-9]{1,3}\.[0-9]{1,3}\.|[0-9]{3}|$)"
_RECORD = (  # of `rg --json`
    r"\{\"type\":\"(?:match|context)\",\"data\":\{\"path\":(?:null|\{\"(?:text|bytes)\":\"(?:[^\"\\\n]|\\.)*\"\})"
    r",\"lines\":\{\"text\":\""
)
_PLACES = (
    rf"({_RECORD}"
    r"|[ ]*[0-9]{1,7}[ ]*[:]?\t|[ ]+[0-9a-f]{0,7}[0-9][0-9a-f]{0,7}[ ]"  # a number, an offset, how often
    r"|\^?[0-9a-f]{7,40}[ \t](?:[^\n]*?[ \t])?[0-9]+\)[ ]?"  # who wrote it
    r"|[0-9a-f]{40}[ ][0-9]+[ ][0-9]+(?:[ ][0-9]+)?\n(?:[a-z\-]+(?:[ ][^\n]*)?\n)*\t"  # the same, for programs
    r"|[ ]{5,6}[a-f]{1,2}[ ]|[<>][ ])"  # a small offset; a quoted text, or the lines of a diff
    r"|((?:\{\"[A-Za-z_]+\":)?\")(?:[^\"\\\n]|\\.)*\"[,}\]]*(?m:$)"  # a string of JSON
    rf"|((?:{_PATH}+:){{0,2}}?[ ]*[0-9]{{1,9}}:(?:[0-9]{{1,9}}:)?\t?){_NO_TIME}"
    rf"|((?:{_PATH}+-)?[0-9]{{1,9}}-)(?:[^0-9]|$)"
    r"|((?:[A-Za-z0-9_@^~./\-]+:)?[A-Za-z0-9_@+,\-]*[./][A-Za-z0-9_@+.,/\-]*:\t?)"
)
_NUMBER = (
    rf"(?:{_PATH}+:){{0,2}}?[ ]*[0-9]{{1,9}}[:\-\t](?:[0-9]{{1,9}}[:\-])?\t?"  # before the lines of a diff
)
_SIGNS = (
    r"(?m:^)(?:[|*\\/_>][ |*\\/_>]*|[ ]+)?@@@?[ ]-|(?m:^)(?:\*{15}|~\n)"  # a diff, one with context, a word diff for programs
    r"|-\]|\+\}|[ \t][|<>]\t|[ \t]<\n"  # a word diff, a diff side by side
)
_PLAIN = Expression(rf"{_SIGNS}|(?m:^)(?:{_PLACES})")


def _of_a_diff(graph: str) -> Expression:
    """Lines that were removed, lines that were added, a graph before other lines, anything else before them."""
    before = rf"(?:{graph}|{_NUMBER})?"
    return Expression(rf"(?m:^)(?:({before}-{{1,2}})|({before}(?:\+{{1,2}}|![ ]))|({graph})|{_PLACES})")


_IN_A_DIFF = _of_a_diff(r"(?:[|*>][ ])+")
_BESIDE_A_GRAPH = _of_a_diff(r"(?:[|*\\/_> ][ ])+")
_RECORD_END = Expression(
    r"(?:\\r)?(?:\\n)?\"\},\"line_number\":(?:null|[0-9]+),\"absolute_offset\":[0-9]+,\"submatches\":([^\n]*)"
)
_RECORD_START = Expression(_RECORD)
_SUBMATCH = Expression(r"\"(?:text|bytes)\":\"((?:[^\"\\]|\\.)*)\"\},\"start\":([0-9]+),\"end\":([0-9]+)\}")
_HEADS = {b"@@ -", b"@@@ -", b"*" * 15}
_WORD_MARKS = (b"-]", b"+}")
_WORDS = Expression(r"(\[-)[^\n]*?(-\])|(\{\+)[^\n]*?(\+\})")
_STRETCH = Expression(r"(?m:^)(?:[ +\-][^\n]*\n)*~\n")
_SEGMENT = Expression(r"[^\n]*\n")
_LEFT = Expression(r"[ ]*[|<>]?(?:\t[^\n]*|(?m:$))")
_RIGHT = Expression(r"(?m:^)[^\n]*\t")


def views(data: bytes) -> Iterator[VisibleText]:
    """What files `data` may be a print of; nothing where it can only be itself."""
    before: list[Span] = []
    signs: set[bytes] = set()
    for whole, *groups in _PLAIN.each(data, 0, len(data)):
        cut = max(groups)
        if cut == NOWHERE:
            signs.add(data[whole[0] : whole[1]])
        else:
            before += _around_a_line(data, cut)
    differs = {sign for sign in signs if b"@@" in sign or sign[:1] == b"*"}
    if differs:
        yield from _versions(data, _IN_A_DIFF if differs <= _HEADS else _BESIDE_A_GRAPH)
    words = [] if signs.isdisjoint(_WORD_MARKS) else list(_words(data))
    for sign in (b"[", b"{") if words else () if differs else (b"",):
        yield from _parts(data, _merged(before + [cut for which, cut in words if which != sign]), NEAR_BYTES)
    if b"~\n" in signs:
        for sign in (b"-", b"+"):
            yield from _parts(data, list(_segments(data, sign)), NEAR_BYTES)
    if any(sign[:1] in b" \t" for sign in signs):
        for column in (_LEFT, _RIGHT):
            yield VisibleText(data, [spans[0] for spans in column.each(data, 0, len(data))])


def _versions(data: bytes, lines: Expression) -> Iterator[VisibleText]:
    """The lines of a diff as the file had them before, and as it has them now."""
    cuts = [(max(groups), groups[:2]) for _whole, *groups in lines.each(data, 0, len(data))]
    for other in (1, 0):
        yield from _parts(
            data,
            [
                (start, _line_end(data, end) + 1 if marks[other] != NOWHERE else end)
                for (start, end), marks in cuts
                if start >= 0
            ],
        )


def _parts(data: bytes, cuts: list[Span], around: int = 0) -> Iterator[VisibleText]:
    """A view for each part of `data` that has cuts near each other: what has none was looked at as it is."""
    first = stop = 0
    for index, (_begin, end) in enumerate(cuts):
        stop = stop if end <= stop else _line_end(data, end)
        if index + 1 == len(cuts) or cuts[index + 1][0] > stop + NEAR_BYTES:
            base = data.rfind(b"\n", 0, max(0, cuts[first][0] - around)) + 1
            stop = _line_end(data, min(stop + around, len(data)))
            yield VisibleText(
                data[base:stop], [(begin - base, end - base) for begin, end in cuts[first : index + 1]], base
            )
            first = index + 1


def _around_a_line(data: bytes, cut: Span) -> Iterator[Span]:
    """What stands before a line, and what a string of JSON or a record of `rg --json` has behind it."""
    yield cut
    if data[cut[1] - 1 : cut[1]] == b'"':
        stop = _line_end(data, cut[1])
        tail = _RECORD_END.first(data, cut[1], stop) if cut[1] - cut[0] > SHORT_BYTES else None
        yield tail[0] if tail is not None else (cut[1] + len(data[cut[1] : stop].rstrip(b'",}]')), stop)


def _line_end(data: bytes, position: int) -> int:
    newline = data.find(b"\n", position)
    return newline if newline >= 0 else len(data)


def _words(data: bytes) -> Iterator[tuple[bytes, Span]]:
    """What to leave out to see a word diff's file, and where: `[`, all of what is removed; `{`, of what is added; marks."""
    for whole, *marks in _WORDS.each(data, 0, len(data)):
        alone = data[whole[1] : whole[1] + 1] == b"\n" == data[whole[0] - 1 : whole[0]]
        yield data[whole[0] : whole[0] + 1], (whole[0], whole[1] + alone)
        for mark in marks:
            if mark[0] >= 0:
                yield b"", mark


def _merged(cuts: list[Span]) -> list[Span]:
    """Sorted, and none within another."""
    result: list[Span] = []
    for start, end in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        begin = max(start, result[-1][1]) if result else start
        if begin < end:
            result.append((begin, end))
    return result


def _segments(data: bytes, sign: bytes) -> Iterator[Span]:
    """A word diff for programs: the parts of a line on lines of their own, then `~`; of changed parts those with `sign`."""
    for stretch in _STRETCH.each(data, 0, len(data)):
        for (start, end), *_rest in _SEGMENT.each(data, *stretch[0]):
            first = data[start : start + 1]
            if first in (b" ", sign):
                yield start, start + 1
                yield end - 1, end
            elif start < end:
                yield start, end - (first == b"~")


def with_submatches(data: bytes, found: list[Found]) -> list[Found]:
    """The findings, and what `rg --json` repeats of them behind the line that it found them in."""
    if b'"submatches":[{' not in data:
        return found
    ordered = sorted(found, key=lambda item: item[1])
    starts = [item[1] for item in ordered]
    reach = _running_maximum([item[2] for item in ordered])
    more: list[Found] = []
    for (_start, text), *_rest in _RECORD_START.each(data, 0, len(data)):
        tail = _RECORD_END.first(data, text, _line_end(data, text))
        if tail is None:
            continue
        last = bisect_right(starts, tail[0][0] - 1)
        first = bisect_right(reach, text)
        if first < last:
            more += _repeated(data, (text, tail[0][0]), tail[1], ordered[first:last])
    return found + more


def _running_maximum(numbers: list[int]) -> list[int]:
    highest = 0
    return [highest := max(highest, number) for number in numbers]


def _repeated(data: bytes, text: Span, matches: Span, secrets: list[Found]) -> list[Found]:
    """One finding over all submatches that overlap the secrets of their line, which lie side by side."""
    begin = _offset(data, text, min(item[1] for item in secrets), int)
    stop = _offset(data, text, max(item[2] for item in secrets), lambda: 1 << 62)
    shown = [
        spans[1]
        for spans in _SUBMATCH.each(data, *matches)
        if int(data[slice(*spans[2])]) < stop
        and int(data[slice(*spans[3])]) > begin
        and spans[1][0] < spans[1][1]
    ]
    return [(secrets[0][0], shown[0][0], shown[-1][1], secrets[0][3])] if shown else []


def _offset(data: bytes, text: Span, position: int, otherwise: Callable[[], int]) -> int:
    """How many bytes of the line come before `position` in its JSON string."""
    try:
        return len(
            decode(b'"' + data[text[0] : max(text[0], min(position, text[1]))] + b'"', type=str).encode()
        )
    except DecodeError:  # within an escape
        return otherwise()
