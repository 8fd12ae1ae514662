"""What a hostile or slow frontend can do to its connection: nothing but end it."""

import array
import os
import socket
from collections.abc import Iterator

import msgspec
import pytest

from broker.connection import Connection
from protocol import framing
from protocol.framing import ProtocolViolation
from protocol.messages import PROTOCOL_VERSION, CancelRequest, ExplainRequest, HelloRequest, Refusal

HELLO = framing.encode(HelloRequest(PROTOCOL_VERSION, "test"))


class Pair:
    """A broker's connection and the frontend's end of it."""

    def __init__(self) -> None:
        ours, self.frontend = socket.socketpair()
        read_fd = ours.detach()
        self.broker = Connection(read_fd, os.dup(read_fd))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.frontend.close()
    made.broker.close()


def test_requests_arrive_whole_however_they_were_cut(pair: Pair) -> None:
    stream = HELLO + framing.encode(ExplainRequest(1, "ls")) + framing.encode(CancelRequest(1))
    received = []
    for byte in stream:
        pair.frontend.send(bytes([byte]))
        received += pair.broker.receive()
    assert received == [HelloRequest(PROTOCOL_VERSION, "test"), ExplainRequest(1, "ls"), CancelRequest(1)]


@pytest.mark.parametrize(
    "untrusted",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (framing.REQUEST_LIMIT_BYTES + 1).to_bytes(4, "big"),
        b"\0\0\0\x01\xc1",
        b"\0\0\0\x03\x93\x01\x02",
        framing.encode(ExplainRequest(1, "ls")),
        HELLO + HELLO,
        framing.encode(Refusal("a reply is no request")),
    ],
    ids=[
        "empty",
        "huge",
        "over the limit",
        "no msgpack",
        "an array",
        "before the hello",
        "two hellos",
        "a reply",
    ],
)
def test_what_is_no_request_in_its_place_is_a_violation(pair: Pair, untrusted: bytes) -> None:
    pair.frontend.send(untrusted)
    with pytest.raises(ProtocolViolation):
        list(pair.broker.receive())


def test_a_frame_that_is_too_long_is_refused_before_its_body_arrives(pair: Pair) -> None:
    pair.frontend.send((framing.REQUEST_LIMIT_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolViolation, match="allowed"):
        list(pair.broker.receive())


def test_an_unknown_field_is_a_violation(pair: Pair) -> None:
    pair.frontend.send(HELLO)
    list(pair.broker.receive())
    body = msgspec.msgpack.encode({"type": "explain", "id": 1, "command": "ls", "policy": "mine"})
    pair.frontend.send(len(body).to_bytes(4, "big") + body)
    with pytest.raises(ProtocolViolation):
        list(pair.broker.receive())


def test_descriptors_that_a_frontend_sends_are_dropped(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))
    rights = array.array("i", [0, 1, 2]).tobytes()
    pair.frontend.sendmsg([HELLO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    assert list(pair.broker.receive()) == [HelloRequest(PROTOCOL_VERSION, "test")]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_frontend_that_does_not_read_makes_nothing_wait(pair: Pair) -> None:
    reply = Refusal("x" * 60_000)
    for _ in range(40):
        pair.broker.send(reply)
    assert pair.broker.unsent_bytes > 0
    decoder = framing.Frames(framing.REPLY_LIMIT_BYTES)
    taken = []
    while len(taken) < 40:
        taken += list(decoder.feed(pair.frontend.recv(1 << 20)))
        pair.broker.flush()
    assert (pair.broker.unsent_bytes, {framing.decode_reply(body) for body in taken}) == (0, {reply})


def test_a_frontend_that_is_gone_shows_as_end_of_file(pair: Pair) -> None:
    pair.frontend.close()
    assert list(pair.broker.receive()) == []
    assert pair.broker.end_of_file


def test_sending_to_a_frontend_that_is_gone_is_no_error(pair: Pair) -> None:
    pair.frontend.close()
    pair.broker.send(Refusal("nobody reads this"))
    assert pair.broker.end_of_file
    assert pair.broker.unsent_bytes == 0
