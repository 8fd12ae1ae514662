"""Whatever calls a client sends, and however: each reaches the trail exactly once and is answered exactly once.

The broker here is a fake that counts what reaches it; the real one makes one record, or one pair, of each request.
"""

import json
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.messages import CancelRequest, ExplainRequest, MalformedRequest, RunRequest
from tests.fake_broker import FakeBroker
from tests.mcp_frontend import ENVELOPE, OPENING, McpFrontend

DEEP = '{"a":' * 3000 + "1" + "}" * 3000
ARGUMENTS = (
    '{"command":"echo @"}',
    '{"command":"deny @"}',
    '{"command":"echo @","x":1}',
    '{"command":"echo @","cwd":7}',
    '{"command":"echo @","command":"echo @"}',
    '{"command":"echo @","\\u0063ommand":"echo"}',
    '{"command":"echo @","x":' + "[" * 300 + "]" * 300 + "}",
    '{"command":"echo @","x":' + DEEP + "}",
    '{"command":"echo @","x":' + "9" * 6000 + "}",
    '{"command":"echo @","x":-1e999}',
    '{"command":"echo @","x":NaN}',
    '{"command":"echo @","x":{"a":1,"a":2}}',
    '{"command":"echo @ \\ud800"}',
    '{"command":"echo @","cwd":"\\udfff"}',
    '{"command":"echo @","\\udfff":1}',
    '{"command":"echo @ ' + "x" * 70_000 + '"}',
    '{"command":"echo @","x":"' + 'y\\"id\\":3' * 9_000 + '"}',
    '["echo @"]',
    '"echo @"',
    '{"command":["echo @"]}',
)
PARAMS = (
    '"name":"run_command","arguments":?',
    '"arguments":?,"name":"run_command"',
    '"name":"explain_command","arguments":?',
    '"name":"run_command","arguments":?,"name":"explain_command"',
    '"name":"nope","arguments":?,"name":"run_command"',
    '"name":"run_command","arguments":?,"extra":{"id":7}',
    '"name":"run_command","arguments":?,"task":{"ttl":1}',
    '"name":"run_command","arguments":?,"task":7',
    '"name":"run_command","arguments":?,"inputResponses":7',
    '"name":"run_command","arguments":?,"_meta":"x"',
    '"name":"run_command","arguments":?,"_meta":null',
    '"name":"run_command","arguments":?,"_meta":{"progressToken":{}}',
    '"name":"run_command","arguments":?,"_meta":{"progressToken":"t"}',
    '"name":"run_command","arguments":?,"_meta":' + json.dumps(ENVELOPE),
    '"name":"run_command","arguments":?,"_meta":{"io.modelcontextprotocol/protocolVersion":7}',
)
METHODS = (
    '"method":"tools/call"',
    '"method":"tools\\u002fcall"',
    '"method":"ping","method":"tools/call"',
)
VERSIONS = ('"jsonrpc":"2.0"', '"jsonrpc":"1.0"', '"more":[{"id":8}],"jsonrpc":"2.0"')
AROUND = ("?", "[?]", " [ [?]] ", "\ufeff?", "\ufeff[?]")
ECHOED_IDS = ("#", "-#", '"#"', '"a\\u0023#"', "#.5", "1" + "0" * 30 + "#", '"same"')
LOST_IDS = ("null", "true", "[#]", "{}", '"\\ud800"', '#,"id":#', "1e999")
OPENERS: dict[str, dict[str, Any] | None] = {
    "handshake": {"method": "initialize", "params": OPENING},
    "envelopes": {"method": "server/discover", "params": {"_meta": ENVELOPE}},
    "nothing": None,
}


class Call(NamedTuple):
    """A message that calls a tool: its line, the text that marks its record, and the id of its answer."""

    line: bytes
    mark: str
    answer_id: object
    is_cancelled: bool


def mostly(first, *others):
    """Draw what is right half of the time, so that several parts of a message are right together."""
    return st.one_of(st.just(first), st.sampled_from(others))


@st.composite
def calls(draw, number):
    mark = f"T{number}T"
    is_echoed = draw(st.integers(0, 4)) > 0
    raw_id = draw(st.sampled_from(ECHOED_IDS if is_echoed else LOST_IDS)).replace("#", str(number + 1000))
    params = draw(mostly(*PARAMS)).replace("?", draw(mostly(*ARGUMENTS))).replace("@", mark)
    members = [draw(mostly(*VERSIONS)), f'"id":{raw_id}', draw(mostly(*METHODS)), f'"params":{{{params}}}']
    data = draw(mostly(*AROUND)).replace("?", "{" + ",".join(draw(st.permutations(members))) + "}").encode()
    if draw(st.integers(0, 9)) == 0:
        data = data.replace(b"echo", b"\xff\xfe")
    answer_id = json.loads(raw_id) if is_echoed else None
    is_cancelled = is_echoed and answer_id != "same" and draw(st.booleans())
    if is_cancelled:
        named = {"method": "notifications/cancelled", "params": {"requestId": answer_id}}
        data = data.replace(b"echo", b"hold") + b"\n" + json.dumps({"jsonrpc": "2.0"} | named).encode()
    return Call(data, mark, answer_id, is_cancelled)


def key(request_id):
    return type(request_id).__name__, request_id


def records_of(broker):
    """Return the text of each request that becomes a record of a call."""
    texts = []
    for request in broker.received:
        assert isinstance(request, RunRequest | ExplainRequest | MalformedRequest | CancelRequest)
        if not isinstance(request, CancelRequest):
            texts.append(request.arguments if isinstance(request, MalformedRequest) else request.command)
    return texts


def everything_said_to(broker, opener, lines):
    """Send the lines, end the input, and return every answer; progress is no answer."""
    with McpFrontend(broker) as client:
        if opener is not None:
            client.send(id="opener", **opener)
            assert client.receive()["id"] == "opener"
        client.send_bytes(b"\n".join(lines))
        client.close_input()
        answers = []
        try:
            while True:
                answers.append(client.receive())
        except EOFError:
            assert client.ended() == (0, b"")
    return [answer for answer in answers if answer.get("method") != "notifications/progress"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data(), st.sampled_from(sorted(OPENERS)), st.integers(1, 12), st.integers(1, 5))
def test_every_call_is_recorded_once_and_answered_once(data, opener, count, in_flight):
    sent = [data.draw(calls(number)) for number in range(count)]
    with FakeBroker(in_flight) as broker:
        answers = everything_said_to(broker, OPENERS[opener], [call.line for call in sent])
        records = records_of(broker)
    assert len(records) == len(sent)
    for call in sent:
        assert sum(call.mark in record for record in records) == 1
    answered = Counter(key(answer["id"]) for answer in answers)
    must = Counter(key(call.answer_id) for call in sent if not call.is_cancelled)
    may = Counter(key(call.answer_id) for call in sent if call.is_cancelled)
    assert must <= answered <= must + may


@pytest.mark.parametrize("method", ["tools/call", "ping"])
@pytest.mark.parametrize("megabytes", [15, 17, 40])
def test_a_call_on_a_line_up_to_the_limit_and_beyond_is_recorded_and_answered_with_its_id(megabytes, method):
    params = (
        '{"name":"run_command","arguments":{"command":"echo T1T ' + "x\\n" * (megabytes * 350_000) + '"}}'
    )
    line = f'{{"method":"{method}","params":{params},"jsonrpc":"2.0","id":5}}'.encode()
    next_line = b'{"jsonrpc":"2.0","id":6,"method":"ping"}'
    with FakeBroker() as broker:
        answers = everything_said_to(broker, OPENERS["handshake"], [line, next_line])
        records = records_of(broker)
    assert {answer["id"] for answer in answers} == {5, 6}
    assert len(answers) == 2
    assert ["T1T" in record for record in records] == [True] * (method == "tools/call")


def test_the_calls_of_a_batch_are_refused_each_with_its_id_and_recorded():
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "run_command", "arguments": {}}}
    batch = json.dumps([call | {"id": number} for number in range(40)]).encode()
    with FakeBroker() as broker:
        answers = everything_said_to(broker, OPENERS["handshake"], [batch])
        assert len(records_of(broker)) == 40
    assert [answer["id"] for answer in answers] == list(range(40))
    assert {answer["error"]["code"] for answer in answers} == {-32600}


def test_a_call_without_an_id_is_recorded_and_neither_run_nor_answered():
    call = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo 1"}}}'
    with FakeBroker(1) as broker:
        assert everything_said_to(broker, OPENERS["handshake"], [call] * 3) == []
        assert [type(request) for request in broker.received] == [MalformedRequest] * 3


@pytest.mark.parametrize("name", ["nope", "", "RUN_COMMAND", 7, None, ["run_command"], {"run_command": 1}])
def test_what_calls_no_tool_of_ours_is_not_recorded(name):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}
    others = [call | {"id": 1.5}, call | {"jsonrpc": "1"}, call | {"method": "tools/list", "params": {}}]
    lines = [json.dumps(message).encode() for message in (call, *others)]
    with FakeBroker() as broker:
        assert len(everything_said_to(broker, OPENERS["handshake"], lines)) == 4
        assert broker.received == []
