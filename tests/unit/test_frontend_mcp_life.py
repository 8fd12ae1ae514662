"""The MCP frontend from its start to its end: eras, clients that do not read or vanish, signals, a broker that dies."""

import json
import os
import pty
import queue
import select
import signal
import subprocess
import time

import pytest

from protocol import messages
from tests.fake_broker import FakeBroker
from tests.mcp_frontend import ENVELOPE, OPENING, McpFrontend


@pytest.fixture
def broker():
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def client(broker):
    with McpFrontend(broker) as frontend:
        frontend.initialize()
        yield frontend


def quiet_end(client, status=0):
    assert client.ended() == (status, b"")


# Both eras


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_revision_with_a_handshake_is_served(broker, version):
    with McpFrontend(broker, cold=version == "2025-11-25") as client:
        client.send(id=1, method="initialize", params=OPENING | {"protocolVersion": version})
        result = client.receive()["result"]
        assert result["protocolVersion"] == version
        assert "cat, echo, ls" in result["instructions"]
        client.send(method="notifications/initialized")
        client.call(2, "echo hi")
        assert client.envelope()["stdout"] == "hi\n"


def test_an_unknown_revision_gets_the_latest_one_with_a_handshake(broker):
    with McpFrontend(broker) as client:
        client.send(id=1, method="initialize", params=OPENING | {"protocolVersion": "1999-01-01"})
        assert client.receive()["result"]["protocolVersion"] == "2025-11-25"


def test_the_revision_without_a_handshake_is_served(broker):
    with McpFrontend(broker) as client:
        client.send(id=1, method="server/discover", params={"_meta": ENVELOPE})
        found = client.receive()["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert "cat, echo, ls" in found["instructions"]
        client.send(id=2, method="tools/list", params={"_meta": ENVELOPE})
        assert [tool["name"] for tool in client.receive()["result"]["tools"]] == [
            "run_command",
            "explain_command",
        ]
        client.call(3, "echo hi", _meta=ENVELOPE)
        assert client.envelope()["stdout"] == "hi\n"


def test_a_connection_stays_in_its_era(broker):
    with McpFrontend(broker) as client:
        client.send(id=1, method="tools/list", params={"_meta": ENVELOPE})
        assert "result" in client.receive()
        client.send(id=2, method="initialize", params=OPENING)
        error = client.receive()["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-06-18"}
        client.send(id=3, method="tools/list", params={})
        assert client.receive()["error"]["code"] == -32602


def test_an_envelope_in_a_connection_with_a_handshake_is_refused(client):
    client.send(id=1, method="tools/list", params={"_meta": ENVELOPE})
    assert client.receive()["error"]["code"] == -32600


def test_calls_before_the_handshake_are_refused_and_recorded_and_the_handshake_still_works(broker):
    with McpFrontend(broker) as client:
        client.call(1, "echo hi")
        assert client.receive()["error"]["code"] == -32602
        assert "tools" in client.initialize()["capabilities"]
    (report,) = broker.received
    assert isinstance(report, messages.MalformedRequest)
    assert report.arguments == '{"command": "echo hi"}'


def test_a_request_sent_together_with_the_handshake_is_served_after_it(broker):
    with McpFrontend(broker) as client:
        client.send(id=1, method="initialize", params=OPENING)
        client.call(2, "echo hi")
        assert client.receive()["id"] == 1
        assert client.envelope()["stdout"] == "hi\n"


# Clients that do not read


def test_a_client_that_does_not_read_blocks_only_itself_and_memory_stays_bounded(client, broker):
    before_kib = client.memory_kib()
    lines = b"".join(
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"big 100000"}}}\n'
        % number
        for number in range(2000)
    )
    os.set_blocking(client.process.stdin.fileno(), False)
    written = 0
    asked = 0
    # The answers to all of it would be 400 MB. Write until nothing more is taken, and the broker hears no more either.
    while written < len(lines):
        try:
            written += os.write(client.process.stdin.fileno(), lines[written : written + 65536])
        except BlockingIOError:
            try:
                broker.requests.get(timeout=1)
                asked += 1
            except queue.Empty:
                break
    assert asked < 500
    assert client.memory_kib() - before_kib < 64 * 1024
    client.process.send_signal(signal.SIGTERM)
    quiet_end(client)


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n', b"%d\n" * 50], ids=["answers", "errors"]
)
def test_a_client_that_does_not_read_what_needs_no_broker_is_not_read_either(client, line):
    before_kib = client.memory_kib()
    fd = client.process.stdin.fileno()
    os.set_blocking(fd, False)
    numbers_in_line = line.count(b"%d")
    sent = 0
    while sent < 1_000_000 and select.select([], [fd], [], 1)[1]:
        os.write(fd, line % ((sent,) * numbers_in_line))
        sent += numbers_in_line
    assert sent < 200_000
    assert client.memory_kib() - before_kib < 32 * 1024
    assert len([client.receive() for _ in range(sent)]) == sent


@pytest.fixture
def full_stderr():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while select.select([], [writer], [], 0)[1]:
        os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_even_its_own_lines_never_wait_for_somebody_to_read_stderr(broker, full_stderr):
    broker.kill()
    with McpFrontend(broker, stderr=full_stderr) as client:
        assert client.ended()[0] == 70


def test_a_client_that_never_reads_stderr_cannot_stop_the_server(broker, full_stderr):
    with McpFrontend(broker, stderr=full_stderr) as client:
        client.initialize()
        for number in range(2000):
            client.send_bytes(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":7}}\n' % number
            )
            assert "error" in client.receive()
        client.close_input()
        assert client.ended()[0] == 0


# The end


def test_the_answers_of_calls_in_flight_go_out_after_the_end_of_input(client, broker):
    client.call(1, "hold")
    client.call(2, "hold")
    broker.next_request()
    broker.next_request()
    client.send_bytes(b'{"jsonrpc":"2.0","id":3,"method":"ping"}')
    client.close_input()
    # A line without its end is answered only when the end of the input was seen.
    assert client.receive()["id"] == 3
    broker.release()
    assert {client.receive()["id"], client.receive()["id"]} == {1, 2}
    with pytest.raises(EOFError):
        client.line()
    quiet_end(client)


def test_a_last_line_without_its_end_counts(client):
    client.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    client.close_input()
    assert client.receive()["id"] == 1
    quiet_end(client)


def hold(client, broker, calls):
    """Begin so many calls that wait, of which the broker has seen the first."""
    for number in range(calls):
        client.call(number, "hold")
    for _ in range(4):
        broker.next_request()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_it_cleanly(client, broker, number, busy):
    if busy:
        client.call(1, "hold")
        broker.next_request()
    client.process.send_signal(number)
    quiet_end(client)


def test_a_signal_answers_what_is_in_flight_and_records_what_was_not_judged_yet(client, broker):
    hold(client, broker, 30)
    client.send(id="p", method="ping")
    assert client.receive()["id"] == "p"
    client.process.send_signal(signal.SIGTERM)
    errors = [client.receive() for _ in range(30)]
    assert sorted(answer["id"] for answer in errors) == list(range(30))
    assert {answer["error"]["message"] for answer in errors} == {"The server is ending"}
    quiet_end(client)
    kinds = [type(request) for request in broker.received]
    assert kinds.count(messages.RunRequest) == 4
    assert kinds.count(messages.MalformedRequest) == 26


def test_a_broker_that_says_nothing_does_not_hold_up_the_end(client, broker):
    client.call(1, "hold")
    broker.next_request()
    with broker._taking:
        for number in range(20):
            client.call(f"w{number}", "hold")
        client.send(id="p", method="ping")
        assert client.receive()["id"] == "p"
        client.process.send_signal(signal.SIGTERM)
        assert client.ended()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_ends_it_cleanly_too(broker, number):
    with McpFrontend(broker, cold=True) as client:
        deadline_s = time.monotonic() + 10
        while not client.catches(signal.SIGHUP):
            assert time.monotonic() < deadline_s
        client.process.send_signal(number)
        quiet_end(client)


def test_a_client_that_closes_its_reading_end_ends_it_without_a_word(client):
    client.close_output()
    client.send(id=1, method="ping")
    quiet_end(client)


def test_a_client_that_vanishes_during_a_call_ends_it(client, broker):
    client.call(1, "hold")
    broker.next_request()
    client.close_output()
    client.close_input()
    quiet_end(client)


def test_nothing_to_read_at_all_is_a_prompt_end(broker):
    with McpFrontend(broker, cold=True, stdin=subprocess.DEVNULL) as client:
        quiet_end(client)


def test_files_for_input_and_output_work(broker, tmp_path):
    lines = [{"id": 0, "method": "initialize", "params": OPENING}, {"id": 1, "method": "ping"}]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps({"jsonrpc": "2.0"} | line) for line in lines))
    target = tmp_path / "out.jsonl"
    with (
        source.open() as reading,
        target.open("w") as writing,
        McpFrontend(broker, stdin=reading, stdout=writing) as client,
    ):
        quiet_end(client)
    assert [json.loads(line)["id"] for line in target.read_text().splitlines()] == [0, 1]


def test_standard_output_is_left_blocking_for_whoever_shares_it(broker):
    reader, writer = os.pipe()
    with McpFrontend(broker, stdin=subprocess.PIPE, stdout=writer) as client:
        client.send(id=1, method="ping")
        assert b'"id":1' in os.read(reader, 4096)
        assert not os.get_blocking(writer)
        client.close_input()
        quiet_end(client)
    assert os.get_blocking(writer)
    os.close(reader)
    os.close(writer)


def test_on_a_terminal_it_says_what_it_waits_for(broker):
    leader, follower = pty.openpty()
    with McpFrontend(broker, stdin=follower) as client:
        os.close(follower)
        assert b"waiting for an MCP client on stdin" in client.process.stderr.readline()
        os.close(leader)
        assert client.ended()[0] == 0


# A broker that dies


def test_when_the_broker_dies_calls_in_flight_and_later_ones_get_an_envelope(client, broker):
    client.call(1, "hold")
    broker.next_request()
    client.call(2, "die")
    codes = [client.envelope()["code"] for _ in range(2)]
    client.call(3, "echo hi")
    codes.append(client.envelope()["code"])
    client.call(4, None)
    codes.append(client.envelope()["code"])
    assert codes == ["INTERNAL_ERROR"] * 4
    client.send(id=5, method="resources/read", params={"uri": "policy://effective"})
    assert client.receive()["error"] == {"code": -32603, "message": "Internal error"}
    client.send(id=6, method="tools/list")
    assert len(client.receive()["result"]["tools"]) == 2
    client.close_input()
    quiet_end(client)


def test_calls_that_wait_for_their_turn_learn_of_the_broker_s_death_too(client, broker):
    hold(client, broker, 20)
    broker.kill()
    assert {client.receive()["id"] for _ in range(20)} == set(range(20))


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x01\xc1"],
    ids=["empty frame", "huge frame", "no message"],
)
def test_a_broker_that_talks_nonsense_is_a_broker_that_died(client, broker, data):
    client.call(1, "hold")
    broker.next_request()
    broker.send_bytes(data)
    assert client.envelope()["code"] == "INTERNAL_ERROR"


def test_an_answer_to_somebody_else_s_question_is_not_handed_on(client, broker):
    client.call(1, "hold")
    broker.next_request()
    broker.send(messages.Progress(77, 1, 1, 1))
    assert client.envelope()["code"] == "INTERNAL_ERROR"


@pytest.mark.parametrize("cold", [True, False])
def test_without_a_broker_it_says_so_in_one_line_and_ends(broker, cold):
    broker.kill()
    with McpFrontend(broker, cold=cold) as client:
        assert client.ended() == (70, b"hardened-terminal-mcp: the broker is not there\n")
