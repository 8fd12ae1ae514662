"""Whatever bytes arrive, in whatever pieces: a request is answered once, or the connection ends; nothing else happens."""

from collections import Counter
from itertools import pairwise

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import bare, client, framing, messages
from protocol.messages import Refusal, Welcome
from tests.faults.driven_service import DrivenService

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

text = st.text(max_size=40)
ids = st.integers(1, 2**53)
requests = st.one_of(
    st.builds(messages.RunRequest, ids, text, st.none() | text, st.booleans()),
    st.builds(messages.ExplainRequest, ids, text),
    st.builds(messages.MalformedRequest, ids, st.sampled_from(messages.Tool), text, text),
    st.builds(messages.CancelRequest, ids),
    st.builds(messages.DescribeRequest, ids),
    st.builds(messages.HelloRequest, st.integers(0, 2), text),
)
HELLO = framing.encode(messages.HelloRequest(messages.PROTOCOL_VERSION, "properties"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | text
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def framed(body: bytes) -> bytes:
    """Return any body as a frame."""
    return len(body).to_bytes(4, "big") + body


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A frame of a request with some of its bytes changed, cut out or doubled."""
    data = bytearray(framing.encode(draw(requests)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data) - 1))
        change = draw(st.sampled_from(("set", "cut", "double")))
        if change == "set":
            data[place] = draw(st.integers(0, 255))
        elif change == "cut" and len(data) > 1:
            del data[place]
        else:
            data[place:place] = data[place : place + 8]
    return bytes(data)


pieces = st.one_of(
    requests.map(framing.encode),
    mutated(),
    st.binary(max_size=60),
    values.map(msgspec.msgpack.encode).map(framed),
)
streams = st.tuples(st.booleans(), st.lists(pieces, max_size=8)).map(
    lambda drawn: HELLO * drawn[0] + b"".join(drawn[1])
)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return `stream` in pieces."""
    places = sorted({place % (len(stream) + 1) for place in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(places)]


@FEW
@given(stream=streams, cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_any_stream_is_answered_in_order_or_refused_and_never_more(stream: bytes, cuts: list[int]) -> None:
    service = DrivenService()
    try:
        for piece in cut(stream, cuts):
            service.feed(piece)
        refusals = [reply for reply in service.replies if isinstance(reply, Refusal)]
        assert len(refusals) == len(service.pipeline.violations) <= 1
        assert not refusals or service.replies[-1] is refusals[0]
        answered = [reply.id for reply in service.replies if not isinstance(reply, Refusal | Welcome)]
        assert answered == sorted(set(answered)), "each once, and no id that was used before"
        assert not answered or isinstance(service.replies[0], Welcome)
    finally:
        service.close()


@FEW
@given(stream=streams, cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_how_a_stream_is_cut_makes_no_difference(stream: bytes, cuts: list[int]) -> None:
    whole, in_pieces = DrivenService(), DrivenService()
    try:
        whole.feed(stream)
        for piece in cut(stream, cuts):
            in_pieces.feed(piece)
        assert in_pieces.replies == whole.replies
        assert in_pieces.pipeline.judged == whole.pipeline.judged
        assert in_pieces.pipeline.violations == whole.pipeline.violations
    finally:
        whole.close()
        in_pieces.close()


@FEW
@given(asked=st.lists(requests.filter(lambda r: not isinstance(r, messages.HelloRequest)), max_size=200))
def test_each_proper_request_has_its_one_answer(asked: list[messages.RunRequest]) -> None:
    numbered = [
        request
        if isinstance(request, messages.CancelRequest)
        else msgspec.structs.replace(request, id=number)
        for number, request in enumerate(asked, start=1)
    ]
    expected = [request.id for request in numbered if not isinstance(request, messages.CancelRequest)]
    service = DrivenService()
    try:
        service.feed(HELLO + b"".join(map(framing.encode, numbered)))
        assert Counter(reply.id for reply in service.replies[1:]) == Counter(expected)
        assert service.held_bytes == 0
    finally:
        service.close()


@FEW
@given(stream=st.lists(pieces | st.binary(max_size=60), max_size=6).map(b"".join))
def test_a_client_that_is_sent_anything_ends_or_goes_on(stream: bytes) -> None:
    connection = client.ClientConnection("properties")
    connection.hello()
    connection.run("ls")
    try:
        replies = connection.feed(stream or b"\0")
    except client.BrokerGone:
        return
    assert len(replies) <= 2


@FEW
@given(value=values)
def test_both_readers_of_msgpack_read_the_same_or_refuse(value: object) -> None:
    body = msgspec.msgpack.encode(value)
    try:
        read = bare.unpack(body)
    except ValueError:
        return
    assert read == msgspec.msgpack.decode(body)


@FEW
@given(body=st.binary(max_size=200))
def test_the_small_reader_of_msgpack_fails_in_one_way_only(body: bytes) -> None:
    try:
        bare.unpack(body)
    except ValueError:
        return


def test_a_frame_of_every_wrong_length_is_refused_or_waited_for_and_never_obeyed() -> None:
    body = framing.encode(messages.RunRequest(1, "touch forged.txt"))[framing.LENGTH_BYTES :]
    for length in (*range(2 * len(body)), 2**16, 2**31, 2**32 - 1):
        service = DrivenService()
        try:
            service.feed(HELLO + length.to_bytes(4, "big") + body)
            judged = [request.command for request in service.pipeline.judged]
            assert judged == (["touch forged.txt"] if length == len(body) else [])
            assert service.ended == (length < len(body) or length > framing.REQUEST_LIMIT_BYTES)
        finally:
            service.close()


def test_a_frame_that_breaks_off_anywhere_is_never_obeyed() -> None:
    whole = framing.encode(messages.RunRequest(1, "touch forged.txt"))
    for end in range(len(whole)):
        service = DrivenService()
        try:
            service.feed(HELLO + whole[:end])
            assert (service.pipeline.judged, service.ended) == ([], False)
        finally:
            service.close()


def test_thousands_of_requests_in_one_read_are_all_answered_in_their_order() -> None:
    service = DrivenService()
    try:
        service.feed(HELLO + b"".join(framing.encode(messages.DescribeRequest(n)) for n in range(1, 3001)))
        assert [reply.id for reply in service.replies[1:]] == list(range(1, 3001))
    finally:
        service.close()
