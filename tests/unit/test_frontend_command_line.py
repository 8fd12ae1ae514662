"""The command line's frontend: what it prints where, its exit statuses, and what it must not import."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from frontend import command_line
from protocol import framing, messages
from protocol.messages import ExplainRequest, MalformedRequest, RunRequest
from tests.fake_broker import FakeBroker

BOUND_S = 20
PREFIX = "hardened-terminal-mcp: "


@pytest.fixture
def broker():
    with FakeBroker() as fake:
        yield fake


@contextlib.contextmanager
def start(broker, *arguments, options=(), **streams):
    """Start the frontend; whatever fails in the block, it does not outlive it."""
    fd = broker.frontend.fileno()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    with subprocess.Popen(
        [sys.executable, "-I", *options, "-m", "frontend.command_line", *arguments],
        env={"HTMCP_BROKER_FD": str(fd), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        pass_fds=[fd],
        **streams,
    ) as started:
        broker.frontend.close()
        try:
            yield started
        finally:
            started.kill()


def ended(broker, *arguments, **streams):
    with start(broker, *arguments, **streams) as process:
        out, err = process.communicate(timeout=BOUND_S)
        return process.returncode, out.decode(), err.decode()


def test_run_prints_what_the_command_printed_and_nothing_else(broker):
    assert ended(broker, "run", "text", "", "result OK,0,to stdout é,to stderr") == (
        0,
        "to stdout é",
        "to stderr",
    )


def test_run_sends_the_command_and_the_directory_as_they_were_given(broker):
    ended(broker, "run", "text", "src/ä", "echo  'a b' \\")
    assert broker.next_request() == RunRequest(1, "echo  'a b' \\", "src/ä")


def test_explain_sends_an_explain(broker):
    assert ended(broker, "explain", "text", "", "echo hi") == (0, "allowed\n", "")
    assert broker.next_request() == ExplainRequest(1, "echo hi")


@pytest.mark.parametrize(
    ("order", "status", "said"),
    [
        ("OK,0", 0, None),
        ("OK,7", 7, None),
        ("OK,255", 255, None),
        ("OK,-9", 137, None),
        ("OK,-15", 143, None),
        ("OUTPUT_TRUNCATED,3", 3, "OUTPUT_TRUNCATED: because"),
        ("TIMEOUT,", 124, "TIMEOUT: because"),
        ("TIMEOUT,-9", 124, "TIMEOUT: because"),
        ("POLICY_DENIED,", 126, "POLICY_DENIED: because"),
        ("PARSE_ERROR,", 126, "PARSE_ERROR: because"),
        ("CWD_ESCAPE,", 126, "CWD_ESCAPE: because"),
        ("EXECUTOR_ERROR,", 125, "EXECUTOR_ERROR: because"),
        ("AUDIT_UNAVAILABLE,", 125, "AUDIT_UNAVAILABLE: because"),
        ("INTERNAL_ERROR,", 125, "INTERNAL_ERROR: because"),
    ],
)
def test_each_result_has_its_exit_status_and_at_most_one_line_of_ours(broker, order, status, said):
    line = f"{PREFIX}{said}\n" if said else ""
    assert ended(broker, "run", "text", "", f"result {order},out,") == (status, "out", line)


def test_our_line_begins_a_line_where_the_command_left_one_unfinished(broker):
    _, _, err = ended(broker, "run", "text", "", "result TIMEOUT,,,half a line")
    assert err == f"half a line\n{PREFIX}TIMEOUT: because\n"


def test_json_prints_the_whole_envelope_with_the_same_status(broker):
    status, out, err = ended(broker, "run", "json", "", "result OK,7,é,b")
    assert (status, err) == (7, "")
    assert tuple(json.loads(out)) == messages.CommandResult.__struct_fields__
    assert json.loads(out)["stdout"] == "é"


def test_json_of_an_explain_that_is_allowed_is_a_success(broker):
    status, out, _ = ended(broker, "explain", "json", "", "echo hi")
    assert (status, json.loads(out)["ok"]) == (0, True)


def test_explain_tells_a_refusal_on_stdout():
    result = {"code": "POLICY_DENIED", "policy_reason": "rm is not\non the list"}
    reader, writer = os.pipe()
    saved = os.dup(1)
    os.dup2(writer, 1)
    try:
        assert command_line.show_text("explain", result) == 126
    finally:
        os.dup2(saved, 1)
        os.close(writer)
        os.close(saved)
    with open(reader) as said:
        assert said.read() == "refused: POLICY_DENIED: rm is not\\non the list\n"


@pytest.mark.parametrize(
    "command",
    ["x" * (messages.COMMAND_CHARACTERS + 1), b"echo \xff", b"\xed\xa0\x80"],
    ids=["long", "bytes", "half a pair"],
)
def test_a_command_that_no_request_can_carry_is_refused_and_reaches_the_trail(broker, command):
    status, out, err = ended(broker, "run", "text", "", command)
    assert (status, out) == (126, "")
    assert err.startswith(f"{PREFIX}PARSE_ERROR: command ")
    assert isinstance(broker.next_request(), MalformedRequest)


def test_the_longest_command_is_sent(broker):
    command = "echo " + "é" * 60_000
    assert ended(broker, "run", "text", "", command)[1] == "é" * 60_000 + "\n"


def test_a_large_answer_is_printed_whole_to_a_slow_reader(broker):
    with start(broker, "run", "text", "", "big 3000000") as process:
        assert len(process.stdout.read()) == 3_000_000
        assert process.wait(BOUND_S) == 0


@pytest.mark.parametrize("command", ["die", "hold"])
def test_a_broker_that_dies_is_told_in_one_line(broker, command):
    with start(broker, "run", "text", "", command) as process:
        broker.next_request()
        broker.kill()
        out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (125, b"")
    assert err.decode() == f"{PREFIX}INTERNAL_ERROR: the broker is gone; the command's outcome is not known\n"


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\x01\xc1", b"\0\0\0\x01\x07", framing.encode(messages.Refusal("no"))],
    ids=["no value", "no map", "refusal"],
)
def test_a_broker_that_talks_nonsense_is_a_broker_that_died(broker, data):
    with start(broker, "run", "text", "", "hold") as process:
        broker.next_request()
        broker.send_bytes(data)
        assert b"INTERNAL_ERROR" in process.communicate(timeout=BOUND_S)[1]
    assert process.returncode == 125


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_without_a_word(broker, number):
    with start(broker, "run", "text", "", "hold") as process:
        broker.next_request()
        process.send_signal(number)
        assert process.communicate(timeout=BOUND_S) == (b"", b"")
        assert process.returncode == -number


def test_a_run_that_waits_catches_no_signal_that_a_wait_could_hide(broker):
    with start(broker, "run", "text", "", "hold") as process:
        broker.next_request()
        with open(f"/proc/{process.pid}/status") as status:
            (caught,) = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
    assert not [number for number in (signal.SIGINT, signal.SIGTERM) if caught >> (number - 1) & 1]


def test_a_reader_that_has_closed_is_no_traceback(broker):
    reader, writer = os.pipe()
    os.close(reader)
    with start(broker, "run", "text", "", "big 1000000", stdout=writer) as process:
        os.close(writer)
        assert process.communicate(timeout=BOUND_S)[1] == b""
    assert process.returncode == 141


def test_a_full_disk_is_told_in_one_line(broker):
    with open("/dev/full", "wb") as full, start(broker, "run", "text", "", "echo hi", stdout=full) as process:
        err = process.communicate(timeout=BOUND_S)[1]
    assert (process.returncode, err) == (74, f"{PREFIX}cannot write: No space left on device\n".encode())


def test_started_by_hand_it_says_so_in_one_line():
    for arguments, environment in (
        (["run", "text", "", "ls"], {}),
        (["run"], {"HTMCP_BROKER_FD": "0"}),
        (["run", "text", "", "ls"], {"HTMCP_BROKER_FD": "9" * 20}),
    ):
        by_hand = subprocess.run(
            [sys.executable, "-I", "-m", "frontend.command_line", *arguments],
            env=environment,
            capture_output=True,
            check=False,
        )
        said = f"{PREFIX}this is a part of the command, which starts it itself\n".encode()
        assert (by_hand.returncode, by_hand.stdout, by_hand.stderr) == (125, b"", said)


def test_a_reason_cannot_forge_a_line_or_move_the_cursor():
    assert command_line.one_line("a\nb\x1b[2J\u202e\u2028é") == "a\\nb\\x1b[2J\\u202e\\u2028é"


def read_until(leader, shown, enough):
    while not enough(shown):
        assert select.select([leader], [], [], BOUND_S)[0]
        shown += os.read(leader, 4096)
    return shown


def test_a_status_line_appears_after_two_seconds_on_a_terminal_only_and_is_cleared(broker):
    leader, follower = pty.openpty()
    started_s = time.monotonic()
    with start(broker, "run", "text", "", "progress", stderr=follower) as process:
        os.close(follower)
        assert broker.next_request().progress is True
        shown = read_until(leader, b"", lambda shown: b"bytes of output" in shown)
        assert time.monotonic() - started_s >= 2
        assert b"20 bytes of output" in shown
        broker.release()
        read_until(leader, shown, lambda shown: shown.endswith(b"\r\x1b[K"))
        assert process.communicate(timeout=BOUND_S)[0] == b"released\n"
    os.close(leader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_clears_the_status_line(broker, number):
    leader, follower = pty.openpty()
    with start(broker, "run", "text", "", "progress", stderr=follower) as process:
        shown = read_until(leader, b"", lambda shown: b"Ctrl-C" in shown)
        process.send_signal(number)
        assert process.wait(BOUND_S) == 128 + number
        read_until(leader, shown, lambda shown: shown.endswith(b"\r\x1b[K"))
    os.close(follower)
    os.close(leader)


def test_without_a_terminal_no_progress_is_asked_for(broker):
    ended(broker, "run", "text", "", "echo hi")
    assert broker.next_request().progress is False


def test_nothing_is_imported_that_one_call_cannot_pay_for(broker):
    _, _, err = ended(broker, "run", "text", "", "echo hi", options=("-X", "importtime"))
    imported = {
        line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith("import time:")
    }
    assert "protocol.bare" in imported
    costly = {
        "msgspec",
        "mcp",
        "asyncio",
        "argparse",
        "re",
        "enum",
        "socket",
        "json",
        "typing",
        "logging",
        "signal",
    }
    assert not imported & costly


def test_the_protocol_s_numbers_that_are_repeated_for_speed_are_the_protocol_s():
    assert command_line.PROTOCOL_VERSION == messages.PROTOCOL_VERSION
    assert min(messages.COMMAND_CHARACTERS, messages.PATH_CHARACTERS) >= command_line.SHORT_CHARACTERS
    refused = {"POLICY_DENIED", "PARSE_ERROR", "CWD_ESCAPE"}
    assert set(command_line.REFUSED) | set(command_line.RAN) <= set(messages.ResultCode)
    assert set(command_line.REFUSED) == refused


def test_the_quick_way_sends_the_same_messages_as_the_real_client():
    quick = command_line.opening("run", "echo hi", "src", progress=True)
    hello, run = (framing.decode_request(body) for body in framing.Frames(1000).feed(quick))
    assert hello.version == messages.PROTOCOL_VERSION
    assert run == RunRequest(1, "echo hi", "src", True)
    slow = command_line.opening("explain", "x" * 5000, None, progress=False)
    _, explain = (framing.decode_request(body) for body in framing.Frames(10_000).feed(slow))
    assert explain == ExplainRequest(1, "x" * 5000)
