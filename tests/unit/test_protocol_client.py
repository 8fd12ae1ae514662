"""The client side of a connection: what it sends, what it takes for an answer, and how it ends."""

import socket
import threading

import pytest

from protocol import framing, messages
from protocol.client import BrokerClient, BrokerGone, ClientConnection
from protocol.messages import ResultCode
from tests.fake_broker import PROGRAMS, FakeBroker, envelope


def open_connection() -> ClientConnection:
    connection = ClientConnection("test")
    connection.hello()
    connection.feed(framing.encode(messages.Welcome(1, ("echo",), 4)))
    return connection


def sent(frame: bytes):
    (body,) = framing.Frames(framing.REQUEST_LIMIT_BYTES).feed(frame)
    return framing.decode_request(body)


def test_every_request_has_an_id_of_its_own():
    connection = open_connection()
    ids = [
        connection.run("a")[0],
        connection.explain("b")[0],
        connection.describe()[0],
        connection.run("c")[0],
    ]
    assert ids == [1, 2, 3, 4]
    assert connection.unanswered == 4


def test_requests_carry_what_was_asked():
    connection = open_connection()
    assert sent(connection.run("ls", "src", progress=True)[1]) == messages.RunRequest(1, "ls", "src", True)
    assert sent(connection.explain("ls")[1]) == messages.ExplainRequest(2, "ls")
    assert sent(connection.cancel(1)) == messages.CancelRequest(1)


@pytest.mark.parametrize(
    ("command", "cwd", "problem"),
    [
        ("x" * (messages.COMMAND_CHARACTERS + 1), None, "command has 65537 characters"),
        ("echo \ud800", None, "command is not valid Unicode"),
        ("ls", "d" * (messages.PATH_CHARACTERS + 1), "cwd has 4097 characters"),
        ("ls", "\udfff", "cwd is not valid Unicode"),
    ],
    ids=["long command", "half a pair", "long cwd", "half a pair in cwd"],
)
def test_a_run_that_no_request_can_carry_is_reported_as_malformed(command, cwd, problem):
    report = sent(open_connection().run(command, cwd)[1])
    assert isinstance(report, messages.MalformedRequest)
    assert report.problem.startswith(problem)
    assert len(report.arguments) <= messages.ARGUMENTS_CHARACTERS


def test_an_explain_that_no_request_can_carry_is_reported_for_its_own_tool():
    assert sent(open_connection().explain("\ud800")[1]).tool == "explain_command"


def test_a_report_of_many_half_pairs_still_fits():
    report = sent(open_connection().run("\ud800" * 70_000)[1])
    assert 0 < len(report.arguments) <= messages.ARGUMENTS_CHARACTERS


@pytest.mark.parametrize("part", [1, 10, 40, 8_000])
def test_a_report_that_is_cut_ends_before_the_word_that_is_cut(part):
    beginning = "# " * (messages.ARGUMENTS_CHARACTERS // 2 - part // 2 - 4) + "one "
    report = sent(open_connection().explain(beginning + "y" * 8_100 + " " + "z" * 60_000)[1])
    assert report.arguments == beginning.rstrip() + "…"


def test_a_report_without_a_blank_is_cut_beyond_what_the_trail_shows():
    arguments = sent(open_connection().run("x" * 70_000)[1]).arguments
    assert arguments == "x" * (messages.ARGUMENTS_CHARACTERS - 1) + "…"


@pytest.mark.parametrize(
    "reply",
    [
        messages.Result(9, envelope()),
        messages.Progress(9, 1, 0, 0),
        messages.Description(1, "text", ()),
        messages.Welcome(1, (), 1),
        messages.Refusal("because"),
    ],
    ids=lambda reply: type(reply).__name__,
)
def test_a_reply_that_answers_nothing_we_asked_ends_the_connection(reply):
    connection = open_connection()
    connection.run("ls")
    with pytest.raises(BrokerGone):
        connection.feed(framing.encode(reply))


def test_a_second_answer_to_one_request_ends_the_connection():
    connection = open_connection()
    connection.run("ls")
    answer = framing.encode(messages.Result(1, envelope()))
    assert len(connection.feed(answer)) == 1
    with pytest.raises(BrokerGone, match="not asked"):
        connection.feed(answer)


def test_progress_of_a_description_ends_the_connection():
    connection = open_connection()
    connection.describe()
    with pytest.raises(BrokerGone, match="does not run"):
        connection.feed(framing.encode(messages.Progress(1, 1, 0, 0)))


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x01\xc1"], ids=bytes.hex)
def test_the_end_and_what_is_no_frame_end_the_connection(data):
    with pytest.raises(BrokerGone):
        open_connection().feed(data)


def test_a_broker_of_another_version_is_not_talked_to():
    connection = ClientConnection("test")
    with pytest.raises(BrokerGone, match="version 2"):
        connection.feed(framing.encode(messages.Welcome(2, (), 1)))


def test_the_client_runs_explains_and_describes():
    with FakeBroker() as broker, BrokerClient(broker.frontend) as client:
        assert client.programs == PROGRAMS
        assert client.run("echo hi").stdout == "hi\n"
        assert client.run("deny").code is ResultCode.POLICY_DENIED
        assert client.explain("echo hi").exit_code is None
        assert client.describe().text == "the policy as text"


def test_the_client_takes_a_descriptor_too_and_closes_it():
    with FakeBroker() as broker:
        ours = broker.frontend.dup()
        with BrokerClient(ours.detach()) as client:
            assert client.run("echo hi").stdout == "hi\n"
        with pytest.raises(BrokerGone):
            client.run("echo hi")


def test_the_client_hands_on_progress():
    seen: list[int] = []
    with FakeBroker() as broker, BrokerClient(broker.frontend) as client:

        def watch(progress: messages.Progress) -> None:
            seen.append(progress.elapsed_ms)
            if len(seen) == 2:
                broker.release()

        assert client.run("progress", on_progress=watch).stdout == "released\n"
    assert seen == [1000, 2000]


def test_an_answer_larger_than_any_buffer_arrives_whole():
    with FakeBroker() as broker, BrokerClient(broker.frontend) as client:
        assert len(client.run("big 5000000").stdout) == 5_000_000


def test_a_broker_that_dies_during_a_call_is_said_to_be_gone():
    with FakeBroker() as broker, BrokerClient(broker.frontend) as client:
        with pytest.raises(BrokerGone):
            client.run("die")
        with pytest.raises(BrokerGone):
            client.run("echo hi")


def test_a_broker_that_never_welcomes_is_said_to_be_gone():
    ours, theirs = socket.socketpair()
    closing = threading.Thread(target=lambda: (theirs.recv(100), theirs.close()))
    closing.start()
    with ours, pytest.raises(BrokerGone):
        BrokerClient(ours)
    closing.join(10)
