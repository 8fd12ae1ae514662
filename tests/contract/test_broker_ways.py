"""The ways to be served without the MCP frontend: a program of one's own, an inherited socket, standard input and output."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol import bare
from tests.faults.bare_client import BROKER, HELLO, BareClient, frame
from tests.support import trail
from tests.support.place import Place

FOREIGN = Path(__file__).parents[1] / "foreign_frontend" / "frontend.js"
BOUND_S = 20.0


def broker(place: Place, *arguments: str, untrusted: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run `hardened-terminal-broker` to its end."""
    return subprocess.run(
        [BROKER, *arguments],
        input=untrusted,
        capture_output=True,
        env=place.environment(),
        cwd=place.folder,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_confined_frontend_in_another_language_is_served(place: Place) -> None:
    ended = broker(place, "--", "node", str(FOREIGN), "echo grüße", "rm x", "cat readme.txt")
    envelopes = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [envelope["code"] for envelope in envelopes] == ["OK", "POLICY_DENIED", "OK"], ended.stderr
    assert [envelope["stdout"] for envelope in envelopes] == ["grüße\n", "", "a small project\n"]
    assert ended.returncode == 1
    assert len(trail.calls(place.trail)) == 5


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
)
def test_the_status_of_the_program_is_handed_on(place: Place, script: str, status: int) -> None:
    assert broker(place, "--", "sh", "-c", script).returncode == status


def test_a_frontend_that_leaves_its_socket_and_ignores_every_request_to_end_is_killed(place: Place) -> None:
    stubborn = "import os, signal; signal.signal(15, signal.SIG_IGN); os.close(3); signal.pause()"
    assert broker(place, "--", sys.executable, "-I", "-c", stubborn).returncode == 137


def test_the_program_has_the_callers_streams_and_no_file_of_the_place(place: Place) -> None:
    script = f"read line; echo got $line $HTMCP_BROKER_FD; read stolen < {place.policy}"
    ended = broker(place, "--", "sh", "-c", script, untrusted=b"a line\n")
    assert ended.stdout == b"got a line 3\n"
    assert b"cannot open" in ended.stderr
    assert ended.returncode != 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--", "no-such-program-anywhere"], 78),
        (["--", "/etc/passwd"], 78),
        (["--fd", "99"], 78),
        (["--fd", "1"], 78),
        (["--fd", "-1"], 78),
        (["--fd", "9" * 20], 78),
        (["--fd", "x"], 2),
        ([], 2),
        (["--stdio", "--fd", "3"], 2),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_said(place: Place, arguments: list[str], status: int) -> None:
    ended = broker(place, *arguments)
    assert ended.returncode == status
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.startswith((b"hardened-terminal-broker: ", b"usage: hardened-terminal-broker "))
    assert ended.stdout == b""


def test_standard_input_and_output_carry_the_protocol(place: Place) -> None:
    request = HELLO + frame("explain", id=1, command="echo hi")
    ended = broker(place, "--stdio", untrusted=request)
    replies = frames(ended.stdout)
    assert [reply["type"] for reply in replies] == ["welcome", "result"]
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
@pytest.mark.parametrize("kind", ["/dev/null", "file"])
def test_a_stream_that_cannot_be_waited_for_is_said_in_one_line(place: Place, closed: str, kind: str) -> None:
    path = kind if kind.startswith("/") else place.folder / "a file"
    with open(path, "w+b") as stream:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, closed: stream}
        ended = subprocess.run(
            [BROKER, "--stdio"],
            **streams,
            stderr=subprocess.PIPE,
            env=place.environment(),
            timeout=BOUND_S,
            check=False,
        )
    said = f"--stdio: {closed} must be a pipe or a socket"
    assert (ended.returncode, ended.stderr.count(b"\n")) == (78, 1), ended.stderr
    assert said.encode() in ended.stderr


def test_a_violation_on_standard_input_has_its_own_status(place: Place) -> None:
    ended = broker(place, "--stdio", untrusted=b"GET / HTTP/1.1\r\n\r\n")
    assert ended.returncode == 76
    assert [reply["type"] for reply in frames(ended.stdout)] == ["refusal"]


def test_the_end_of_standard_input_ends_what_runs_and_leaves_its_outcome(place: Place) -> None:
    ended = broker(place, "--stdio", untrusted=HELLO + frame("run", id=1, command="sh -c 'sleep 300'"))
    assert ended.returncode == 0
    kinds = [(record["record_type"], record.get("code")) for record in trail.calls(place.trail)]
    assert kinds[0][0] == "attempt"
    assert kinds[1] == ("outcome", "EXECUTOR_ERROR")


def test_a_socket_of_the_callers_is_served_and_is_no_descriptor_of_any_command(place: Place) -> None:
    with BareClient(place) as client:
        client.greet()
        assert client.run(1, "echo hi")["stdout"] == "hi\n"
        listing = client.run(2, "sh -c 'for n in 3 4 5 6 7 8 9; do ( : >&$n ) 2>/dev/null && echo $n; done'")
        assert listing["stdout"] == ""


def frames(data: bytes) -> list[dict[str, object]]:
    """Return every message in `data`. Raises AssertionError for half a frame."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        body, data = data[4 : 4 + size], data[4 + size :]
        assert len(body) == size, "half a reply"
        message = bare.unpack(body)
        assert isinstance(message, dict)
        found.append(message)
    return found
