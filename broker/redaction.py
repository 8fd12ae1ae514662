"""Replaces secrets in text by `[REDACTED:name]`, in one piece or as a stream.

Always true: the result does not depend on how a stream was cut, because the text is worked on in windows whose edges
depend on the text alone; a window's last `TAIL_BYTES` are looked at again with what follows them. Time is linear,
memory bounded by the window. Redacting twice changes nothing; text without a secret comes back as it was.
This module puts findings together; it must not decide what a secret is (`known_tokens`, `keyed_values`, `private_keys`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from broker import keyed_values, private_keys, randomness, schema, wrapped
from broker.known_tokens import known_tokens
from broker.printed_lines import views, with_submatches
from broker.redaction_catalogue import catalogue
from broker.refusal import StartupError
from broker.regex_engine import NOWHERE, Expression, ExpressionError
from broker.visible_text import VisibleText, hides

Found = tuple[int, int, str]
WINDOW_BYTES = 128 * 1024
TAIL_BYTES = 8 * 1024
CONTEXT_BYTES = 2 * 1024
LONG_BYTES = 2 * 1024
SECOND_LOOK_BYTES = 16 * 1024
SECOND_LOOKS = 3
MARKER_BYTES = 80
CLEAN_TEXTS = 128
CLEAN_CHARACTERS = 512
"""How many short texts without a secret are known again, and what is short. None with a secret is ever kept."""
_ENTROPY = "high_entropy"
_MARKER = Expression(r"\[REDACTED:[A-Za-z0-9_.\-]{0,64}\]")
_NAME = Expression(r"[A-Za-z0-9_.\-]{1,64}$")
_LONG = Expression(r"[A-Za-z0-9+/_=\-]{20,}")
_TOKEN_CHARACTERS = Expression(r"[A-Za-z0-9+/_=%\\.~\-]*")


class Redactor:
    """What the policy's `[redaction]` asks for. Cheap to make; patterns are compiled at the first use.

    Raises StartupError for an operator's pattern that is invalid, not linear, or does not match its own example.
    """

    __slots__ = ("_clean", "_enabled", "_entropy", "_extra")

    def __init__(self, config: schema.Redaction | None = None) -> None:
        config = config or schema.Redaction()
        self._clean: set[str] = set()
        self._enabled = config.enabled
        self._entropy = config.entropy_fallback
        self._extra = tuple(_operator_pattern(pattern) for pattern in config.extra_patterns)
        twice = {
            name for name, *_rest in self._extra if sum(name == other for other, *_others in self._extra) > 1
        }
        if twice:
            raise StartupError(f"redaction.extra_patterns: more than one pattern is named {min(twice)}")
        if self._enabled:  # read here: the threads that redact output are confined and can open no file
            catalogue()

    def redact(self, text: str) -> str:
        """`text` with each secret replaced; the same object when there is none."""
        if (
            text in self._clean
        ):  # a call's reason is redacted for the trail and for the reply, and calls are alike
            return text
        stream = self.stream()
        result = stream.feed(text) + stream.close()
        if stream.changed:
            return result
        self._remember(text)
        return text

    def _remember(self, text: str) -> None:
        if len(text) > CLEAN_CHARACTERS:
            return
        if len(self._clean) >= CLEAN_TEXTS:
            self._clean.clear()
        self._clean.add(text)

    def stream(self, on_found: Callable[[str, int, int, int], None] | None = None) -> "RedactionStream":
        """A stream of its own: feed it in any pieces, then close it."""
        return RedactionStream(self, on_found)

    def find(self, data: bytes) -> list[Found]:
        """Spans and names of all secrets in UTF-8 `data`, sorted, none overlapping."""
        if not self._enabled or len(data) < 4:
            return []
        if not hides(data):
            return self._find_visible(data)
        view = VisibleText(data)
        return [(*view.original(start, end), name) for start, end, name in self._find_visible(view.text)]

    def _find_visible(self, data: bytes) -> list[Found]:
        """Looks again at what the first look left, as a reader of the result would: a marker may bare what it hid."""
        found = self._look(data)
        rounds = SECOND_LOOKS if found and len(data) <= SECOND_LOOK_BYTES else 0
        for _round in range(rounds):
            more = self._look(_masked(data, found))
            if not more:
                break
            found = sorted(found + [_unmasked(span, found) for span in more])
        return found

    def _look(self, data: bytes) -> list[Found]:
        found = self._scan(data)
        for view in views(data):
            found += [
                (rank, *view.original(start, end), name) for rank, start, end, name in self._scan(view.text)
            ]
        return wrapped.extended(data, _disjoint(with_submatches(data, found), data)) if found else []

    def _scan(self, data: bytes) -> list[tuple[int, int, int, str]]:
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
        return found


def _masked(data: bytes, found: list[Found]) -> bytes:
    """`data` as it will be given out."""
    pieces: list[bytes] = []
    position = 0
    for start, end, name in found:
        pieces += (data[position:start], b"[REDACTED:%b]" % name.encode())
        position = end
    return b"".join((*pieces, data[position:]))


def _unmasked(span: Found, found: list[Found]) -> Found:
    """A span of the masked text in the original's positions. No span touches a marker."""
    shift = 0
    for start, end, name in found:
        if start + shift > span[0]:
            break
        shift += len(name.encode()) + len("[REDACTED:]") - (end - start)
    return span[0] - shift, span[1] - shift, span[2]


def _operator_pattern(pattern: schema.ExtraPattern) -> tuple[str, Expression, int]:
    expression = Expression(pattern.regex, utf8=True)
    if _NAME.here(pattern.name.encode(), 0, len(pattern.name.encode())) is None:
        raise StartupError(
            f"redaction.extra_patterns: {pattern.name!r} is no name: letters, digits, _ . - and at most 64"
        )
    try:
        expression.compile()
    except ExpressionError as fault:
        raise StartupError(f"redaction.extra_patterns: {pattern.name}: {fault}") from None
    group = expression.group_names.get("value", 1 if expression.groups else 0)
    if expression.here(b"", 0, 0) is not None:
        raise StartupError(
            f"redaction.extra_patterns: {pattern.name}: the expression matches nothing at all, thus everywhere"
        )
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
    """Joins what overlaps into one span, named by the surest finder; leaves alone what was redacted before."""
    joined: list[tuple[int, int, int, str]] = []
    for rank, start, end, name in sorted(found, key=lambda item: (item[1], item[0], -item[2])):
        if joined and start < joined[-1][2]:
            other = joined[-1]
            best = min((other[0], other[3]), (rank, name), key=lambda pair: pair[0])
            joined[-1] = (best[0], other[1], max(end, other[2]), best[1])
        else:
            joined.append((rank, start, end if end - start < LONG_BYTES else _goes_on(data, end), name))
    spans = [(start, end, name) for _rank, start, end, name in joined]
    if b"[REDACTED:" not in data:
        return spans
    markers = [marker[0] for marker in _MARKER.each(data, 0, len(data))]
    return [span for span in spans if not _touches(span, markers)]


def _goes_on(data: bytes, position: int) -> int:
    """Where the characters of a token end that stand from `position` on: finders look at bounded stretches only."""
    rest = _TOKEN_CHARACTERS.here(data, position, len(data))
    return rest[0][1] if rest is not None else position


def _touches(span: Found, markers: list[tuple[int, int]]) -> bool:
    """What stands against a marker was judged when the marker was made."""
    index = bisect_left(markers, (span[0] - MARKER_BYTES, 0))
    return any(begin <= span[1] and end >= span[0] for begin, end in markers[index : index + MARKER_BYTES])


class RedactionStream:
    """Text in pieces. What `feed` and `close` return, joined, is what `Redactor.redact` gives for the whole.

    `on_found(name, line, column, size_bytes)` is told what is replaced, in the order of the text; lines and columns
    count from 1, columns in bytes.
    """

    __slots__ = (
        "_column",
        "_done",
        "_line",
        "_pending",
        "_redactor",
        "_size",
        "_swallowing",
        "_tell",
        "changed",
    )

    def __init__(
        self, redactor: "Redactor", on_found: Callable[[str, int, int, int], None] | None = None
    ) -> None:
        self._redactor = redactor
        self._tell = on_found
        self._line = self._column = 0
        self._pending: list[bytes] = []
        self._size = 0
        self._done = 0  # how many bytes at the start of what is pending are context, already given out
        self._swallowing = False
        self.changed = False

    @property
    def pending_bytes(self) -> int:
        """How much is held back; bounded by two windows and what was fed last."""
        return self._size

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
        given = self._replaced(data, self._done, len(data), self._spans(data))
        self._done = 0
        return given

    def _advance(self, data: bytes) -> bytes:
        """Works on all windows that are complete; keeps the rest and some context before it."""
        out: list[bytes] = []
        base = 0
        while len(data) - base >= self._done + WINDOW_BYTES:
            size = self._done + WINDOW_BYTES
            window = data[base : _whole(data, base + size)]
            spans = self._spans(window)
            commit = self._commit(window, spans)
            out.append(self._replaced(window, self._done, commit, spans))
            context = min(commit, _line_start(window, max(0, commit - CONTEXT_BYTES)))
            base += context
            self._done = commit - context
        self._pending = [data[base:]]
        self._size = len(data) - base
        return b"".join(out)

    def _spans(self, window: bytes) -> list[Found]:
        """What to replace; after a secret that filled the last window to its end, what goes on belongs to it."""
        spans = self._redactor.find(window)
        if self._done:  # what such lines continue, one does not see here
            spans = [
                span for span in spans if span[2] != private_keys.LINES_NAME or b"\n" in window[: span[0]]
            ]
        if self._swallowing:
            stop = _goes_on(window, self._done)
            if stop > self._done:
                return [(self._done, stop, ""), *(span for span in spans if span[0] >= stop)]
        return spans

    def _commit(self, window: bytes, spans: list[Found]) -> int:
        """Up to where the window is certain: not into a secret that may go on behind the window's end."""
        commit = _last_line_before_tail(window, self._done)
        self._swallowing = False
        for start, end, _name in spans:
            if start < commit < end:
                if start > self._done and len(window) - start <= WINDOW_BYTES // 2:
                    return start
                self._swallowing = end == len(window)
                return end
        return commit

    def _replaced(self, data: bytes, start: int, end: int, spans: list[Found]) -> bytes:
        """`data[start:end]` with the spans that begin there, or reach into it, replaced."""
        pieces: list[bytes] = []
        given = start
        for begin, stop, name in spans:
            if stop <= given or begin >= end:
                continue
            begin = max(begin, given)  # noqa: PLW2901 - what was given out before cannot be taken back
            pieces.append(data[given:begin])
            if name:
                pieces.append(f"[REDACTED:{name}]".encode())
                self._report(data, start, begin, stop, name)
            given = stop
            self.changed = True
        pieces.append(data[given:end])
        self._count(data, start, end)
        return b"".join(pieces) if len(pieces) > 1 else pieces[0]

    def _report(self, data: bytes, start: int, begin: int, stop: int, name: str) -> None:
        if self._tell is not None:
            newline = data.rfind(b"\n", start, begin)
            column = begin - newline if newline >= 0 else self._column + begin - start + 1
            self._tell(name, self._line + data.count(b"\n", start, begin) + 1, column, stop - begin)

    def _count(self, data: bytes, start: int, end: int) -> None:
        if self._tell is not None:
            newline = data.rfind(b"\n", start, end)
            self._column = end - newline - 1 if newline >= 0 else self._column + end - start
            self._line += data.count(b"\n", start, end)


def _last_line_before_tail(window: bytes, done: int) -> int:
    """The end of the last line that ends before the tail; else the last blank; else just there."""
    tail = max(done + 1, len(window) - TAIL_BYTES)
    newline = window.rfind(b"\n", done, tail)
    if newline >= 0:
        return newline + 1
    blank = window.rfind(b" ", done, tail)
    return blank + 1 if blank >= 0 else max(_whole(window, tail), done + 1)


def _line_start(window: bytes, position: int) -> int:
    newline = window.find(b"\n", position, position + CONTEXT_BYTES // 2)
    return newline + 1 if newline >= 0 else _whole(window, position)


def _whole(data: bytes, position: int) -> int:
    """The next lower position that does not split a UTF-8 character."""
    while 0 < position < len(data) and data[position] & 0xC0 == 0x80:
        position -= 1
    return position
