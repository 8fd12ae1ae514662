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

from broker.keyed_values import KEYWORD
from broker.regex_engine import NOWHERE, Expression
from broker.visible_text import VisibleText

NEAR_BYTES = 1024
AROUND_BYTES = 4 * 1024
TABLE_BYTES = 16 * 1024
HUNK_BYTES = 32 * 1024
"""How far around a name its value may stand, below the head of a table its rows, and above it the head of a hunk."""
Span = tuple[int, int]
Found = tuple[int, int, int, str]
_PATH = r"[^\s:\[{=\"']"
_RECORD = (  # of `rg --json`
    r"\{\"type\":\"(?:match|context)\",\"data\":\{\"path\":(?:null|\{\"(?:text|bytes)\":\"(?:[^\"\\\n]|\\.)*\"\})"
    r",\"lines\":\{\"text\":\""
)
_LINES = (
    rf"{_RECORD}"
    r"|[ ]*[0-9]{1,7}[ ]*[:]?\t|[ ]+[0-9a-f]{0,7}[0-9][0-9a-f]{0,7}[ ]"  # a number, an offset, how often
    r"|\^?[0-9a-f]{7,40}[ \t](?:[^\n]*?[ \t])?[0-9]+\)[ ]?"  # who wrote it
    r"|[0-9a-f]{40}[ ][0-9]+[ ][0-9]+(?:[ ][0-9]+)?\n(?:[a-z\-]+(?:[ ][^\n]*)?\n)*\t"  # the same, for programs
    r"|[ ]{5,6}[a-f]{1,2}[ ]|[<>][ ]"  # a small offset; a quoted text, or the lines of a diff
    r"|(?:\{\"[A-Za-z_]+\":)?\"(?:[^\"\\\n]|\\.)*\"[,}\]]*(?m:$)"  # a string of JSON
    r"|[0-9]{2}:[0-9]{2}:[0-9]{2}"  # a time: nothing to leave out
    rf"|(?:{_PATH}+:){{0,2}}?[ ]*[0-9]{{1,9}}:(?:[0-9]{{1,9}}:)?\t?"
    r"|(?:[A-Za-z0-9_@^~./\-]+:)?[A-Za-z0-9_@+,\-]*[./][A-Za-z0-9_@+.,/\-]*:\t?"
)
_CONTEXT = (  # 1900 to 2099 are years
    rf"(?:{_PATH}*[A-Za-z_./]{_PATH}*-(?:[0-9]{{1,3}}|[0-9]{{5,9}}|[03-9][0-9]{{3}}|1[0-8][0-9]{{2}}|2[1-9][0-9]{{2}})"
    r"|[0-9]{1,3}|[0-9]{5,9}|[03-9][0-9]{3}|1[0-8][0-9]{2}|2[1-9][0-9]{2})-"
)
_NUMBER = (
    rf"(?:{_PATH}+:){{0,2}}?[ ]*[0-9]{{1,9}}[:\-\t](?:[0-9]{{1,9}}[:\-])?\t?"  # before the lines of a diff
)
_SIGNS = (
    r"(?m:^)(?:[|*\\/_>][ |*\\/_>]*|[ ]+)?@@@?[ ]-|(?m:^)(?:\*{15}|~\n)"  # a diff, one with context, a word diff for programs
    r"|-\]|\+\}|[ \t][|<>]\t"  # a word diff, a diff side by side
)
_PLAIN = Expression(rf"{_SIGNS}|(?m:^)(?:{_LINES}|{_CONTEXT})")


def _of_a_diff(graph: str) -> Expression:
    """What stands before lines that were removed or added, which it ends with a sign, and before others."""
    return Expression(rf"(?m:^)(?:(?:{graph}|{_NUMBER})?(?:-{{1,2}}|\+{{1,2}}|![ ])|{graph}|{_LINES})")


_NAME = rf"[A-Za-z0-9_.\-]*(?i:{KEYWORD})[A-Za-z0-9_.\-]*[\"'`]?"
_BEFORE = (  # whatever a program may have set before a line, in as few words as that can be said
    r"(?:(?m:^)[ \t|*<>+\-!\\/_\"]*"
    r"(?:\^?[0-9a-f]{7,40}[ \t][^\n]*?[0-9]+\)[ ]?[+\-]{0,2}|[^\s=\"']*[:\-\t][ \t+\-]*|[0-9a-f]+[ \t]+[+\-]{0,2})?"
    r"|[|<>]\t)[ \t]*"
)
_CELL = r"[ ]*[\"']?[A-Za-z_][A-Za-z0-9_.\-]*(?:[ ][A-Za-z0-9_.\-]+){0,2}[\"']?[ ]*"
_COLUMN = (
    r"[ ]*[\"']?(?:[A-Za-z0-9_.\-]+[ ]){0,2}[A-Za-z0-9_.\-]*"
    r"(?i:passw(?:or)?d|passphrase|secret|_token|api_key|access[ _]key)[\"']?[ ]*"
)
_TABLE = rf"\|?(?:{_COLUMN}(?:[,;|\t]{_CELL})+|(?:{_CELL}[,;|\t])+{_COLUMN}(?:[,;|\t]{_CELL})*)\|?\r?\n"
_WORTH = Expression(
    rf"{_BEFORE}(?:-[ ]+)?[\"']?{_NAME}(?:[ \t]+[^\s:=|<>(]|[ \t]*[:=][ \t]*[(\\|>]?[ \t]*\r?\n)"  # its value apart
    rf"|(?i:name|key|field|variable)[\"']?[ \t]*[:=>][ \t]*[\"']?{_NAME}[,;]?[ \t]*\r?\n"
    rf"|{_BEFORE}({_TABLE})"
    r"|(\[-(?:[^\n\[]|\[[^\n\-])*?-\]|\{\+(?:[^\n{]|\{[^\n+])*?\+\}|(?m:^)~\n|\{\"type\":\"(?:match|context)\")"  # marks
)
"""What is found only where a line begins, or on the line before: without any of it no view has what the text has not. Marks:
what no diff of words and no record of `rg` can do without.
"""


_IN_A_DIFF = _of_a_diff(r"(?:[|*>][ ])+")
_BESIDE_A_GRAPH = _of_a_diff(r"(?:[|*\\/_> ][ ])+")
_RECORD_END = Expression(
    r"(?:\\r)?(?:\\n)?\"\},\"line_number\":(?:null|[0-9]+),\"absolute_offset\":[0-9]+,\"submatches\":([^\n]*)"
)
_RECORD_START = Expression(_RECORD)
_SUBMATCH = Expression(r"\"(?:text|bytes)\":\"((?:[^\"\\]|\\.)*)\"\},\"start\":([0-9]+),\"end\":([0-9]+)\}")
_HEADS = {b"@@ -", b"@@@ -", b"*" * 15}
_RECORD_HEAD = b'{"type":"'
_SIGN_ENDS = b"-]}*\n\t"
_CUT_ENDS = b": \t)-+"
_SIGN_TEXTS = (b"-]", b"+}", b"~\n", b"**")
_BESIDE = (b"|\t", b"<\t", b">\t")
_WORD_MARKS = (b"-]", b"+}")
_REMOVED, _ADDED = (
    r"\[-)(?:[^\n\[]|\[[^\n\-])*?(-\]",
    r"\{\+)(?:[^\n{]|\{[^\n+])*?(\+\}",
)  # none within another
_WORDS = Expression(rf"({_REMOVED})|({_ADDED})")
_STRETCH = Expression(r"(?m:^)(?:[ +\-][^\n]*\n)*~\n")
_SEGMENT = Expression(r"[^\n]*\n")
_LEFT = Expression(r"[ ]*[|<>]?\t[^\n]*|[ \t]+[|<](?m:$)")
_RIGHT = Expression(r"(?m:^)[^\n]*\t")


def views(data: bytes) -> Iterator[VisibleText]:
    """What files `data` may be a print of; nothing where it can only be itself, or nothing new would be seen."""
    for begin, stop in _regions(data):
        yield from (view.behind(begin) for view in _views(data[begin:stop]))


def _regions(data: bytes) -> list[Span]:
    """Where a view may have what the text has not: around each `_WORTH`, or all of it. Whole lines, none twice."""
    regions: list[Span] = []
    for (start, end), table, mark in _WORTH.each(data, 0, len(data)):
        if mark != NOWHERE:
            return [(0, len(data))]
        begin = data.rfind(b"\n", 0, max(0, start - AROUND_BYTES)) + 1
        stop = _line_end(data, min(len(data), end + (TABLE_BYTES if table != NOWHERE else AROUND_BYTES)))
        if regions and begin <= regions[-1][1]:
            regions[-1] = regions[-1][0], max(stop, regions[-1][1])
            continue
        head = data.rfind(b"@@ -", max(regions[-1][1] if regions else 0, begin - HUNK_BYTES), begin)
        regions.append((data.rfind(b"\n", 0, head) + 1 if head >= 0 else begin, stop))
    return regions


def _views(data: bytes) -> Iterator[VisibleText]:
    before: list[Span] = []
    signs: set[bytes] = set()
    for start, end in _found(_PLAIN, data):
        last = data[end - 1]
        if last in _SIGN_ENDS and _is_sign(data[start:end]):
            signs.add(data[start:end])
        elif last in _CUT_ENDS:
            before.append((start, end))
        else:
            before += _around_a_string(data, start, end)
    if not signs:
        yield from _parts(data, before)
        return
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
    cuts: list[tuple[Span, int]] = []
    for start, end in _found(lines, data):
        last = data[end - 1]
        if last in _SIGN_ENDS or last in _CUT_ENDS:
            cuts.append(((start, end), last))
        else:
            cuts += ((cut, 0) for cut in _around_a_string(data, start, end))
    for other in b"+-":
        yield from _parts(
            data, [(start, _line_end(data, end) + 1 if last == other else end) for (start, end), last in cuts]
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


def _found(expression: Expression, data: bytes) -> Iterator[Span]:
    for spans in expression.each(data, 0, len(data)):
        yield spans[0]


def _is_sign(text: bytes) -> bool:
    """Does it say that this is a diff, not where a line is?"""
    return text[-2:] in _SIGN_TEXTS or text[-4:] == b"@@ -" or text[1:] in _BESIDE


def _around_a_string(data: bytes, start: int, end: int) -> Iterator[Span]:
    """What stands around a string of JSON that is a line, or in a record of `rg --json`; around a time nothing."""
    if data[start : start + 1] not in (b'"', b"{"):
        return
    if data[start:end].startswith(_RECORD_HEAD):
        yield start, end
        tail = _RECORD_END.first(data, end, _line_end(data, end))
        if tail is not None:
            yield tail[0]
        return
    opened = (
        data.find(b'"', start if data[start : start + 1] == b'"' else data.find(b":", start, end), end) + 1
    )
    yield start, opened
    yield opened + len(data[opened:end].rstrip(b'",}]')), end


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
