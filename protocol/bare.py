"""The part of msgpack that this protocol uses, and its frames, without any import: for a process of one call.

Always true: what `pack` writes msgspec reads as the same value, and the other way round; a test compares
them. Must not: check a message's shape.

Why it exists: importing msgspec takes longer than the whole rest of the command line's life.
Source: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

Value = None | bool | int | str | list["Value"] | dict[str, "Value"]

LENGTH_BYTES = 4
_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_INTEGERS = {0xCC: (1, False), 0xCD: (2, False), 0xCE: (4, False), 0xCF: (8, False)}
_INTEGERS |= {0xD0: (1, True), 0xD1: (2, True), 0xD2: (4, True), 0xD3: (8, True)}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


def frame(message: dict[str, Value]) -> bytes:
    """Return `message` as one frame. Raises UnicodeEncodeError for half of a surrogate pair."""
    body = pack(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def pack(value: Value) -> bytes:
    """Return `value` in msgpack; integers in the longest form, which every reader takes."""
    if value is None or isinstance(value, bool):
        return b"\xc0" if value is None else b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + value.to_bytes(8, "big", signed=True)
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + len(text).to_bytes(4, "big") + text
    if isinstance(value, list):
        return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(pack, value))
    pairs = b"".join(pack(key) + pack(inner) for key, inner in value.items())
    return b"\xdf" + len(value).to_bytes(4, "big") + pairs


def unpack(body: bytes) -> Value:
    """Return the one value in `body`. Raises ValueError for anything else."""
    try:
        value, end = _value(body, 0)
    except (IndexError, RecursionError):
        raise ValueError("not a whole msgpack value") from None
    if end != len(body):
        raise ValueError("more than one msgpack value")
    return value


def _value(body: bytes, at: int) -> tuple[Value, int]:
    kind = body[at]
    at += 1
    if kind in _FIXED:
        return _FIXED[kind], at
    if kind < 0x80 or kind >= 0xE0 or kind in _INTEGERS:
        return _integer(body, at, kind)
    if 0xA0 <= kind < 0xC0:
        return _text(body, at, kind & 0x1F)
    if kind in _TEXTS:
        return _text(body, *_length(body, at, _TEXTS[kind]))
    if kind < 0xA0 or kind in _MAPS or kind in _LISTS:
        return _container(body, at, kind)
    raise ValueError(f"msgpack type {kind:#x} is not used by this protocol")


def _integer(body: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind not in _INTEGERS:
        return kind if kind < 0x80 else kind - 0x100, at
    size, signed = _INTEGERS[kind]
    return int.from_bytes(_cut(body, at, size), "big", signed=signed), at + size


def _container(body: bytes, at: int, kind: int) -> tuple[Value, int]:
    count = kind & 0x0F
    if kind >= 0xA0:
        at, count = _length(body, at, _MAPS.get(kind) or _LISTS[kind])
    is_map = kind < 0x90 or kind in _MAPS
    return (_map if is_map else _list)(body, at, count)


def _cut(body: bytes, at: int, size: int) -> bytes:
    piece = body[at : at + size]
    if len(piece) != size:
        raise ValueError("not a whole msgpack value")
    return piece


def _length(body: bytes, at: int, size: int) -> tuple[int, int]:
    return at + size, int.from_bytes(_cut(body, at, size), "big")


def _text(body: bytes, at: int, size: int) -> tuple[Value, int]:
    return _cut(body, at, size).decode(), at + size


def _list(body: bytes, at: int, count: int) -> tuple[Value, int]:
    values: list[Value] = []
    for _ in range(count):
        value, at = _value(body, at)
        values.append(value)
    return values, at


def _map(body: bytes, at: int, count: int) -> tuple[Value, int]:
    values: dict[str, Value] = {}
    for _ in range(count):
        key, at = _value(body, at)
        if not isinstance(key, str):
            raise ValueError("a key that is no string")  # noqa: TRY004 - the bytes are wrong, not our types
        values[key], at = _value(body, at)
    return values, at
