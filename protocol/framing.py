"""Frames without I/O: a 4-byte big-endian length, then one msgpack value.

Always true: a decoder holds at most one frame of `limit_bytes` and what one read brought after it; a frame that is too
long is refused when its length is seen, before its body is kept. Which side was at fault stands in the caller: whoever
decodes calls the other side's bytes untrusted.
"""

from collections.abc import Iterator

import msgspec

from protocol.messages import AnyReply, AnyRequest

LENGTH_BYTES = 4
REQUEST_LIMIT_BYTES = 512 * 1024
"""The longest frame from a frontend: a command of `COMMAND_CHARACTERS` four-byte characters, and room for the rest."""
REPLY_LIMIT_BYTES = 64 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(AnyRequest)
_reply_decoder = msgspec.msgpack.Decoder(AnyReply)


class ProtocolViolation(Exception):
    """The other side sent bytes that are no frame or no message of this protocol."""


def encode(message: AnyRequest | AnyReply) -> bytes:
    """Return `message` as one frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Frames:
    """Cuts a stream of bytes into frame bodies."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._untrusted = bytearray()

    def feed(self, untrusted: bytes) -> Iterator[bytes]:
        """Yield each whole body, oldest first. Raises ProtocolViolation for a length of 0 or over the limit."""
        self._untrusted += untrusted
        while len(self._untrusted) >= LENGTH_BYTES:
            length = int.from_bytes(self._untrusted[:LENGTH_BYTES], "big")
            if not 0 < length <= self._limit_bytes:
                raise ProtocolViolation(f"a frame of {length} bytes; 1 to {self._limit_bytes} are allowed")
            if len(self._untrusted) < LENGTH_BYTES + length:
                return
            body = bytes(self._untrusted[LENGTH_BYTES : LENGTH_BYTES + length])
            del self._untrusted[: LENGTH_BYTES + length]
            yield body

    @property
    def partial(self) -> bool:
        """Whether bytes of an unfinished frame are held."""
        return bool(self._untrusted)


def decode_request(untrusted_body: bytes) -> AnyRequest:
    """Return the request in a frame's body. Raises ProtocolViolation."""
    try:
        return _request_decoder.decode(untrusted_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(f"a frame that is no request: {error}") from None


def decode_reply(untrusted_body: bytes) -> AnyReply:
    """Return the reply in a frame's body. Raises ProtocolViolation."""
    try:
        return _reply_decoder.decode(untrusted_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(f"a frame that is no reply: {error}") from None
