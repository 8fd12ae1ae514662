"""JSON-RPC lines: what is no message gets an error, what is one is read exactly, and memory stays bounded."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend import jsonrpc
from frontend.jsonrpc import Invalid, Lines, LineTooLong

REFUSED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "jsonrpc_refused.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", REFUSED, ids=[case["why"] for case in REFUSED])
def test_a_line_that_is_no_message_is_answered_with_its_error(case):
    line = bytes.fromhex(case["hex"]) if "hex" in case else case["line"].encode()
    with pytest.raises(Invalid) as caught:
        jsonrpc.decode(line)
    (seen,) = caught.value.seen
    assert (caught.value.code, seen.id) == (case["code"], case["id"])
    assert json.loads(jsonrpc.error(seen.id, case["code"], "no"))["id"] == case["id"]


def test_each_message_of_a_batch_is_seen_and_what_is_too_much_counts_as_one():
    one = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "run_command"}}
    with pytest.raises(Invalid, match="batch") as caught:
        jsonrpc.decode(json.dumps([one, 5, {"id": "a"}]).encode())
    assert [seen.id for seen in caught.value.seen] == [7, None, "a"]
    assert caught.value.seen[0].names == ("run_command",)
    with pytest.raises(Invalid, match="batch") as caught:
        jsonrpc.decode(json.dumps([one] * 1000).encode())
    assert [seen.id for seen in caught.value.seen] == [7] * 64 + [None]


@pytest.mark.parametrize("depth", [150, 2000, 200_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_deep_nesting_is_an_error_and_not_the_end(depth, brackets):
    opening = '{"a":' if brackets == "{}" else "["
    line = (
        '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":'
        + opening * depth
        + "1"
        + brackets[1] * depth
        + "}}"
    )
    with pytest.raises(Invalid, match="nested too deeply"):
        jsonrpc.decode(line.encode())


def test_many_brackets_that_do_not_nest_are_fine():
    params = {"a": [[]] * 500}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params}).encode()
    assert jsonrpc.decode(line).params == params


def test_a_number_with_more_digits_than_python_takes_is_an_error():
    with pytest.raises(Invalid):
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}')


@pytest.mark.parametrize("request_id", [0, -1, 2**53 + 1, "", "a", "7", "é", "\n"])
def test_an_id_comes_back_exactly_as_it_was(request_id):
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping"}).encode()
    decoded = jsonrpc.decode(line).id
    assert (decoded, type(decoded)) == (request_id, type(request_id))
    assert json.loads(jsonrpc.answer(decoded, {}))["id"] == request_id


@pytest.mark.parametrize(
    "line", ['{"jsonrpc":"2.0","id":1,"result":{}}', '{"jsonrpc":"2.0","id":null,"error":{}}']
)
def test_a_response_is_not_answered(line):
    assert jsonrpc.decode(line.encode()) is None


def test_a_message_without_an_id_is_a_notification():
    assert jsonrpc.decode(b'{"jsonrpc":"2.0","method":"m"} \r').id is None


def test_half_a_pair_in_an_argument_is_read_and_in_an_answer_replaced():
    message = jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}')
    assert message.params == {"a": "\ud800"}
    assert json.loads(jsonrpc.answer(1, {"text": "a\ud800b"}))["result"] == {"text": "a?b"}


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))), st.integers(1, 7))
def test_lines_are_the_same_wherever_the_stream_was_broken(lines, step):
    data = b"".join(line + b"\n" for line in lines)
    cutter, taken = Lines(), []
    for start in range(0, len(data), step):
        cutter.feed(data[start : start + step])
        while (line := cutter.take()) is not None:
            taken.append(line)
    assert taken == lines


def test_the_last_line_counts_without_its_end():
    lines = Lines()
    lines.feed(b"first\nlast")
    assert (lines.take(), lines.take()) == (b"first", None)
    lines.feed(b"")
    assert (lines.take(), lines.take()) == (b"last", None)


def outcomes(lines: Lines, *pieces: bytes) -> list[bytes | str]:
    seen: list[bytes | str] = []
    for piece in pieces:
        lines.feed(piece)
        while True:
            try:
                line = lines.take()
            except LineTooLong as too_long:
                seen.append("too long" if too_long.seen.id is None else f"too long: {too_long.seen.id}")
                continue
            if line is None:
                break
            seen.append(line)
    return seen


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_line_over_the_limit_is_told_once_and_the_next_one_is_read(step):
    data = b"x" * 50 + b"\n" + b"0123456789\n" + b"y" * 11 + b"\nok\n"
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    assert outcomes(Lines(10), *pieces) == ["too long", b"0123456789", "too long", b"ok"]


def test_a_line_over_the_limit_that_never_ends_is_not_kept():
    lines = Lines(1000)
    assert outcomes(lines, *([b"x" * 900] * 1000)) == []
    assert len(lines._untrusted) <= 1900
    assert outcomes(lines, b"") == ["too long"]
    assert outcomes(lines, b"") == []


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_id_of_a_line_over_the_limit_is_found_even_behind_what_is_too_much(step):
    line = b'{"params":{"a":"\\"id\\":7' + b"x" * 100 + b'"},"id":"five","method":"m"}\n'
    pieces = [line[start : start + step] for start in range(0, len(line), step)]
    assert outcomes(Lines(50), *pieces, b"ok\n") == ["too long: five", b"ok"]
