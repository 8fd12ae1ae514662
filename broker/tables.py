"""Secrets in tables: values below a column whose head names one, in CSV, tables of databases and of Markdown, INSERT and COPY.

Always true: rows are followed as long as they have all columns of the head, and no further than `ROW_BYTES` each. This
module decides which cells are looked at; whether a cell is a secret its caller decides.
"""

from collections.abc import Callable, Generator, Iterator

from broker import key_names
from broker.regex_engine import Expression

Found = tuple[int, int, str]
Judge = Callable[[bytes, bool, bool, key_names.KeyKind], bool]
ROW_BYTES = 16 * 1024
HEAD_BYTES = 256
MOST_COLUMNS = 64
WIDEST_HEAD = 40
TYPED = ("password", "passphrase", "secret", "secret_key", "api_key")
"""What people type by hand: such a value need not look random."""
_CELL = r"[\"']?[A-Za-z_][A-Za-z0-9_ .\-]*[\"']?"
_HEADER = Expression(rf"((?:\|[ ]*|[ ])?{_CELL}(?:(?:[,;\t]|[ ]*\|[ ]*){_CELL})+(?:[ ]*\|)?)[ ]*\r?\n")
_INSERT = Expression(
    r"(?i:insert[ \t]+into|copy)[ \t]+[A-Za-z0-9_.\"`\[\]]+[ \t]*\(([^()]*)\)[ \t\r\n]*(?i:values|from stdin;\r?\n)"
)
_TUPLE = Expression(r"[ \t\r\n,]*\(((?:'(?:[^'\\\n]|''|\\.)*'|[^'()\n]|\([^()\n]*\))*)\)")
_ROW = Expression(r"([^\n]*[^\s][^\n]*)(?:\n|$)")
_RULE = b" \t|+=:-\r"


def in_columns(data: bytes, signs: list[int], judge: Judge) -> Iterator[Found]:
    """The secrets below the heads of columns that stand at `signs`."""
    position = 0
    for sign in signs:
        if sign < position:
            continue
        line = data.rfind(b"\n", max(position, sign - ROW_BYTES), sign) + 1 or position
        header = _HEADER.here(data, line, min(len(data), line + ROW_BYTES))
        newline = data.find(b"\n", sign, sign + ROW_BYTES)
        position = newline if newline >= 0 else sign + ROW_BYTES
        if header is not None:
            names = data[slice(*header[1])]
            separator = next((sign for sign in (b"\t", b"|", b";", b",") if sign in names), b"\0")
            position = yield from _rows(
                data, header[0][1], (_ROW, separator), _columns(names.split(separator)), judge
            )
    position = 0 if any(_is_in_a_list(data, sign) for sign in signs) else len(data) + 1
    while position <= len(data) and (insert := _INSERT.first(data, position, len(data))) is not None:
        position = insert[0][1]
        row, separator = (_ROW, b"\t") if data[position - 1 : position] == b"\n" else (_TUPLE, b",")
        columns = _columns(data[slice(*insert[1])].split(b","))
        position = yield from _rows(data, position, (row, separator), columns, judge)


def _is_in_a_list(data: bytes, sign: int) -> bool:
    """Does the column's name stand in the parentheses of a statement?"""
    opened = data.rfind(b"(", max(0, sign - HEAD_BYTES), sign)
    before = data[max(0, opened - 2 * WIDEST_HEAD) : opened].upper() if opened >= 0 else b""
    return b"INTO" in before or b"COPY" in before


def _columns(heads: list[bytes]) -> list[key_names.KeyKind | None]:
    """What each column holds; nothing if no column holds secrets, or if this is rather a sentence than heads of columns."""
    if not 2 <= len(heads) <= MOST_COLUMNS or any(len(head) > WIDEST_HEAD for head in heads):
        return []
    kinds = [key_names.kind_of(head.strip(b" \t\r\n\"'`").decode(errors="replace")) for head in heads]
    sure = [
        kind
        and (kind if kind.name in TYPED or kind.name.startswith("aws_") else kind._replace(certain=False))
        for kind in kinds
    ]
    return sure if any(sure) else []


def _rows(
    data: bytes,
    position: int,
    shape: tuple[Expression, bytes],
    kinds: list[key_names.KeyKind | None],
    judge: Judge,
) -> Generator[Found, None, int]:
    """The secrets of the rows from `position` on, as long as they have all columns; returns where they end."""
    row, separator = shape
    while kinds and (spans := row.here(data, position, min(len(data), position + ROW_BYTES))) is not None:
        if data[slice(*spans[1])].strip(_RULE):
            cells = list(_cells(data, spans[1], separator))
            if len(cells) != len(kinds):
                break
            for (start, stop, quoted), kind in zip(cells, kinds, strict=True):
                value = data[start:stop]
                if kind is not None and (quoted or b" " not in value) and judge(value, quoted, True, kind):
                    yield start, stop, kind.name
        position = spans[0][1]
    return position


def _cells(data: bytes, span: tuple[int, int], separator: bytes) -> Iterator[tuple[int, int, bool]]:
    """Where the cells of a row are, without blanks and quotes, and whether they had quotes."""
    start, end = span
    while start <= end:
        text = data[start:end]
        start += len(text) - len(text.lstrip(b" "))
        mark = data[start : start + 1]
        closing = data.find(mark, start + 1, end) if mark in (b'"', b"'") else -1
        stop = data.find(separator, max(start, closing), end)
        stop = end if stop < 0 else stop
        if closing >= 0:
            yield start + 1, closing, True
        else:
            yield start, start + len(data[start:stop].rstrip()), False
        start = stop + 1
