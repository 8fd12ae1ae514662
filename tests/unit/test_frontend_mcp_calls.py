"""What the MCP frontend answers: tools, resource, hostile lines, progress, cancellation; the broker here is a fake.

All tests share one process: each of them also shows that the one before left it working.
"""

import json
import os
import select

import pytest

from protocol.messages import CancelRequest, ExplainRequest, MalformedRequest, RunRequest
from tests.fake_broker import FakeBroker
from tests.mcp_frontend import McpFrontend


@pytest.fixture(scope="module")
def served():
    with FakeBroker() as fake, McpFrontend(fake) as frontend:
        frontend.initialize()
        yield fake, frontend
        frontend.close_input()
        assert frontend.ended() == (0, b"")


@pytest.fixture
def broker(served):
    served[0].forget()
    return served[0]


@pytest.fixture
def client(served):
    return served[1]


# Tools and resource


def test_the_tools_are_described_for_a_model_and_annotated_honestly(client):
    client.send(id=1, method="tools/list")
    run, explain = client.receive()["result"]["tools"]
    assert run["annotations"]["readOnlyHint"] is False
    assert explain["annotations"]["readOnlyHint"] is True
    assert explain["annotations"]["idempotentHint"] is True
    assert "cat, echo, ls" in run["description"]
    assert run["inputSchema"]["additionalProperties"] is False
    assert run["inputSchema"]["properties"]["cwd"]["anyOf"][1] == {"type": "null"}
    assert run["outputSchema"] == explain["outputSchema"]
    assert run["title"]
    assert explain["title"]


def test_a_call_reaches_the_broker_as_it_was_made(client, broker):
    arguments = {"command": "echo 'ä  b'", "cwd": "null"}
    client.send(id="x", method="tools/call", params={"name": "run_command", "arguments": arguments})
    assert client.receive()["id"] == "x"
    run = broker.next_request()
    assert run == RunRequest(run.id, "echo 'ä  b'", "null")
    client.send(
        id="y", method="tools/call", params={"name": "explain_command", "arguments": {"command": "rm"}}
    )
    assert client.envelope()["exit_code"] is None
    assert broker.next_request() == ExplainRequest(run.id + 1, "rm")


def test_a_refusal_is_data_and_no_error(client):
    client.call(1, "deny")
    assert client.envelope()["code"] == "POLICY_DENIED"


@pytest.mark.parametrize(
    "params",
    [
        {"name": "run_command"},
        {"name": "run_command", "arguments": None},
        {"name": "run_command", "arguments": []},
        {"name": "run_command", "arguments": "echo hi"},
        {"name": "run_command", "arguments": {"command": None}},
        {"name": "run_command", "arguments": {"command": 1}},
        {"name": "run_command", "arguments": {"command": "echo", "cwd": 1}},
        {"name": "run_command", "arguments": {"command": "echo", "timeout": 1}},
        {"name": "run_command", "arguments": {"command": "echo", "\ud800": 1}},
        {"name": "run_command", "arguments": {"command": "echo \ud800"}},
        {"name": "run_command", "arguments": {"command": "echo", "cwd": "\ud800"}},
        {"name": "run_command", "arguments": {"command": "x" * 65_537}},
        {"name": "explain_command", "arguments": {"command": "echo", "cwd": "."}},
    ],
    ids=lambda params: json.dumps(params)[:60],
)
def test_wrong_arguments_get_an_envelope_and_reach_the_trail(client, broker, params):
    client.send(id=1, method="tools/call", params=params)
    assert client.envelope()["code"] == "PARSE_ERROR"
    report = broker.next_request()
    assert isinstance(report, MalformedRequest)
    assert report.tool == params["name"]
    client.call(2, "echo hi")
    assert client.envelope()["stdout"] == "hi\n"


def test_a_command_of_ten_megabytes_gets_an_envelope_and_the_connection_lives(client, broker):
    client.call(1, "x" * 10_000_000)
    assert client.envelope()["code"] == "PARSE_ERROR"
    assert isinstance(broker.next_request(), MalformedRequest)
    client.call(2, "echo hi")
    assert client.envelope()["stdout"] == "hi\n"


@pytest.mark.parametrize("name", ["nope", "", "RUN_COMMAND", "run_command ", 7, None, ["run_command"]])
def test_an_unknown_tool_is_an_error_of_the_protocol_and_nothing_else(client, broker, name):
    client.send(id=1, method="tools/call", params={"name": name, "arguments": {"command": "echo"}})
    assert client.receive()["error"]["code"] == -32602
    assert broker.received == []


def test_the_policy_can_be_read_as_a_resource(client):
    client.send(id=1, method="resources/list")
    (resource,) = client.receive()["result"]["resources"]
    client.send(id=2, method="resources/read", params={"uri": resource["uri"]})
    assert client.receive()["result"]["contents"][0]["text"] == "the policy as text"
    client.send(id=4, method="resources/templates/list")
    assert client.receive()["result"]["resourceTemplates"] == []
    client.send(id=3, method="resources/read", params={"uri": "file:///etc/passwd"})
    assert client.receive()["error"]["code"] == -32602


# Lines that are no messages


def test_every_kind_of_bad_line_is_answered_and_the_connection_lives(client):
    bad = {b"{": None, b"[]": None, b"7": None, b"\xff": None, b"[" * 300_000: None}
    bad |= {b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}': 1.5, b'{"id":"a","params":[[': "a"}
    for line, request_id in bad.items():
        client.send_bytes(line + b"\n")
        answer = client.receive()
        assert answer["id"] == request_id
        assert answer["error"]["code"] in (-32700, -32600)
    client.send_bytes(b"\n  \n")
    client.send(id=1, method="ping")
    assert client.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_line_of_a_hundred_megabytes_is_refused_in_bounded_memory(client):
    before_kib = client.memory_kib()
    for _ in range(100):
        client.send_bytes(b"x" * 1_000_000)
    client.send_bytes(b"\n")
    assert client.receive()["error"]["code"] == -32600
    client.send(id=1, method="ping")
    assert client.receive()["id"] == 1
    assert client.memory_kib() - before_kib < 48 * 1024


def test_half_a_pair_anywhere_never_ends_the_server(client):
    for line in (
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"\\udfff"}}',
        b'{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"\\ud800"}}',
    ):
        client.send_bytes(line + b"\n")
        assert "error" in client.receive()
    client.send_bytes(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\\ud800"}}\n'
    )
    client.send(id=4, method="ping")
    assert client.receive()["id"] == 4


def test_an_id_in_flight_is_not_taken_twice(client, broker):
    client.call(7, "hold")
    broker.next_request()
    client.call(7, "echo hi")
    assert client.receive()["error"]["code"] == -32600
    assert "in flight" in broker.next_request().problem
    broker.release()
    assert client.envelope()["stdout"] == "released\n"
    client.call(7, "echo again")
    assert client.envelope()["stdout"] == "again\n"
    assert len(broker.received) == 3


def test_an_unknown_method_is_an_error_and_an_unknown_notification_is_not(client):
    client.send(method="notifications/nonsense", params={"a": 1})
    client.send(id=1, method="nonsense")
    assert client.receive()["error"]["code"] == -32601


# Progress and cancellation


def test_progress_is_told_with_the_client_s_token_and_only_rises(client, broker):
    client.call(1, "progress", _meta={"progressToken": "tok"})
    assert broker.next_request().progress is True
    reports = [client.receive()]
    if reports[-1]["params"]["progress"] < 2:
        reports.append(client.receive())
    broker.release()
    assert client.receive()["id"] == 1
    assert all(report["method"] == "notifications/progress" for report in reports)
    assert [report["params"]["progressToken"] for report in reports] == ["tok"] * len(reports)
    values = [report["params"]["progress"] for report in reports]
    assert values == sorted(set(values))
    assert reports[-1]["params"]["message"] == "2.0 s, 20 bytes of output"


@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": 1.5}, {"progressToken": {}}])
def test_without_a_usable_token_no_progress_is_told(client, broker, meta):
    client.call(1, "echo hi", _meta=meta)
    answer = client.receive()
    assert answer["id"] == 1
    if "error" not in answer:
        assert broker.next_request().progress is False


@pytest.mark.parametrize(("request_id", "named"), [(5, 5), ("a", "a"), (5, "5")])
def test_a_cancelled_call_is_cancelled_at_the_broker_and_never_answered(client, broker, request_id, named):
    client.call(request_id, "hold")
    run = broker.next_request()
    client.send(method="notifications/cancelled", params={"requestId": named, "reason": "enough"})
    assert broker.next_request() == CancelRequest(run.id)
    client.send(id=99, method="ping")
    assert client.receive()["id"] == 99


@pytest.mark.parametrize("named", [None, True, 1.0, [], {"a": 1}, "no", 12345])
def test_a_cancellation_of_nothing_changes_nothing(client, broker, named):
    client.call(1, "hold")
    broker.next_request()
    client.send(method="notifications/cancelled", params={"requestId": named})
    client.send(id=2, method="ping")
    assert client.receive()["id"] == 2
    broker.release()
    assert client.envelope()["stdout"] == "released\n"


def cancellation(request_id):
    message = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
    return json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
def test_a_call_that_is_cancelled_before_it_began_is_recorded_and_never_run_or_answered(client, broker, tool):
    run = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    run["params"] = {"name": tool, "arguments": {"command": "hold"}}
    client.send_bytes(json.dumps(run).encode() + b"\n" + cancellation(1))
    client.call(1, "echo the id is free again")
    assert client.envelope()["stdout"] == "the id is free again\n"
    report = broker.next_request()
    assert report.tool == tool
    assert report.problem.startswith("cancelled by the client")
    # The process ends at the end of this module only if no request is in flight.


def test_a_cancelled_call_that_waits_for_its_turn_is_recorded_in_its_turn_and_never_run():
    with FakeBroker(in_flight=1) as single, McpFrontend(single) as client:
        client.initialize()
        client.call(1, "hold")
        single.next_request()
        client.call(2, "echo two")
        client.send(
            id=5, method="tools/call", params={"name": "explain_command", "arguments": {"command": "five"}}
        )
        client.call(6, 7)
        client.call(3, "echo three")
        client.send(id=4, method="ping")
        assert client.receive()["id"] == 4
        for waiting in (2, 5, 6):
            client.send(method="notifications/cancelled", params={"requestId": waiting})
        client.send(id=4, method="ping")
        assert client.receive()["id"] == 4
        single.release()
        assert [client.receive()["id"] for _ in range(2)] == [1, 3]
        two, five, six = single.received[1:4]
        assert all(isinstance(report, MalformedRequest) for report in (two, five, six))
        assert [(report.tool, report.arguments) for report in (two, five)] == [
            ("run_command", "echo two"),
            ("explain_command", "five"),
        ]
        assert "command must be a string" in six.problem
        assert single.received[4].command == "echo three"


def test_a_policy_that_is_no_longer_asked_for_is_not_asked_for():
    with FakeBroker(in_flight=1) as single, McpFrontend(single) as client:
        client.initialize()
        client.call(1, "hold")
        single.next_request()
        client.send(id=2, method="resources/read", params={"uri": "policy://effective"})
        client.send(id=4, method="ping")
        assert client.receive()["id"] == 4
        client.send(method="notifications/cancelled", params={"requestId": 2})
        client.call(3, "echo three")
        client.send(id=4, method="ping")
        assert client.receive()["id"] == 4
        single.release()
        assert [client.receive()["id"] for _ in range(2)] == [1, 3]
        assert [request.command for request in single.received] == ["hold", "echo three"]


def test_a_flood_of_calls_and_cancellations_is_held_back_and_each_is_recorded(client, broker):
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"%d"}}}\n'
    for number in range(4):
        client.call(f"h{number}", "hold")
        broker.next_request()
    pair = call + cancellation(1)
    fd = client.process.stdin.fileno()
    os.set_blocking(fd, False)
    sent = 0
    while sent < 20_000 and select.select([], [fd], [], 1)[1]:
        os.write(fd, pair % sent)
        sent += 1
    assert 100 < sent < 2000
    broker.release()
    client.send(id="p", method="ping")
    assert {client.receive()["id"] for _ in range(5)} == {"h0", "h1", "h2", "h3", "p"}
    client.call("last", "echo last")
    assert client.envelope()["stdout"] == "last\n"
    reports = [request for request in broker.received if isinstance(request, MalformedRequest)]
    assert len(reports) == sent
    assert broker.most_unanswered <= 4


# Many at once


def test_no_more_than_the_broker_allows_is_in_flight_and_none_is_lost(client, broker):
    for number in range(200):
        client.call(number, f"echo {number}")
    answers = {}
    for _ in range(200):
        answer = client.receive()
        answers[answer["id"]] = answer["result"]["structuredContent"]["stdout"]
    assert answers == {number: f"{number}\n" for number in range(200)}
    assert broker.most_unanswered <= 4


def test_calls_that_wait_are_sent_in_the_order_in_which_they_came(client, broker):
    for number in range(4):
        client.call(f"h{number}", "hold")
        broker.next_request()
    for number in range(50):
        client.call(number, f"echo {number}")
    client.send(id="p", method="ping")
    assert client.receive()["id"] == "p"
    broker.release()
    for _ in range(54):
        client.receive()
    commands = [request.command for request in broker.received]
    assert commands[4:] == [f"echo {number}" for number in range(50)]


def test_a_client_with_too_much_in_flight_is_not_read_until_some_is_done(client, broker):
    call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"hold"}}}\n'
    fd = client.process.stdin.fileno()
    os.set_blocking(fd, False)
    sent = 0
    while select.select([], [fd], [], 1)[1]:
        # Less than PIPE_BUF: all of it or nothing.
        os.write(fd, call % sent)
        sent += 1
    assert 320 < sent < 2000
    broker.holds = False
    broker.release()
    answers = {client.receive()["id"] for _ in range(sent)}
    assert answers == set(range(sent))
    assert broker.most_unanswered <= 4


def test_an_answer_larger_than_a_pipe_arrives_whole(client):
    client.call(1, "big 3000000")
    assert len(client.envelope()["stdout"]) == 3_000_000
