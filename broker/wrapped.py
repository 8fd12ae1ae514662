"""Secrets that a terminal's width, or a program that wraps its output, has broken over several lines.

Always true: only what was found as a secret is ever continued, and only over lines that consist of nothing but the
characters of a token; a line that is not as wide as the first one is the last.
"""

from broker.randomness import classes, is_gibberish
from broker.regex_engine import Expression

Found = tuple[int, int, str]
NARROWEST = 40
LINES = 64
LINE_BYTES = 4096
_CONTINUED = Expression(r"\r?\n([A-Za-z0-9+/_.\-]{8,}={0,2})(?:\r?\n|$)")


def extended(data: bytes, spans: list[Found]) -> list[Found]:
    """The spans, each with the lines that continue it; none overlapping."""
    result: list[Found] = []
    for span in spans:
        if not result or span[0] >= result[-1][1]:
            result.append(_extended(data, span))
        elif span[1] > result[-1][1]:
            result[-1] = (result[-1][0], span[1], result[-1][2])
    return result


def _extended(data: bytes, span: Found) -> Found:
    start, end, name = span
    width = end - (data.rfind(b"\n", max(0, end - 4096), start) + 1)
    for _line in range(LINES if width >= NARROWEST else 0):
        following = _CONTINUED.here(data, end, min(len(data), end + LINE_BYTES))
        if following is None:
            break
        begin, stop = following[1]
        if not _continues(data[begin:stop].decode()):
            break
        end = stop
        if stop - begin != width:
            break
    return start, end, name


def _continues(line: str) -> bool:
    """Does this look like a token's rest and not like a word or a name?"""
    return classes(line) >= 2 and (any(c.isdigit() for c in line) or is_gibberish(line))
