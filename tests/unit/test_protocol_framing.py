"""Frames: a stream of bytes is cut the same way wherever it was broken, and hostile lengths are refused at once."""

import pytest

from protocol import framing, messages
from protocol.framing import Frames, ProtocolViolation

RUN = messages.RunRequest(1, "echo grüße", "src", True)


def fed(frames: Frames, *pieces: bytes) -> list[bytes]:
    return [body for piece in pieces for body in frames.feed(piece)]


def test_a_stream_may_be_broken_anywhere():
    data = framing.encode(RUN) * 2
    for cut in range(len(data)):
        bodies = fed(Frames(framing.REQUEST_LIMIT_BYTES), data[:cut], data[cut:])
        assert [framing.decode_request(body) for body in bodies] == [RUN, RUN]


def test_a_stream_may_come_byte_by_byte():
    frames = Frames(framing.REQUEST_LIMIT_BYTES)
    assert len(fed(frames, *(bytes([byte]) for byte in framing.encode(RUN)))) == 1
    assert not frames.partial


@pytest.mark.parametrize("length", [0, 11, 2**31, 2**32 - 1])
def test_a_length_of_zero_or_over_the_limit_is_refused_before_its_body_is_kept(length):
    frames = Frames(10)
    with pytest.raises(ProtocolViolation, match="a frame of"):
        fed(frames, length.to_bytes(4, "big"))


def test_an_unfinished_frame_is_told_apart_from_none():
    frames = Frames(100)
    fed(frames, b"\0\0")
    assert frames.partial


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"",
        b"\x80",
        bytes.fromhex("81a474797065a3646965"),
        bytes.fromhex("82a474797065a672756e2020a2696401"),
        framing.encode(messages.Welcome(1, (), 1))[4:],
        framing.encode(RUN)[4:] + b"\xc0",
        framing.encode(RUN)[4:-1],
        framing.encode(messages.CancelRequest(0))[4:],
        framing.encode(messages.CancelRequest(2**53 + 1))[4:],
        framing.encode(messages.RunRequest(1, "x" * (messages.COMMAND_CHARACTERS + 1)))[4:],
        b"\x91" * 5000 + b"\xc0",
    ],
    ids=lambda body: body[:16].hex() or "empty",
)
def test_a_body_that_is_no_request_is_a_violation(body):
    with pytest.raises(ProtocolViolation):
        framing.decode_request(body)


def test_the_longest_command_of_the_widest_characters_fits_a_frame():
    longest = messages.RunRequest(
        1, "\U0001f600" * messages.COMMAND_CHARACTERS, "\U0001f600" * messages.PATH_CHARACTERS
    )
    (body,) = fed(Frames(framing.REQUEST_LIMIT_BYTES), framing.encode(longest))
    assert framing.decode_request(body) == longest
