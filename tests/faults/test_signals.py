"""Signals, stopped processes and clients that stop reading: each is answered, and none of them hangs the others."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bare_client import BareClient, frame
from tests.faults.hooked_run import BOUND_S, Fault, HookedRun, check_fresh_start, operate
from tests.support import processes, trail
from tests.support.place import POLICY, Place
from tests.support.raw_client import RawClient, envelope_in
from tests.support.waiting import eventually

WAITS = "sh -c 'echo begun > begun; while [ ! -e go ]; do sleep 0.02; done; echo INT-1234'"
PATTERN = '\n[redaction]\nextra_patterns = [{ name = "internal", regex = "INT-[0-9]{4}" }]\n'
STOPPED_S = 5.0
"""A frontend that is stopped does not answer SIGTERM: the broker waits for it a little, then kills it."""


@pytest.fixture
def client(place: Place) -> Iterator[BareClient]:
    with BareClient(place) as connected:
        connected.greet()
        yield connected


def hang_up(client: BareClient, said: str) -> None:
    """Send SIGHUP, and wait until it was acted upon: by a line on stderr, or by a record."""
    client.signal(signal.SIGHUP)
    where = client.place.trail
    eventually(lambda: said in client.stderr or (where.exists() and said in where.read_text()), said)


# SIGHUP: the policy as it stands now


def test_a_reload_takes_the_policy_as_it_stands_now(client: BareClient) -> None:
    client.place.policy.write_text(POLICY.replace('"cat", ', ""))
    hang_up(client, "is in force")
    assert client.run(1, "cat readme.txt")["code"] == "POLICY_DENIED"
    assert client.run(2, "echo hi")["stdout"] == "hi\n"
    said = f"hardened-terminal-mcp: reloaded: policy {client.place.policy} is in force as it stands now\n"
    assert client.stderr == said


BAD = {
    "missing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "no TOML": lambda path: path.write_text("allow = [\n"),
    "no UTF-8": lambda path: path.write_bytes(b'x = "\xff"'),
    "an unknown key": lambda path: path.write_text(POLICY + "\n[surprise]\nx = 1\n"),
    "an invalid regex": lambda path: path.write_text(POLICY + PATTERN.replace("INT-", "INT-(")),
    "a failing test": lambda path: path.write_text(
        POLICY + '\n[[tests]]\ncommand = "rm x"\nexpect = "allow"\n'
    ),
    "writable by all": lambda path: path.chmod(0o666),
    "huge": lambda path: path.write_bytes(b"#" * (5 << 20)),
    "nested without end": lambda path: path.write_text("x = " + "[" * 100_000),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_policy_leaves_the_old_one_in_force_and_says_so(client: BareClient, case: str) -> None:
    BAD[case](client.place.policy)
    hang_up(client, "the old policy stays in force")
    assert client.run(1, "cat readme.txt")["stdout"] == "a small project\n"
    assert client.run(2, "rm readme.txt")["code"] == "POLICY_DENIED"
    (line,) = client.stderr.splitlines()
    assert line.isprintable()


def test_a_call_in_flight_keeps_the_policy_that_let_it_in(tmp_path: Path) -> None:
    limited = POLICY.replace("concurrent = 8", "concurrent = 1")
    place = Place(tmp_path, limited + PATTERN)
    with BareClient(place) as client:
        client.greet()
        client.send(frame("run", id=1, command=WAITS) + frame("run", id=2, command="sh -c 'echo INT-5678'"))
        eventually((place.jail / "begun").exists, "the command runs")
        place.policy.write_text(limited.replace('deny = ["rm",', 'deny = ["rm", "sh",'))
        hang_up(client, "is in force")
        (place.jail / "go").touch()
        assert client.result(1)["stdout"] == "[REDACTED:internal]\n"
        assert client.result(2)["stdout"] == "[REDACTED:internal]\n"
        assert client.run(3, "sh -c true")["code"] == "POLICY_DENIED"
        assert client.run(4, "echo INT-1234")["stdout"] == "INT-1234\n"
    digests = {record["policy_sha256"] for record in trail.about(place.trail, "sh -c 'echo")}
    assert len(digests) == 1


def test_a_hundred_reloads_leave_a_whole_chain_and_no_descriptor_or_thread(client: BareClient) -> None:
    client.run(1, "true")
    before = held_by(client.pid)
    for number in range(2, 102):
        client.signal(signal.SIGHUP)
        client.send(frame("explain", id=number, command="ls"))
        client.result(number)
    waiting = 2  # threads that wait for a command, each with a descriptor
    eventually(
        lambda: all(now <= then + waiting for now, then in zip(held_by(client.pid), before, strict=True)),
        "nothing is held by what was reloaded",
    )
    operate(client.place, "audit", "verify")


def held_by(pid: int) -> tuple[int, int]:
    """Return how many descriptors and threads `pid` has."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
    except PermissionError:
        pytest.skip("the broker cannot be inspected by its own user: only root sees its descriptors")


# Signals that end, and one that must not


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_runs_with_an_answer_and_an_outcome(
    client: BareClient, number: signal.Signals
) -> None:
    marker = processes.unique_seconds()
    client.send(frame("run", id=1, command=f"sh -c 'setsid sleep {marker} & sleep {marker}'"))
    processes.wait_until_running(marker)
    client.signal(number)
    assert client.result(1)["code"] == "EXECUTOR_ERROR"
    assert client.status() == 0
    processes.wait_until_nothing_left(marker, bound_s=1.0)
    check_fresh_start(client.place)


def test_a_broken_pipe_signal_changes_nothing(client: BareClient) -> None:
    client.signal(signal.SIGPIPE)
    assert client.run(1, "echo hi")["stdout"] == "hi\n"


# Stopped processes


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def idle_run(place: Place) -> tuple[HookedRun, int]:
    """Return a broker whose frontend has had its answers, and the frontend's process id."""
    run = HookedRun(place, Fault("none"))
    assert run.answered.wait(BOUND_S)
    (frontend,) = [pid for pid in processes.children(run.process.pid) if "-I" in processes.command_line(pid)]
    return run, frontend


def test_a_stopped_frontend_does_not_keep_the_broker_from_ending(place: Place) -> None:
    run, frontend = idle_run(place)
    with stopped(frontend):
        os.kill(run.process.pid, signal.SIGTERM)
        run.process.wait(STOPPED_S)
    run.finish()
    eventually(lambda: not processes.alive(frontend), "it has ended", bound_s=1.0)


def test_a_stopped_broker_that_is_killed_leaves_nothing(place: Place) -> None:
    run, frontend = idle_run(place)
    with stopped(run.process.pid):
        run.process.kill()
        run.process.wait(BOUND_S)
        run.finish()
    eventually(lambda: not processes.alive(frontend), "it has ended", bound_s=1.0)
    check_fresh_start(place)


def test_a_broker_that_was_stopped_goes_on_where_it_was(client: BareClient) -> None:
    client.send(frame("run", id=1, command=WAITS))
    eventually((client.place.jail / "begun").exists, "the command runs")
    with stopped(client.pid):
        (client.place.jail / "go").touch()
        client.send(frame("explain", id=2, command="ls"))
    assert {client.reply()["id"], client.reply()["id"]} == {1, 2}


# An MCP client that stops reading, and one that is gone


def test_a_client_that_stops_reading_costs_bounded_memory_and_loses_nothing(place: Place) -> None:
    calls = 200
    (place.jail / "filler.txt").write_text("x" * 20_000)
    with RawClient(place) as client:
        client.initialize()
        ids = [client.start("run_command", {"command": "head -c 15000 filler.txt"}) for _ in range(calls)]
        frontend = client.frontend_pid()
        answered = {client.message()["id"]}
        assert processes.peak_memory_bytes(client.pid) < 64 * 1024 * 1024
        assert processes.peak_memory_bytes(frontend) < 128 * 1024 * 1024
        while len(answered) < calls:
            answered.add(client.message()["id"])
        assert answered == set(ids)


def test_a_client_that_is_gone_while_it_owed_reading_leaves_nothing(place: Place) -> None:
    marker = processes.unique_seconds()
    (place.jail / "filler.txt").write_text("x" * 20_000)
    with RawClient(place) as client:
        client.initialize()
        for _ in range(50):
            client.start("run_command", {"command": "head -c 15000 filler.txt"})
        client.start("run_command", {"command": f"sh -c 'setsid sleep {marker} & sleep {marker}'"})
        processes.wait_until_running(marker)
        frontend = client.frontend_pid()
        client.vanish()
        client.ended()
        processes.wait_until_nothing_left(marker, bound_s=1.0)
        eventually(lambda: not processes.alive(frontend), "it has ended", bound_s=1.0)
    check_fresh_start(place)


@pytest.mark.parametrize("calls", [1, 16])
def test_an_mcp_client_gets_an_envelope_for_each_call_when_the_broker_is_killed(
    place: Place, calls: int
) -> None:
    marker = processes.unique_seconds()
    with RawClient(place) as client:
        client.initialize()
        ids = {client.start("run_command", {"command": f"sh -c 'sleep {marker}'"}) for _ in range(calls)}
        processes.wait_until_running(marker)
        os.kill(client.pid, signal.SIGKILL)
        answers = [client.message() for _ in range(calls)]
        assert {answer["id"] for answer in answers} == ids
        assert {envelope_in(answer).code for answer in answers} == {"INTERNAL_ERROR"}
        processes.wait_until_nothing_left(marker, bound_s=1.0)
        assert (
            envelope_in(client.answer(client.start("run_command", {"command": "true"}))).code
            == "INTERNAL_ERROR"
        )
        client.close_input()
        assert client.rest() == b""
    check_fresh_start(place)
