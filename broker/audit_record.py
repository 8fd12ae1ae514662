"""One record of the audit trail: its fields, its canonical form, and the link to the record before it.

Always true: a record is one line of JSON whose first field is `seq` and whose last two are `prev` and `hash`;
`hash` is SHA-256 over the line's own bytes without `,"hash":"…"` and the newline; `prev` is the `hash` of the
line before. A record holds counts of output bytes and has no field for output. Nothing here does I/O.
"""

import os
import time
from typing import Annotated, Literal, NamedTuple

import msgspec

from broker.digest import sha256_hex

GENESIS = "0" * 64
"""`prev` of the first record of a trail."""

FIRST_EVENTS = ("continued", "repaired")
"""The events with which a file may begin: after rotation, and after `audit repair`."""

LINE_LIMIT_BYTES = 1024 * 1024
"""No record is longer: the bounds of `audit_text`, each character escaped to six bytes, stay well below."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""What a broker counts. Whoever reads a trail meets no number that it cannot calculate with."""

_NO_TRAIL_REACHES = 10**12
_HASH_FIELD = b',"hash":"'
_PREV_FIELD = b',"prev":"'
_HASH_AT = -(len(_HASH_FIELD) + 64 + 2)
_PREV_AT = _HASH_AT - (len(_PREV_FIELD) + 64 + 1)
_encode = msgspec.json.Encoder().encode


def new_event_id() -> str:
    """Return 128 random bits in hexadecimal."""
    return os.urandom(16).hex()


class Call(msgspec.Struct, kw_only=True):
    """What the trail is told about one call, filled in as it gets further. None: it did not get that far.

    `stdout_bytes` and `stderr_bytes` are totals as the program wrote them, before any filter or cap.
    """

    tool: str
    command_raw: str
    policy_sha256: str
    cwd: str | None = None
    argv: tuple[str, ...] | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    event_id: str = msgspec.field(default_factory=new_event_id)


class Cut(msgspec.Struct, frozen=True):
    """What a cut field was before: length in characters and SHA-256, both of the redacted text."""

    characters: int
    sha256: str


class CallLine(msgspec.Struct, kw_only=True, gc=False):
    """The canonical order of an attempt's or outcome's fields.

    `oldest_open`: `seq` of the oldest attempt without outcome.
    """

    seq: Count
    ts: str
    record_type: Literal["attempt", "outcome"]
    event_id: str
    tool: str
    command_raw: str
    argv: tuple[str, ...] | None
    cwd: str | None
    code: str | None = None
    exit_code: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] | None = None
    duration_ms: Count | None = None
    stdout_bytes: Count | None = None
    stderr_bytes: Count | None = None
    policy_reason: str | None = None
    cut: dict[str, Cut] | msgspec.UnsetType = msgspec.UNSET
    session: str
    policy_sha256: str
    oldest_open: Count | None = None
    prev: str = ""

    @property
    def program(self) -> str | None:
        """The program's name as the command gave it, None where no argv came about."""
        return self.argv[0] if self.argv else None


class EventLine(msgspec.Struct, kw_only=True, gc=False):
    """The canonical order of the fields of a record that is no call: something happened to the trail."""

    seq: Count
    ts: str
    record_type: Literal["event"] = "event"
    event_id: str
    event: str
    detail: str
    count: Count | None = None
    session: str
    policy_sha256: str
    oldest_open: Count | None = None
    prev: str = ""


Line = CallLine | EventLine
_decode_call = msgspec.json.Decoder(CallLine).decode
_decode_event = msgspec.json.Decoder(EventLine).decode


class Sealed(NamedTuple):
    """A record as it stands in the file, newline included, and its hash."""

    line: bytes
    hash: str


class BrokenChainError(Exception):
    """A line that is no record, or not the record that should stand there; the message says why."""


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hexadecimal."""
    return sha256_hex(data)


def seal(line: Line) -> Sealed:
    """Return the canonical line of a record together with its hash."""
    body = _encode(line)
    if not body.isascii():
        body = escaped(body)
    own = digest(body)
    return Sealed(b'%b%b%b"}\n' % (body[:-1], _HASH_FIELD, own.encode()), own)


def escaped(body: bytes) -> bytes:
    """Return the same JSON without what ends a line for some readers, or hides or reorders what a person reads."""
    text = body.decode()
    if text.isprintable():
        return body
    return "".join(c if c.isprintable() else _encode_ascii(c) for c in text).encode()


def _encode_ascii(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def check(line: bytes, seq: int | None, prev: bytes | None) -> bytes:
    """Return the hash of a line, without its newline, that should be record `seq` after one with hash `prev`.

    None leaves that part unchecked. Raises BrokenChainError. The line is not decoded: its own hash covers its
    bytes.
    """
    if line[_HASH_AT : _HASH_AT + 9] != _HASH_FIELD or line[_PREV_AT : _PREV_AT + 9] != _PREV_FIELD:
        raise BrokenChainError("this is no record: it does not end in prev and hash")
    own = line[-66:-2]
    if line[-2:] != b'"}' or sha256_hex(line[:_HASH_AT] + b"}").encode() != own:
        raise BrokenChainError("its hash does not fit its bytes: the line was changed")
    if seq is not None and not line.startswith(b'{"seq":%d,' % seq):
        raise BrokenChainError(
            f"record {seq} should stand here, not {seq_of(line)}: lines were removed, moved or repeated"
        )
    if prev is not None and line[_PREV_AT + 9 : _HASH_AT - 1] != prev:
        raise BrokenChainError("it does not name the hash of the record before it")
    return own


def seq_of(line: bytes) -> int:
    """Return the number of a record. Raises BrokenChainError."""
    head, comma, _ = line[:32].partition(b",")
    if not comma or not head.startswith(b'{"seq":') or not head[7:].isdigit():
        raise BrokenChainError("this is no record: it does not begin with seq")
    return int(head[7:])


def decode(line: bytes) -> Line:
    """Return the record that a line holds: the one rule for all who read a trail, whether they go on in it or not.

    Raises BrokenChainError. No hash is checked.
    """
    record: Line
    if len(line) > LINE_LIMIT_BYTES:
        raise BrokenChainError("a line is longer than any record")
    try:
        try:
            record = _decode_call(line)
        except msgspec.ValidationError:
            record = _decode_event(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BrokenChainError("this is no record: its fields are not those of a call or an event") from None
    if not line.startswith(b'{"seq":%d,' % record.seq):
        raise BrokenChainError("this is no record: it does not begin with seq")
    return record


def check_first(line: bytes) -> str:
    """Return the hash that the checked first line of a file names before it.

    Raises BrokenChainError when no file may begin so.
    """
    first = decode(line)
    begins = first.seq == 1 and first.prev == GENESIS
    if not begins and getattr(first, "event", "") not in FIRST_EVENTS:
        raise BrokenChainError(
            f"no file of a trail begins with record {first.seq}: what stood before it is missing"
        )
    return first.prev


def claimed_end(line: bytes) -> tuple[int, str]:
    """Return number and hash that a line claims, unchecked.

    Raises BrokenChainError when it has not a record's form, or a number that no trail reaches: its records are
    numbered from there on.
    """
    own, seq = line[-66:-2], seq_of(line)
    if (
        line[_HASH_AT : _HASH_AT + 9] != _HASH_FIELD
        or own.strip(b"0123456789abcdef")
        or seq >= _NO_TRAIL_REACHES
    ):
        raise BrokenChainError("this is no record")
    return seq, own.decode()


def check_torn(rest: bytes, seq: int) -> None:
    """Raise BrokenChainError unless `rest`, behind the last newline, may be what was written of record `seq`.

    Whoever dies while writing leaves its beginning; a file system that lost power, zeros behind it.
    """
    begins, written = b'{"seq":%d,' % seq, rest.rstrip(b"\0")
    if not (written.startswith(begins) or begins.startswith(written)):
        raise BrokenChainError("what follows the last whole record is not the beginning of a record")
    if (written != rest and _is_record(written)) or _is_record(rest[:-1]):
        raise BrokenChainError("its newline was changed")


def _is_record(line: bytes) -> bool:
    try:
        check(line, None, None)
    except BrokenChainError:
        return False
    return True


def prev_of(line: bytes) -> str:
    """Return the hash that a checked line names as the one before it."""
    return line[_PREV_AT + 9 : _HASH_AT - 1].decode("ascii", "replace")


def utc_now() -> str:
    """Return the time in UTC with microseconds (RFC 3339)."""
    now_ns = time.time_ns()
    return f"{_second(now_ns // 1_000_000_000)}.{now_ns // 1000 % 1_000_000:06d}Z"


_last_second = (0, "")


def _second(second: int) -> str:
    global _last_second  # noqa: PLW0603 - a second is formatted once, not once a record
    known, text = _last_second
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _last_second = (second, text)
    return text
