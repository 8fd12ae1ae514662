"""What is seen of a message that is refused: the one id at its place, in bounded memory and time, and nothing made up."""

import json
import math
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.glimpse import EXCERPT_BYTES, Glimpse, look

IDS = [0, 7, -1, 2**80, 1.5, -2e-3, "", "a", "é\n", 'quote " and \\', "😀" * 1000]


@pytest.mark.parametrize("request_id", IDS, ids=lambda request_id: repr(request_id)[:20])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("order", [1, -1])
def test_an_id_is_seen_wherever_it_stands_and_however_it_is_written(request_id, escaped, order):
    members = {"jsonrpc": "2.0", "id": request_id, "method": "m", "params": {"name": "n", "a": [{"id": 9}]}}
    line = json.dumps(dict(list(members.items())[::order]), ensure_ascii=escaped).encode()
    seen = look(line.replace(b'"2.0"', b'"2.0", "deep": ' + b"[" * 5000 + b"]" * 5000))
    assert (seen.id, type(seen.id)) == (request_id, type(request_id))
    assert (seen.methods, seen.names) == (("m",), ("n",))


NOTHING = {
    "none": b'{"method":"m"}',
    "two": b'{"id":1,"id":2}',
    "two, one escaped": b'{"id":1,"\\u0069d":1}',
    "two, one of them none": b'{"id":1,"id":[]}',
    "two messages": b'{"id":1}{"id":2}',
    "something behind it": b'{"id":1} x',
    "a text behind it": b'{"id":1} "x"',
    "a number behind it": b'{"id":1} 2',
    "in a batch of several": b'[{"id":1},{"a":2}]',
    "in a batch of several, behind": b'[{"a":1},{"id":2}]',
    "in lists of a batch": b'[[{"id":1}],{"id":1}]',
    "a batch of one, and something": b'[{"id":1}]{"a":1}',
    "a batch and a bracket too many": b'[{"id":1}]]',
    "a batch of something else": b'[1,{"id":1}]',
    "within arguments": b'{"params":{"id":1}}',
    "within a text": b'{"a":"\\",\\"id\\":1,\\""}',
    "within another member": b'{"a":{"id":1}}',
    "within a list": b'{"params":[{"id":1}]}',
    "as a value": b'{"a":"id","b":1}',
    "cut off": b'{"id":12',
    "a text cut off": b'{"id":"12',
    "no number": b'{"id":01,"a":1}',
    "true": b'{"id":true}',
    "null": b'{"id":null}',
    "NaN": b'{"id":NaN}',
    "infinite": b'{"id":1e999}',
    "an object": b'{"id":{}}',
    "too many digits": b'{"id":' + b"1" * 2000 + b"}",
    "too long a text": b'{"id":"' + b"x" * 2000 + b'"}',
    "half a pair": b'{"id":"\\ud800"}',
    "invalid UTF-8": b'{"id":"\xff"}',
    "a bad escape": b'{"id":"\\x"}',
    "no colon": b'{"id" 1}',
    "two numbers": b'{"id":1 2}',
    "behind a byte order mark that is none": b'\xef\xbb\xbf\xbf{"id":1}',
    "behind a bracket too many": b'{"a":1]],"id":1}',
    "UTF-16": '{"id":1}'.encode("utf-16"),
    "nothing at all": b"",
}


@pytest.mark.parametrize("case", NOTHING)
def test_an_id_that_is_none_or_could_be_another_s_is_not_reported(case):
    assert look(NOTHING[case]).id is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":5,"params":[[[[[',
        b'{"id":5,"method":"\xff"}',
        b'{"id":5,"a":NaN}',
        b'{"id":5,"a":01}',
        b'{"id":5,a:1}',
        b'{"a":{"b":"]}"},"id":5}',
        b'{ "id" : 5 }',
        b'{"params":{"a":{"b":1},"c":[1,2]},"id":5}',
        b'{"a":"\\\\","id":5}',
        b'{"a":1,"a":2,"id":5}',
        b'[{"id":5,"a":NaN}]',
        b' [[ {"id":5} ] ] ',
        b'\xef\xbb\xbf{"id":5}',
        b'\xef\xbb\xbf [{"id":5}]',
    ],
)
def test_the_id_of_a_message_that_is_broken_elsewhere_is_seen(line):
    assert look(line).id == 5


def test_of_a_key_that_came_twice_both_values_are_seen():
    seen = look(b'{"method":"a","method":"b","params":{"name":"c","name":"d","arguments":1,"arguments":2}}')
    assert (seen.methods, seen.names, seen.arguments) == (
        ("a", "b"),
        ("c", "d"),
        b'1,"arguments":2}}',
    )


def test_the_beginning_of_the_arguments_is_kept_or_of_the_line():
    line = b'{"params":{"arguments": {"command":"' + b"x" * 100_000 + b'"}}}'
    assert look(line).arguments == line[line.index(b'{"command') :][:EXCERPT_BYTES]
    line = b'{"params":{"a":' + b"[" * 90_000
    assert look(line).arguments == line[:EXCERPT_BYTES]


@pytest.mark.parametrize("step", [13, 7_000, EXCERPT_BYTES, 90_000])
def test_the_beginning_of_the_arguments_is_kept_though_the_line_came_in_pieces(step):
    line = b'{"params":{"arguments": {"command":"' + b"x" * 100_000 + b'"}}}'
    for message in (line, line.replace(b"arguments", b"else")):
        glimpse = Glimpse()
        for at in range(0, len(message), step):
            glimpse.feed(message[at : at + step])
        assert glimpse.seen.arguments == look(message).arguments


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other tests share the processors
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "a", ""]), JSON), st.integers(1, 9))
def test_what_is_seen_of_valid_json_is_what_is_there_however_it_was_cut(message, step):
    line = json.dumps(message).encode()
    glimpse = Glimpse()
    for start in range(0, len(line), step):
        glimpse.feed(line[start : start + step])
    request_id = message.get("id")
    fits = isinstance(request_id, int | float | str) and not isinstance(request_id, bool)
    fits = fits and not (isinstance(request_id, float) and math.isinf(request_id))
    assert glimpse.seen.id == (request_id if fits else None)
    assert glimpse.seen.methods == ((message["method"],) if isinstance(message.get("method"), str) else ())


@given(st.binary(max_size=60) | st.text('{}[]":,\\ 01eidu', max_size=60).map(str.encode))
def test_nothing_that_comes_is_a_fault(line):
    look(b'{"id":1,' + line)
    look(line)


HUGE = {
    "one text": b'"' + b"x" * 16_000_000 + b'"',
    "escapes": b'"' + b"\\n" * 8_000_000 + b'"',
    "opening brackets": b"[" * 16_000_000,
    "brackets": b"[]," * 5_000_000,
    "texts": b"[" + b'"",' * 5_000_000 + b"1]",
    "members": b'1,"id":1' * 2_000_000,
    "methods": b'1,"method":"mmmmmmmmmmmmmmmmmmmmmm"' * 400_000,
    "a number": b"1" * 16_000_000,
    "quotes": b'"' * 16_000_000,
    "spaces": b" " * 16_000_000,
}


@pytest.mark.parametrize("case", HUGE)
def test_a_huge_message_is_looked_at_in_bounded_time_and_memory(case):
    line = b'{"id":1,"method":"m","a":' + HUGE[case] + b"}"
    tracemalloc.start()
    try:
        look(line)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    since_s = time.process_time()
    look(line)
    assert time.process_time() - since_s < 1


def test_of_a_batch_all_calls_are_seen():
    each = b'{"method":"tools/call","id":1,"params":{"name":"a"}}'
    seen = look(b"[" + each + b", [" + each.replace(b'"a"', b'"b"') + b"]]")
    assert (seen.id, seen.methods, seen.names) == (None, ("tools/call",) * 2, ("a", "b"))
