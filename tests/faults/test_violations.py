"""A frontend that breaks the protocol loses its connection, and leaves a record; one that floods it harms nobody."""

import os
import signal
import socket
import time
from pathlib import Path

import msgspec
import pytest

from protocol import bare, framing
from protocol.messages import COMMAND_CHARACTERS
from tests.faults.bare_client import HELLO, BareClient, frame
from tests.support import processes, trail
from tests.support.place import POLICY, Place

EXIT_VIOLATION = 76
"""EX_PROTOCOL of sysexits.h."""
MILLION = 1_000_000
FLOOD_BOUND_S = 30.0


def raw(body: bytes) -> bytes:
    """Return any bytes as a frame."""
    return len(body).to_bytes(4, "big") + body


def ask(**fields: object) -> bytes:
    """Return an explain request with `fields` in the place of its own."""
    return raw(msgspec.msgpack.encode({"type": "explain", "id": 1, "command": "ls"} | fields))


DEEP = b"\x91" * 400_000 + b"\xc0"
VIOLATIONS = {
    "a request before the hello": frame("run", id=1, command="touch forged.txt"),
    "a second hello": HELLO + HELLO,
    "another version": frame("hello", version=2, frontend="x"),
    "no frame at all: HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "an empty frame": HELLO + raw(b""),
    "a frame of one byte": HELLO + raw(b"\xc1"),
    "a frame over the limit": HELLO + (framing.REQUEST_LIMIT_BYTES + 1).to_bytes(4, "big"),
    "a frame of four gigabytes": HELLO + b"\xff\xff\xff\xff",
    "a body cut short": HELLO + raw(bare.pack({"type": "explain", "id": 1, "command": "ls"})[:-1]),
    "a body and more": HELLO + raw(bare.pack({"type": "explain", "id": 1, "command": "ls"}) + b"\xc0"),
    "two keys of one name": HELLO + raw(b"\x83\xa4type\xa6cancel\xa2id\x01\xa5other\x02"),
    "a map without a type": HELLO + raw(bare.pack({"id": 1})),
    "a list": HELLO + raw(b"\x93\x01\x02\x03"),
    "a deep nest": HELLO + raw(DEEP),
    "an array that claims four billion entries": HELLO + raw(b"\xdd\xff\xff\xff\xff"),
    "a string that claims four gigabytes": HELLO
    + raw(b"\x83\xa4type\xa3run\xa2id\x01\xa7command\xdb\xff\xff\xff\xff"),
    "a string that is no UTF-8": HELLO + raw(b"\x83\xa4type\xa7explain\xa2id\x01\xa7command\xa2\xff\xfe"),
    "a forged welcome": HELLO + frame("welcome", version=1, programs=["rm"], in_flight=9),
    "a forged result": HELLO + frame("result", id=1, result={"ok": True, "code": "OK"}),
    "a forged refusal": HELLO + frame("refusal", reason="stop"),
    "an unknown request": HELLO + frame("shutdown", id=1),
    "an unknown field": HELLO + ask(policy="mine"),
    "an id of 0": HELLO + ask(id=0),
    "a negative id": HELLO + ask(id=-1),
    "an id of 2^53 and one": HELLO + ask(id=2**53 + 1),
    "an id that is text": HELLO + ask(id="1"),
    "an id that is a fraction": HELLO + ask(id=1.5),
    "an id that is nothing": HELLO + ask(id=None),
    "a command that is a list": HELLO + ask(command=["ls"]),
    "a command that is too long": HELLO + ask(command="x" * (COMMAND_CHARACTERS + 1)),
    "a replayed request": HELLO + ask() + ask(),
    "an id below the last": HELLO + ask(id=9) + ask(id=8),
    "more in flight than may be": HELLO
    + b"".join(frame("run", id=number, command="sleep 0.4") for number in range(1, 300)),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_violation_ends_the_connection_with_a_record_a_line_and_a_status(place: Place, case: str) -> None:
    with BareClient(place) as client:
        client.send(VIOLATIONS[case])
        last = client.replies_until_end()[-1]
        assert last["type"] == "refusal"
        assert client.status() == EXIT_VIOLATION
        assert "the frontend broke the protocol: " in client.stderr
        assert client.stderr.count("\n") == 1
    (record,) = [each for each in trail.records(place.trail) if each.get("event") == "protocol_violation"]
    assert record["detail"] == last["reason"]
    assert not (place.jail / "forged.txt").exists()


def test_a_violation_kills_what_runs_and_every_attempt_has_its_outcome(place: Place) -> None:
    marker = processes.unique_seconds()
    with BareClient(place) as client:
        client.greet()
        client.send(frame("run", id=1, command=f"sh -c 'setsid sleep {marker} & sleep {marker}'"))
        processes.wait_until_running(marker)
        client.send(b"\0\0\0\0")
        kinds = [reply["type"] for reply in client.replies_until_end()]
        assert client.status() == EXIT_VIOLATION
        processes.wait_until_nothing_left(marker, bound_s=1.0)
    assert kinds == ["refusal"]
    assert [each["record_type"] for each in trail.calls(place.trail)] == ["attempt", "outcome"]


@pytest.mark.parametrize("word", ["\x1b]0;title\x07\x1b[31m", "line\nhardened-terminal-mcp: forged line"])
def test_what_a_frontend_sends_cannot_forge_a_line_for_the_operator(place: Place, word: str) -> None:
    with BareClient(place) as client:
        client.send(HELLO + ask(**{word: 1}))
        client.replies_until_end()
        client.status()
        (line,) = client.stderr.splitlines()
        assert line.isprintable()
        assert len(line) < 500
    assert [each["event"] for each in trail.records(place.trail)] == ["start", "protocol_violation"]


def test_a_million_cancels_are_taken_in_bounded_time_and_the_next_request_is_answered(place: Place) -> None:
    with BareClient(place) as client:
        client.greet()
        waiting = b"".join(frame("run", id=number, command="sleep 0.3") for number in range(1, 200))
        client.send(waiting)
        since = time.monotonic()
        many = frame("cancel", id=2**40) * 10_000
        for _ in range(MILLION // 10_000):
            client.send(many)
        client.send(frame("cancel", id=199) + frame("explain", id=1000, command="ls"))
        assert client.result(1000)["code"] == "OK"
        assert time.monotonic() - since < FLOOD_BOUND_S
        assert processes.peak_memory_bytes(client.pid) < 64 * 1024 * 1024


@pytest.mark.parametrize("kind", ["describe", "malformed"])
def test_a_frontend_that_does_not_read_its_replies_cannot_make_the_memory_grow(
    tmp_path: Path, kind: str
) -> None:
    names = ", ".join(f'"a-program-that-is-not-installed-{number}"' for number in range(150))
    place = Place(tmp_path, POLICY.replace("allow = [", f"allow = [{names},"))  # a description of kilobytes
    fields = {} if kind == "describe" else {"tool": "run_command", "arguments": "", "problem": "x" * 1000}
    flood = b"".join(frame(kind, id=number, **fields) for number in range(1, 20_000))
    with BareClient(place) as client:
        client.greet()
        before = processes.peak_memory_bytes(client.pid)
        taken = client.send_what_is_taken(flood)
        assert taken < len(flood), "the broker does not push back"
        assert processes.peak_memory_bytes(client.pid) - before < 8 * 1024 * 1024
        client.send_what_is_taken(b"")
        assert client.reply()["id"] == 1, "nothing is lost for one that reads at last"


def test_the_longest_commands_in_flight_cost_bounded_memory(place: Place) -> None:
    words = " ".join("\U0001f512" * 15_000 for _ in range(4))
    with BareClient(place) as client:
        client.greet()
        client.send(b"".join(frame("run", id=number, command="sh -c 'sleep 15'") for number in range(1, 9)))
        for number in range(9, 150):
            client.send(frame("run", id=number, command=f"echo {words}"))
        codes = [client.reply()["result"]["code"] for _ in range(100)]
        assert set(codes) == {"EXECUTOR_ERROR"}, "they are refused while the others wait"
        assert processes.peak_memory_bytes(client.pid) < 60 * 1024 * 1024
        client.socket.close()
        client.status()


def test_signals_are_heard_while_a_frontend_floods_and_does_not_read(place: Place) -> None:
    flood = b"".join(frame("describe", id=number) for number in range(1, 20_000))
    with BareClient(place) as client:
        client.greet()
        client.send_what_is_taken(flood)
        client.signal(signal.SIGTERM)
        assert client.status() == 0


def test_signals_are_heard_between_requests_that_take_long_to_judge(place: Place) -> None:
    for number in range(39):  # out of the jail and back, by as many names as a link can hold
        (place.jail / f"L{number}").symlink_to(f"../{place.jail.name}/{'d/../' * 800}L{number + 1}")
    (place.jail / "d").mkdir()
    with BareClient(place) as client:
        client.greet()
        client.send(b"".join(frame("explain", id=number, command="cat L0/x") for number in range(1, 61)))
        assert "too long a search" in client.result(1)["policy_reason"]
        client.signal(signal.SIGTERM)
        assert len(client.replies_until_end()) < 30
        assert client.status() == 0


def test_descriptors_that_are_sent_along_are_dropped(place: Place) -> None:
    with BareClient(place) as client, (place.jail / "readme.txt").open() as file:
        client.greet()
        before = _descriptors(client.pid)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, file.fileno().to_bytes(4, "little"))
        for number in range(1, 50):
            client.socket.sendmsg([frame("explain", id=number, command="ls")], [rights])
        assert client.result(49)["code"] == "OK"
        # what the broker has ready for the next run may have come meanwhile
        assert _descriptors(client.pid) < before + 25


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        pytest.skip("the broker cannot be inspected by its own user: only root sees its descriptors")


def test_half_a_frame_at_the_end_is_no_violation(place: Place) -> None:
    with BareClient(place) as client:
        client.greet()
        client.send(frame("run", id=1, command="touch half.txt")[:-1])
        client.socket.close()
        assert client.status() == 0
    assert not (place.jail / "half.txt").exists()
    assert [each.get("event") for each in trail.records(place.trail)] == ["start"]


def test_a_frame_of_the_longest_length_is_served_byte_by_byte(place: Place) -> None:
    longest = frame("explain", id=1, command="echo " + "\U0001f512" * (COMMAND_CHARACTERS - 5))
    with BareClient(place) as client:
        client.greet()
        for byte in longest[:40]:
            client.send(bytes([byte]))
        client.send(longest[40:])
        assert client.result(1)["ok"] in (True, False)


def test_a_broker_keeps_no_descriptor_that_a_program_could_inherit(place: Place) -> None:
    with BareClient(place) as client:
        client.greet()
        client.run(1, "true")
        folder = Path(f"/proc/{client.pid}/fdinfo")
        try:
            numbers = [int(each.name) for each in folder.iterdir()]
        except PermissionError:
            pytest.skip("the broker cannot be inspected by its own user: only root sees its descriptors")
        inheritable = [fd for fd in numbers if not _close_on_exec(folder / str(fd))]
        assert set(inheritable) <= {0, 1, 2}


def _close_on_exec(info: Path) -> bool:
    (flags,) = [line.split()[1] for line in info.read_text().splitlines() if line.startswith("flags:")]
    return bool(int(flags, 8) & 0o2000000)  # O_CLOEXEC as proc_pid_fdinfo(5) shows it
