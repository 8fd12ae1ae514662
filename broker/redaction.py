"""Replaces secrets in text by `[REDACTED:name]`, in one piece or as a stream.

Always true: the result does not depend on how a stream was cut, because the text is worked on in windows whose edges
depend on the text alone; a window's last `TAIL_BYTES` are looked at again with what follows them. Time is linear,
memory bounded by the window. Redacting twice changes nothing; text without a secret comes back as it was.
This module puts findings together; it must not decide what a secret is (`known_tokens`, `keyed_values`, `private_keys`).
"""

from collections.abc import Iterable

from broker import keyed_values, private_keys, randomness, schema
from broker.known_tokens import known_tokens
from broker.refusal import StartupError
from broker.regex_engine import NOWHERE, Expression, ExpressionError
from broker.visible_text import VisibleText

Found = tuple[int, int, str]
WINDOW_BYTES = 64 * 1024
TAIL_BYTES = 8 * 1024
CONTEXT_BYTES = 2 * 1024
MARKER_BYTES = 80
_ENTROPY = "high_entropy"
_LONG = Expression(r"[A-Za-z0-9+/_=\-]{20,}")
_GOES_ON = Expression(r"[A-Za-z0-9+/_=%\\.\-]*")


class Redactor:
    """What the policy's `[redaction]` asks for. Cheap to make; patterns are compiled at the first use.

    Raises StartupError for an operator's pattern that is invalid, not linear, or does not match its own example.
    """

    __slots__ = ("_enabled", "_entropy", "_extra")

    def __init__(self, config: schema.Redaction | None = None) -> None:
        config = config or schema.Redaction()
        self._enabled = config.enabled
        self._entropy = config.entropy_fallback
        self._extra = tuple(_operator_pattern(pattern) for pattern in config.extra_patterns)

    def redact(self, text: str) -> str:
        """`text` with each secret replaced; the same object when there is none."""
        stream = self.stream()
        result = stream.feed(text) + stream.close()
        return result if stream.changed else text

    def stream(self) -> "RedactionStream":
        """A stream of its own: feed it in any pieces, then close it."""
        return RedactionStream(self)

    def find(self, data: bytes) -> list[Found]:
        """Spans and names of all secrets in UTF-8 `data`, sorted, none overlapping."""
        if not self._enabled or len(data) < 4:
            return []
        if b"\x1b" not in data:
            return self._find_visible(data)
        view = VisibleText(data)
        return [(*view.original(start, end), name) for start, end, name in self._find_visible(view.text)]

    def _find_visible(self, data: bytes) -> list[Found]:
        found = [(0, *item) for item in private_keys.find(data)] if b"PRIVATE" in data else []
        found += [(1, *item) for item in known_tokens().find(data)]
        found += [(2, *item) for item in keyed_values.find(data)]
        for name, expression, group in self._extra:
            for spans in expression.each(data, 0, len(data)):
                span = spans[group] if spans[group] != NOWHERE else spans[0]
                if span[0] < span[1]:
                    found.append((1, *span, name))
        if self._entropy:
            found += [(3, *item) for item in _entropic(data)]
        return _disjoint(found, data) if found else []


def _operator_pattern(pattern: schema.ExtraPattern) -> tuple[str, Expression, int]:
    expression = Expression(pattern.regex, utf8=True)
    try:
        expression.compile()
    except ExpressionError as fault:
        raise StartupError(f"redaction.extra_patterns: {pattern.name}: {fault}") from None
    group = expression.group_names.get("value", 1 if expression.groups else 0)
    if pattern.example is not None:
        data = pattern.example.encode()
        if expression.first(data, 0, len(data)) is None:
            raise StartupError(
                f"redaction.extra_patterns: {pattern.name}: the expression does not match its own example"
            )
    return pattern.name, expression, group


def _entropic(data: bytes) -> Iterable[Found]:
    for (start, end), *_rest in _LONG.each(data, 0, len(data)):
        value = data[start:end].decode()
        if randomness.entropy_bits(value[:256]) >= 3.0 and any(c.isdigit() for c in value):
            yield start, end, _ENTROPY


def _disjoint(found: list[tuple[int, int, int, str]], data: bytes) -> list[Found]:
    """Joins what overlaps into one span, named by the surest finder."""
    joined: list[tuple[int, int, int, str]] = []
    for rank, start, end, name in sorted(found, key=lambda item: (item[1], item[0], -item[2])):
        if joined and start < joined[-1][2]:
            other = joined[-1]
            best = min((other[0], other[3]), (rank, name), key=lambda pair: pair[0])
            joined[-1] = (best[0], other[1], max(end, other[2]), best[1])
        else:
            joined.append((rank, start, end, name))
    return [(start, end, name) for _rank, start, end, name in joined if b"[REDACTED:" not in data[start:end]]


class RedactionStream:
    """Text in pieces. What `feed` and `close` return, joined, is what `Redactor.redact` gives for the whole."""

    __slots__ = ("_done", "_pending", "_redactor", "_size", "_swallowing", "changed")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pending: list[bytes] = []
        self._size = 0
        self._done = 0  # how many bytes at the start of what is pending are context, already given out
        self._swallowing = False
        self.changed = False

    def feed(self, text: str) -> str:
        """Takes more text; returns what is certain by now."""
        return self.feed_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def close(self) -> str:
        """The rest."""
        return self.close_bytes().decode("utf-8", "surrogatepass")

    def feed_bytes(self, data: bytes) -> bytes:
        """Like `feed`, for valid UTF-8 in pieces that do not split characters."""
        self._pending.append(data)
        self._size += len(data)
        if self._size < self._done + WINDOW_BYTES:
            return b""
        return self._advance(b"".join(self._pending))

    def close_bytes(self) -> bytes:
        """Like `close`."""
        data = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        spans = self._swallowed(data, self._redactor.find(data), len(data))
        given = self._replace(data, self._done, len(data), spans)
        self._done = 0
        return given

    def _advance(self, data: bytes) -> bytes:
        out: list[bytes] = []
        base = 0
        while len(data) - base >= self._done + WINDOW_BYTES:
            window = data[base : base + self._done + WINDOW_BYTES]
            window = window[: _whole(window, len(window))]
            given, keep = self._window(window)
            out.append(given)
            base += keep[0]
            self._done = keep[1] - keep[0]
        rest = data[base:]
        self._pending = [rest]
        self._size = len(rest)
        return b"".join(out)

    def _window(self, window: bytes) -> tuple[bytes, tuple[int, int]]:
        """Works on one window; returns what can be given out and (start of the context to keep, end of what was given)."""
        spans = self._swallowed(window, self._redactor.find(window), len(window))
        commit = _commit_point(window, self._done)
        swallow = False
        for start, end, _name in spans:
            if start < commit < end:
                commit = end
                swallow = end == len(window)
        given = self._replace(window, self._done, commit, spans)
        self._swallowing = swallow
        return given, (_line_start(window, max(0, commit - CONTEXT_BYTES)), commit)

    def _swallowed(self, data: bytes, spans: list[Found], end: int) -> list[Found]:
        """After a secret that filled the last window to its end, what continues it belongs to it."""
        if not self._swallowing:
            return spans
        rest = _GOES_ON.here(data, self._done, end)
        stop = rest[0][1] if rest is not None else self._done
        if stop > self._done:
            return [(self._done, stop, ""), *[span for span in spans if span[0] >= stop]]
        return spans

    def _replace(self, data: bytes, start: int, end: int, spans: list[Found]) -> bytes:
        pieces: list[bytes] = []
        for begin, stop, name in spans:
            if begin < start or begin >= end:
                continue
            pieces.append(data[start:begin])
            pieces.append(f"[REDACTED:{name}]".encode() if name else b"")
            start = stop
            self.changed = True
        if not pieces:
            return data[start:end]
        pieces.append(data[start:end])
        return b"".join(pieces)


def _commit_point(window: bytes, done: int) -> int:
    """The end of the last line that ends before the tail; else the last blank; else just there."""
    tail = max(done + 1, len(window) - TAIL_BYTES)
    newline = window.rfind(b"\n", done, tail)
    if newline >= 0:
        return newline + 1
    blank = window.rfind(b" ", done, tail)
    return blank + 1 if blank >= 0 else _whole(window, tail)


def _line_start(window: bytes, position: int) -> int:
    newline = window.find(b"\n", position, position + CONTEXT_BYTES // 2)
    return newline + 1 if newline >= 0 else _whole(window, position)


def _whole(data: bytes, position: int) -> int:
    """The next lower position that does not split a UTF-8 character."""
    while 0 < position < len(data) and data[position] & 0xC0 == 0x80:
        position -= 1
    if position == len(data) and data:
        tail = position - 1
        while tail > 0 and data[tail] & 0xC0 == 0x80:
            tail -= 1
        need = 1 if data[tail] < 0x80 else 2 if data[tail] < 0xE0 else 3 if data[tail] < 0xF0 else 4
        return position if position - tail >= need else tail
    return position
