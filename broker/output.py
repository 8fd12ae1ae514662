"""A command's output on its way to the reply: decoded, cleaned, redacted, and only then cut to its limit.

Always true: memory is bounded whatever a program prints; nothing of a secret that straddles the limit is left, because
the cut comes after the redaction; a cut never splits a character or a marker. Past the limit bytes are only counted.
"""

from codecs import getincrementaldecoder
from typing import Literal

from broker.redaction import MARKER_BYTES, Redactor
from broker.terminal import Terminal

_decoder = getincrementaldecoder("utf-8")


class OutputFilter:
    """One stream of one command. `limit_bytes` counts UTF-8 bytes of the result, `total_bytes` raw bytes fed."""

    __slots__ = (
        "_decoder",
        "_kept",
        "_limit",
        "_redaction",
        "_size",
        "_terminal",
        "total_bytes",
        "truncated",
    )

    def __init__(
        self, redactor: Redactor, limit_bytes: int, control_sequences: Literal["strip", "keep"] = "strip"
    ) -> None:
        self._decoder = _decoder("replace")
        self._terminal = Terminal() if control_sequences == "strip" else None
        self._redaction = redactor.stream()
        self._limit = limit_bytes
        self._kept: list[bytes] = []
        self._size = 0
        self.total_bytes = 0
        self.truncated = False

    def feed(self, data: bytes) -> None:
        """Takes raw bytes as read from the pipe."""
        self.total_bytes += len(data)
        if not self.truncated:
            self._pass(self._decoder.decode(data).encode())

    def close(self) -> str:
        """The text for the reply, at most `limit_bytes` of UTF-8."""
        if not self.total_bytes:
            return ""
        if not self.truncated:
            self._pass(self._decoder.decode(b"", final=True).encode(), last=True)
        return b"".join(self._kept).decode("utf-8", "replace")

    def _pass(self, data: bytes, *, last: bool = False) -> None:
        if self._terminal is not None:
            data = self._terminal.feed(data) + (self._terminal.close() if last else b"")
        data = self._redaction.feed_bytes(data)
        if last:
            data += self._redaction.close_bytes()
        room = self._limit - self._size
        if len(data) > room:
            self.truncated = True
            data = _cut(data, room)
        self._size += len(data)
        self._kept.append(data)


def _cut(data: bytes, room: int) -> bytes:
    """The longest beginning of at most `room` bytes that splits neither a character nor a marker."""
    while room > 0 and data[room] & 0xC0 == 0x80:
        room -= 1
    kept = data[:room]
    mark = kept.rfind(b"[", max(0, room - MARKER_BYTES))
    if mark >= 0 and b"]" not in kept[mark:] and data[mark:].startswith(b"[REDACTED:"):
        return kept[:mark]
    return kept
