"""Takes out of a program's output what steers a terminal, and folds progress bars to their last state.

Always true: what comes out holds no escape sequence, no control character but newline and tab, no bidirectional
control and no tag character (U+E0000 to U+E007F: letters that a model reads and a person does not see); so what a person or a
model reads is what is there. The result does not depend on how the input was cut.
Memory is bounded: a line longer than `LINE_BYTES` is given out in pieces. Works on valid UTF-8.
Sequences: ECMA-48 5.4 (CSI), 5.6 (control strings, which here also end at a newline, so that an unterminated one
cannot hide the rest of the output).
"""

from broker.regex_engine import Expression

LINE_BYTES = 32 * 1024
SEQUENCE_BYTES = 256
_SILENT = bytes([*range(7), 0x0B, 0x0C, *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
"""Control characters that are dropped wherever they stand: a terminal ignores them, or obeys them amid a sequence too."""
_STEERING = Expression(  # in runs: a flood of one character must not cost one search each
    r"\x1b+|[\r\x08]+|\x07+|(?:\xc2[\x80-\x8f\x91-\x97\x99\x9a\x9c])+|\xc2[\x90\x98\x9b\x9d-\x9f]"
    r"|(?:\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xf3\xa0[\x80\x81][\x80-\xbf])+"
)
_STRING_END = Expression(r"\x07|\x1b\\|\xc2\x9c|\n")
_SEQUENCE = Expression(r"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-OQ-WYZ\\`-~]")
_STRING_START = Expression(r"\x1b[\]PX^_]|\xc2[\x90\x98\x9d\x9e\x9f]")
_UNFINISHED = Expression(r"(?:\x1b|\x1b\[[0-?]*[ -/]*|\x1b[ -/]+|\xc2\x9b[0-?]*[ -/]*)$")


class Terminal:
    """Incremental: `feed` bytes, then `close`; what both return, joined, is the cleaned text."""

    __slots__ = ("_held", "_in_string", "_line")

    def __init__(self) -> None:
        self._held = b""  # an escape sequence that is not complete yet
        self._in_string = False
        self._line = b""  # the current line, as far as it is known

    def feed(self, data: bytes) -> bytes:
        """Takes more; returns what is certain by now."""
        data = self._held + data.translate(None, _SILENT)
        self._held = b""
        if self._in_string or _STEERING.first(data, 0, len(data)) is not None:
            data = self._without_sequences(data)
        return self._fold(data)

    def close(self) -> bytes:
        """The rest. An incomplete sequence at the end is dropped."""
        line, self._line, self._held = self._line, b"", b""
        return _last_state(line)

    def _without_sequences(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        position = 0
        if self._in_string:
            position = self._skip_string(data, 0)
        while position < len(data):
            spans = _STEERING.first(data, position, len(data))
            if spans is None:
                pieces.append(data[position:])
                break
            begin, end = spans[0]
            pieces.append(data[position:begin])
            if data[begin] == 0x0D or data[begin] == 0x08:
                pieces.append(data[begin:end])
                position = end
            else:
                position = self._after_sequence(data, begin, end)
        return b"".join(pieces)

    def _after_sequence(self, data: bytes, begin: int, end: int) -> int:
        if data[begin] == 0x1B:
            begin = end - 1  # of several in a row only the last can begin a sequence
        elif data[begin] != 0xC2:
            return end
        limit = min(len(data), begin + SEQUENCE_BYTES)
        spans = _SEQUENCE.here(data, begin, limit)
        if spans is not None:
            return spans[0][1]
        start = _STRING_START.here(data, begin, limit)
        if start is not None:
            return self._skip_string(data, start[0][1])
        if limit == len(data) and _UNFINISHED.here(data, begin, limit) is not None:
            self._held = data[begin:]
            return len(data)
        return end

    def _skip_string(self, data: bytes, position: int) -> int:
        spans = _STRING_END.first(data, position, len(data))
        self._in_string = spans is None
        if spans is None:
            if data[-1:] == b"\x1b":
                self._held = b"\x1b"
            return len(data)
        begin, end = spans[0]
        return begin if data[begin] == 0x0A else end

    def _fold(self, data: bytes) -> bytes:
        """Gives out whole lines in their last state, keeps the rest; cuts overlong lines at fixed places."""
        data = self._line + data
        position = 0
        out: list[bytes] = []
        if b"\r" not in data and b"\x08" not in data:  # nearly always: lines are their last state
            position = data.rfind(b"\n") + 1
            out.append(data[:position])
        while True:
            newline = data.find(b"\n", position)
            stop = len(data) if newline < 0 else newline
            while stop - position > LINE_BYTES:
                cut = position + LINE_BYTES
                while data[cut] & 0xC0 == 0x80:
                    cut -= 1
                out.append(_last_state(data[position:cut]))
                position = cut
            if newline < 0:
                break
            out.append(_last_state(data[position:newline]))
            out.append(b"\n")
            position = newline + 1
        self._line = data[position:]
        return b"".join(out)


def _last_state(line: bytes) -> bytes:
    """What a line shows in the end: what was written after the last carriage return, backspaces applied."""
    if b"\r" in line:
        line = next((part for part in reversed(line.split(b"\r")) if part), b"")
    if b"\x08" in line:
        shown: list[str] = []
        for character in line.decode("utf-8", "replace"):
            if character != "\b":
                shown.append(character)
            elif shown:
                shown.pop()
        line = "".join(shown).encode()
    return line
