"""Private keys in every armour, whole or cut off at either end, whatever stands before each of their lines.

Always true: public keys and certificates are left alone, and so is text that only mentions an armour's first line.
"""

from collections.abc import Iterator

from broker.randomness import classes, entropy_bits
from broker.regex_engine import Expression

Found = tuple[int, int, str]
NAME = "private_key"
LINES_NAME = "private_key_lines"
BODY_BYTES = 32 * 1024
NEAR_BYTES = 512
RANDOM_BITS = (5.0, 4.9)
"""Of four or more lines of 64 characters on average, and of fewer: 5.3 by chance, 4.8 where base64 encodes text."""
_PUBLIC = (  # how base64 begins that encodes ASN.1, PGP, images, archives, documents, fonts, programs
    *(
        "MI",
        "MFkwEwYH",
        "MHYwEAYH",
        "MCowBQYD",
        "mQ",
        "mD",
        "iQ",
        "iH",
        "hQ",
        "iVBORw0KGgo",
        "/9j/",
        "R0lGOD",
        "UklGR",
    ),
    *(
        "UEsDB",
        "H4sI",
        "QlpoOT",
        "/Td6WFo",
        "KLUv",
        "JVBER",
        "AAAA",
        "AAEAAA",
        "T1RUTw",
        "d09GR",
        "PD94",
        "PHN2Z",
    ),
    *("AGFzb", "gASV", "LS0tLS1CRUdJTiBD"),
)
_BLANK = r"(?:[ +]|%20)"
_KIND = rf"(?:[A-Z0-9]+{_BLANK})*PRIVATE{_BLANK}KEY(?:{_BLANK}BLOCK)?"
_EDGE = Expression(rf"-{{0,5}} ?\b(?:BEGIN|END){_BLANK}{_KIND} ?-{{4,5}}")
_RUN = Expression(r"[A-Za-z0-9+/=]{20,}")
_INLINE = Expression(r"(?:[A-Za-z0-9+/=_]|\\+[nrt]|%0[AaDd]|%2[BbFf]|%3[Dd]|[ \t](?:[A-Za-z0-9+/=]{16}))*")
_LINE = Expression(
    r"(?:[ \t\r\n]*|[^\n]{0,100}?[ \t|:>+\-\"'])"
    r"(?:[A-Za-z0-9+/]{24,}={0,3}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject): [^\n]*)"
    r"(?:\\+[nr]|[\"',; \t\r])*(?:\n|$)"
)
_EMPTY = Expression(r"[ \t>|+\r]*\n")
_LAST = Expression(r"[ \t]*([A-Za-z0-9+/]{1,76}={0,3})(?:\\+[nr]|[\"',; \t\r])*(?:\n|$)")
_PREFIXED_LAST = Expression(
    r"[^\n]{0,100}?[ \t|:>+\-\"']([A-Za-z0-9+/]{1,76}={1,3})(?:\\+[nr]|[\"',; \t\r])*(?:\n|$)"
)


def find(data: bytes) -> Iterator[Found]:
    """All private keys in `data`."""
    edges = [spans[0] for spans in _EDGE.each(data, 0, len(data))]
    claimed = 0
    for index, (start, body) in enumerate(edges):
        if start < claimed:
            continue
        begin: int | None = start
        stop: int | None = body
        following = edges[index + 1 : index + 2]
        if _is_last_line(data, edges[index]):
            begin = _headless(data, start, claimed)
            if begin is None:
                begin, stop = start, _upside_down(data, body, following)
        else:
            stop = _closed(data, body, following) or _cut_off(data, _after_empty(data, body, following))
        if begin is not None and stop is not None:
            claimed = stop
            yield begin, stop, NAME


def _is_last_line(data: bytes, edge: tuple[int, int]) -> bool:
    return b"END" in data[edge[0] : edge[0] + 9]


def _closed(data: bytes, body: int, following: list[tuple[int, int]]) -> int | None:
    """The end of a block whose last line comes next, if what lies between looks like a key."""
    for first, stop in following:
        if (
            _is_last_line(data, (first, stop))
            and first - body <= BODY_BYTES
            and _RUN.first(data, body, first)
        ):
            return stop
    return None


def _upside_down(data: bytes, body: int, following: list[tuple[int, int]]) -> int | None:
    """The end of a block whose lines come in reverse: nothing but lines of a body, then its first line."""
    for first, stop in following:
        lines = [line for line in data[body:first].split(b"\n") if line.strip()]
        if (
            not _is_last_line(data, (first, stop))
            and first - body <= BODY_BYTES
            and _RUN.first(data, body, first)
            and all(_LAST.here(line, 0, len(line)) for line in lines[:-1])
        ):
            return stop
    return None


def _after_empty(data: bytes, body: int, following: list[tuple[int, int]]) -> int:
    """Where the body begins; sorted lines have first and last line before it."""
    for first, stop in following:
        if not data[body:first].strip():
            return stop
    return body


def _cut_off(data: bytes, body: int) -> int | None:
    """The end of what still looks like the key after a first line without a last one."""
    limit = min(len(data), body + BODY_BYTES)
    spans = _INLINE.here(data, body, limit)
    stop = spans[0][1] if spans is not None else body
    found = stop - body >= 20
    newline = data.find(b"\n", stop, min(limit, stop + 8))
    if newline >= 0:
        lines_end, lines = _lines(data, newline + 1, limit)
        if lines:
            return lines_end
    return stop if found else None


def _lines(data: bytes, position: int, limit: int) -> tuple[int, int]:
    """Goes over lines of a key's body; returns where they end (without the last newline) and how many there were."""
    lines = 0
    while position < limit:
        spans = _LINE.here(data, position, limit)
        if spans is None and not lines:
            spans = _EMPTY.here(data, position, limit)
            if spans is None:
                break
            position = spans[0][1]
            continue
        if spans is None:
            spans = _EMPTY.here(data, position, limit) if lines < 6 else None
            if spans is None:
                position = _last_line(data, position, limit)
                break
        lines += 1
        position = spans[0][1]
    return (position - 1 if lines and data[position - 1 : position] == b"\n" else position), lines


def _last_line(data: bytes, position: int, limit: int) -> int:
    """A body's last line is shorter: it ends in padding, or mixes letters and digits as words do not."""
    last = _PREFIXED_LAST.here(data, position, limit) or _LAST.here(data, position, limit)
    if last is None:
        return position
    text = data[slice(*last[1])]
    mixed = any(b in b"0123456789+/" for b in text) and text.lower() != text
    return last[0][1] if text.endswith(b"=") or mixed else position


def _headless(data: bytes, end: int, floor: int) -> int | None:
    """Where the body begins whose first line is missing: the base64 lines before the last one."""
    first = None
    position = end
    while position > floor:
        line = max(data.rfind(b"\n", floor, position - 1) + 1, floor)
        if _LINE.here(data, line, position) is None and not (
            first is None and _LAST.here(data, line, position)
        ):
            break
        first = position = line
    return first


def is_alone(data: bytes, start: int, stop: int) -> bool:
    """Are these lines of base64 no part of something public, such as a certificate?"""
    before, after = data[max(0, start - NEAR_BYTES) : start], data[stop : stop + NEAR_BYTES]
    if b"base64" in before.lower():
        return False
    begin, end = before.rfind(b"BEGIN"), after.find(b"END")
    around = (
        before[begin : begin + 60] if begin > before.rfind(b"END") else b"",
        after[max(end, 0) : end + 60],
    )
    return all(b"PRIVATE" in edge for edge in around if b"BEGIN" in edge or b"END" in edge)


def is_body(value: str) -> bool:
    """Are these lines as random as those of a key, and not the beginning of something public or of a known format?"""
    lines = [line.split()[-1] for line in value.splitlines()]
    full = [line[-64:] for line in lines if len(line) >= 64]
    random = sum(map(entropy_bits, full)) > RANDOM_BITS[len(full) < 4] * len(full) and all(
        classes(line) == 3 for line in full
    )
    return random and not lines[0].startswith(_PUBLIC)
