"""JSON-RPC 2.0 messages from lines of bytes, without I/O: strict where a lenient reader could be led astray.

Always true: what is no well-formed message is answered with an error, never repaired and never dropped
without a word, and with its id if that can be seen; of two keys with one name neither wins; memory is bounded
by the longest line. Must not: know what a method means.

Source: https://www.jsonrpc.org/specification, and the MCP schema for what an id may be.
"""

import json
from typing import Any, NamedTuple

import msgspec

from frontend.glimpse import ID_CHARACTERS, AnyId, Glimpse, Seen, look

LINE_LIMIT_BYTES = 16 * 1024 * 1024
"""The longest line that is read. A command of 10 MB must still be readable as a request to get its typed refusal."""

DEPTH_LIMIT = 100
"""How deep a message may nest. Python's own limit differs between versions, and what is deeper helps nobody."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

BATCH_MESSAGES = 64
"""How many messages of a batch are answered each with its id; none of them is handled."""

RequestId = int | str


class Message(NamedTuple):
    """A request, or a notification if `id` is None."""

    method: str
    params: dict[str, Any] | None
    id: RequestId | None


class Invalid(Exception):
    """A line that is no message: the error to answer with, and what could be seen of each message on it."""

    def __init__(self, code: int, message: str, batch: list[Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.batch = batch
        self.seen: tuple[Seen, ...] = ()


class LineTooLong(Exception):
    """A line was longer than the limit, and its end has come."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen


class Lines:
    """Cuts a stream of bytes into lines of at most `limit_bytes`; holds no more than one line and one read."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._untrusted = bytearray()
        self._searched_bytes = 0
        self._too_long: Glimpse | None = None

    def feed(self, untrusted: bytes) -> None:
        """Take what was read; b"" is the end, which ends the last line too."""
        self._untrusted += untrusted or (b"\n" if self._untrusted or self._too_long else b"")

    def take(self) -> bytes | None:
        """Return the next line without its end, or None when more must be read.

        Raises LineTooLong at the end of one that is longer than the limit.
        """
        end = self._untrusted.find(b"\n", self._searched_bytes)
        if end < 0:
            self._note_unfinished()
            return None
        line = bytes(self._untrusted[:end])
        del self._untrusted[: end + 1]
        self._searched_bytes = 0
        if self._too_long or len(line) > self._limit_bytes:
            glimpse = self._too_long or Glimpse()
            self._too_long = None
            glimpse.feed(line)
            raise LineTooLong(glimpse.seen)
        return line

    def _note_unfinished(self) -> None:
        if self._too_long is None and len(self._untrusted) > self._limit_bytes:
            self._too_long = Glimpse()
        if self._too_long:
            self._too_long.feed(bytes(self._untrusted))
            self._untrusted.clear()
        self._searched_bytes = len(self._untrusted)


def decode(untrusted_line: bytes) -> Message | None:
    """Return the message on a line; None for a response, which answers nothing: we never ask.

    Raises Invalid.
    """
    try:
        return _message(_decode_json(untrusted_line))
    except Invalid as invalid:
        whole = invalid.batch is None
        invalid.seen = (look(untrusted_line),) if whole else _look_into_batch(invalid.batch or [])
        raise


def _look_into_batch(untrusted: list[Any]) -> tuple[Seen, ...]:
    """Return what can be seen of each message; what is not looked at, or an empty batch, counts as one."""
    seen = [look(json.dumps(each).encode()) for each in untrusted[:BATCH_MESSAGES]]
    if not seen or len(untrusted) > len(seen):
        seen.append(Seen())
    return tuple(seen)


def _message(value: Any) -> Message | None:
    if isinstance(value, list):
        fault = "Invalid Request: the message is a batch; send one message a line"
        raise Invalid(INVALID_REQUEST, fault, value)
    if not isinstance(value, dict):
        raise Invalid(INVALID_REQUEST, "Invalid Request: the message is not an object")
    request_id = _id(value)
    if value.get("jsonrpc") != "2.0":
        raise Invalid(INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"')
    if "method" not in value and ("result" in value or "error" in value):
        return None
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        raise Invalid(INVALID_REQUEST, "Invalid Request: method must be a string")
    if not isinstance(params, dict | None):
        raise Invalid(INVALID_PARAMS, "Invalid params: params must be an object")
    return Message(method, params, request_id)


def _id(value: dict[str, Any]) -> RequestId | None:
    """Return the id, None if there is none. `true` and 1.0 equal 1 in Python, hence the exact types."""
    if "id" not in value:
        return None
    request_id = value["id"]
    if type(request_id) is int and abs(request_id) < 2**63:
        return request_id
    if type(request_id) is str and len(request_id) <= ID_CHARACTERS and _is_unicode(request_id):
        return request_id
    if "method" not in value and request_id is None:
        return None
    raise Invalid(INVALID_REQUEST, "Invalid Request: id must be a string or an integer")


def _is_unicode(text: str) -> bool:
    """Say whether `text` holds no half of a surrogate pair, which could not be echoed."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decode_json(untrusted_line: bytes) -> Any:
    try:
        text = untrusted_line.decode()
    except UnicodeDecodeError:
        raise Invalid(PARSE_ERROR, "Parse error: the line is not valid UTF-8") from None
    if text.startswith("\ufeff"):
        raise Invalid(PARSE_ERROR, "Parse error: the line begins with a byte order mark")
    try:
        value = _decoder.decode(text)
    except RecursionError:
        raise Invalid(PARSE_ERROR, "Parse error: nested too deeply") from None
    except ValueError as error:
        fault = str(error) if isinstance(error, _RefusedError) else "the line is not valid JSON"
        raise Invalid(PARSE_ERROR, f"Parse error: {fault}") from None
    if text.count("[") + text.count("{") > DEPTH_LIMIT and _is_deeper(value, DEPTH_LIMIT):
        raise Invalid(PARSE_ERROR, "Parse error: nested too deeply")
    return value


class _RefusedError(ValueError):
    """JSON that others accept, and we do not."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; refuse two keys with one name, of which another reader may take the other one."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError("an object has the same key twice")
    return made


def _refuse_constant(name: str) -> None:
    raise _RefusedError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line.

    Half surrogates, which no strict reader accepts, become question marks.
    """
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def answer(request_id: RequestId, result: dict[str, Any]) -> bytes:
    """Return the line that answers a request."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error(request_id: AnyId | None, code: int, message: str, data: Any = None) -> bytes:
    """Return the line that says that a request failed; `data` None is left out."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: dict[str, Any] | None) -> bytes:
    """Return the line of a notification."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        body["params"] = params
    return encode(body)
