"""The msgpack of the command line is the msgpack of msgspec, for every value that the protocol can carry."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import bare, framing

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner))


@given(values)
def test_what_msgspec_writes_is_read_as_the_same_value(value):
    assert bare.unpack(msgspec.msgpack.encode(value)) == value


@given(values)
def test_what_is_written_msgspec_reads_as_the_same_value(value):
    assert msgspec.msgpack.decode(bare.pack(value)) == value


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_every_form_of_length_is_read(size):
    for value in ("x" * size, [None] * size, {str(number): number for number in range(size)}):
        assert bare.unpack(msgspec.msgpack.encode(value)) == value


@given(st.binary(max_size=40))
def test_no_bytes_do_more_than_raise_a_value_error(body):
    try:
        bare.unpack(body)
    except ValueError:
        return


def test_nesting_without_end_is_a_value_error():
    with pytest.raises(ValueError, match="whole"):
        bare.unpack(b"\x91" * 100_000)


def test_a_frame_is_what_the_broker_reads():
    (body,) = framing.Frames(100).feed(bare.frame({"type": "cancel", "id": 7}))
    assert framing.decode_request(body).id == 7
