"""What can be seen of a message that is refused: its id for the answer, and which call it was for the trail.

Always true: an id is reported only if it stands alone at its place in the outermost, and only, object, so that no text
within arguments is taken for one; memory and steps are bounded, whatever comes. Must not: repair anything.
What is seen here is told and recorded, never handled.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from protocol.messages import ARGUMENTS_CHARACTERS

AnyId = int | float | str
"""What JSON-RPC lets an id be; MCP knows no fractions."""

ID_CHARACTERS = 1024
"""The longest id, of text or digits; it is held and echoed."""

EXCERPT_BYTES = 4 * (ARGUMENTS_CHARACTERS + 1)
"""How much of the arguments is kept: more characters than are reported, so that who reports them sees that they were cut."""

STEPS = 100_000
"""How many brackets, and how many other parts, are looked at: a fraction of a second at worst."""

_TEXT_BYTES = 12 * ID_CHARACTERS + 64
"""The longest text that is read: escaped, a character has at most 12 bytes."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_KEPT = 7
"""How many earlier values of one key are kept: none of them was handled."""

_WITHIN_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WITHOUT_BRACKETS = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_TOKEN = re.compile(rb'([ \t\r\n]+)|(["{}\[\]:,])|[^ \t\r\n"{}\[\]:,]+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Seen(NamedTuple):
    """What a refused message said. Of a key that came twice there are two values, for an id none."""

    id: AnyId | None = None
    methods: tuple[str, ...] = ()
    names: tuple[object, ...] = ()
    arguments: Any = None
    """A JSON value, or the bytes from its beginning where it could not be read."""

    @classmethod
    def of(cls, request_id: AnyId | None, method: str, params: Mapping[str, Any] | None) -> "Seen":
        """Return what a message that could be read says."""
        given = params or {}
        return cls(request_id, (method,), (given.get("name"),), given.get("arguments"))


def look(untrusted_line: bytes) -> Seen:
    """Return what can be seen of a whole line."""
    glimpse = Glimpse()
    glimpse.feed(untrusted_line)
    return glimpse.seen


class Glimpse:
    """Follows one message, piece by piece, without building it: brackets are counted, two objects are looked into."""

    def __init__(self) -> None:
        self._steps_left = STEPS
        self._depth = 0
        self._lists = 0  # around the message
        self._in_params = False
        self._wanted = "object"
        self._key: str | None = None
        self._value: AnyId | None = None
        self._text: bytearray | None = None
        self._escaped = False
        self._number = bytearray()
        self._ids: list[AnyId | None] = []
        self._methods: list[str] = []
        self._names: list[str] = []
        self._beginning: bytes | None = None
        self._arguments: bytes | None = None

    @property
    def seen(self) -> Seen:
        """What was seen so far."""
        only_id = self._ids[0] if len(self._ids) == 1 else None
        arguments = self._beginning if self._arguments is None else self._arguments
        return Seen(only_id, tuple(self._methods), tuple(self._names), arguments or b"")

    def feed(self, untrusted: bytes) -> None:
        """Go on with the next piece."""
        self._beginning = _longer(self._beginning or b"", untrusted)
        self._arguments = self._arguments and _longer(self._arguments, untrusted)
        at = 0
        while at < len(untrusted) and self._steps_left > 0:
            self._steps_left -= 1
            if self._text is not None:
                at = self._go_on_in_text(untrusted, at)
            elif self._looks_into:
                at = self._take(untrusted, at)
            else:
                at = self._pass_by(untrusted, at)

    @property
    def _looks_into(self) -> bool:
        return self._depth <= (2 if self._in_params else 1)

    def _pass_by(self, untrusted: bytes, at: int) -> int:
        """Go to the next bracket of what is not looked into, or to a text that ends in a later piece."""
        found = _WITHOUT_BRACKETS.match(untrusted, at)
        end = found.end() if found else at
        mark = untrusted[end : end + 1]
        if mark == b'"':
            self._text = bytearray()
        elif mark in (b"{", b"["):
            self._depth += 1
        elif mark:
            self._depth -= 1
        return end + 1

    def _go_on_in_text(self, untrusted: bytes, at: int) -> int:
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        found = _WITHIN_TEXT.match(untrusted, at)
        end = found.end() if found else at
        self._escaped = untrusted[end : end + 1] == b"\\"
        text = self._text = self._text or bytearray()
        text += untrusted[start : min(end + self._escaped, start + _TEXT_BYTES + 1 - len(text))]
        if untrusted[end : end + 1] == b'"':
            self._text = None
            if self._looks_into:
                self._take_text(_decoded(bytes(text)))
        return end + 1

    def _take_text(self, text: str | None) -> None:
        if self._wanted == "key":
            self._key, self._wanted = text, "colon"
        else:
            self._value = text if text is None or len(text) <= ID_CHARACTERS else None
            self._wanted = "comma"

    def _take(self, untrusted: bytes, at: int) -> int:
        found = _TOKEN.match(untrusted, at)
        assert found  # noqa: S101 - it takes any byte
        if found.lastindex is None:
            self._take_piece_of_number(untrusted, at, found.end())
            return found.end()
        if self._number:
            self._value, self._wanted = _number(self._number), "comma"
            self._number.clear()
        if found[2]:
            self._take_mark(found[2], untrusted, at)
        return found.end()

    def _take_piece_of_number(self, untrusted: bytes, at: int, end: int) -> None:
        """Take a number, `true`, or anything else without quotes: it may go on in the next piece."""
        if self._wanted == "object" and untrusted[at:end] == _BYTE_ORDER_MARK:
            return
        if self._wanted != "value":
            self._break_off()
            return
        if not self._number:
            self._note_arguments(untrusted, at)
        self._number += untrusted[at : min(end, at + ID_CHARACTERS + 1 - len(self._number))]

    def _take_mark(self, mark: bytes, untrusted: bytes, at: int) -> None:
        wanted = self._wanted
        if mark == b'"' and wanted in ("key", "value"):
            self._note_arguments(untrusted, at)
            self._text = bytearray()
        elif mark == b":" and wanted == "colon":
            self._wanted = "value"
        elif mark == b"," and wanted == "comma":
            self._commit()
            self._wanted = "key"
        elif mark == b"}" and (wanted == "comma" or (wanted == "key" and self._key is None)):
            self._close()
        elif (mark in b"{[" and wanted == "value") or (mark == b"{" and wanted == "object"):
            self._note_arguments(untrusted, at)
            self._open(mark)
        elif not self._take_mark_of_batch(mark):
            self._break_off()

    def _take_mark_of_batch(self, mark: bytes) -> bool:
        """Take what may stand around an object, in a batch of one; of several the ids are none of this line's."""
        if mark == b"[" and self._wanted == "object":
            self._lists += 1
        elif mark == b"]" and self._wanted == "end" and self._lists:
            self._lists -= 1
        elif mark == b"," and self._wanted == "end" and self._lists:
            self._ids, self._wanted = [None, None], "object"
        else:
            return False
        return True

    def _break_off(self) -> None:
        """Look no further: this is no JSON. Something behind the object may be another message: whose is the id?"""
        if self._wanted == "end":
            self._ids.clear()
        self._steps_left = 0

    def _open(self, mark: bytes) -> None:
        self._depth += 1
        if self._depth == 2:
            self._in_params = mark == b"{" and self._key == "params"
        self._value = None
        if self._looks_into:
            self._key, self._wanted = None, "key"
        else:
            self._wanted = "comma"

    def _close(self) -> None:
        self._commit()
        self._depth -= 1
        self._in_params = False
        self._wanted = "comma" if self._depth else "end"

    def _commit(self) -> None:
        """Take a value whose end was seen."""
        if self._depth == 1 and self._key == "id":
            self._ids = [*self._ids[:1], self._value]
        elif self._depth == 1 and self._key == "method" and isinstance(self._value, str):
            self._methods = [*self._methods[-_KEPT:], self._value]
        elif self._depth == 2 and self._key == "name" and isinstance(self._value, str):
            self._names = [*self._names[-_KEPT:], self._value]
        self._key = self._value = None

    def _note_arguments(self, untrusted: bytes, at: int) -> None:
        is_value = self._depth == 2 and self._wanted == "value" and self._key == "arguments"
        if is_value and self._arguments is None:
            self._arguments = untrusted[at : at + EXCERPT_BYTES]


def _longer(kept: bytes, untrusted: bytes) -> bytes:
    return kept + untrusted[: EXCERPT_BYTES - len(kept)]


def _decoded(untrusted: bytes) -> str | None:
    """Return the text between two quotes, None if it is none that could be echoed."""
    if len(untrusted) > _TEXT_BYTES:
        return None
    try:
        text: str = json.loads('"' + untrusted.decode() + '"')
        text.encode()
    except ValueError:
        return None
    return text


def _number(untrusted: bytes | bytearray) -> AnyId | None:
    """Return a number that can be echoed, None for anything else."""
    text = untrusted.decode("ascii", "replace")
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > ID_CHARACTERS:
        return None
    if found.lastindex is None:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None
