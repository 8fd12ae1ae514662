"""Attempts without outcome, and what a broker that died leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.audit import Trail
from broker.refusal import StartupError
from tests.support.opened_trail import CALM, a_call, open_trail, records, run, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def _die(trail: Trail) -> None:
    """Let go of the files, as the kernel does for a process that is killed once its last thread has left it.

    A sync under way keeps the session's lock even after close(2): it is let to end first.
    """
    trail._chain.commit.flush()
    trail._chain.close()


def test_an_attempt_of_a_dead_broker_gets_its_outcome_at_the_next_start(path: Path) -> None:
    dead = open_trail(path)
    call = a_call("make all")
    dead.attempt(call)
    _die(dead)
    open_trail(path).close()
    outcome = records(path)[-1]
    assert (
        outcome.items()
        >= {
            "record_type": "outcome",
            "event_id": call.event_id,
            "code": "INTERNAL_ERROR",
            "command_raw": "make all",
            "argv": ["make", "all"],
            "cwd": "src",
            "oldest_open": None,
        }.items()
    )
    assert "before the outcome" in outcome["policy_reason"]
    assert verified(path).sound


def test_an_attempt_of_a_living_broker_is_left_open(path: Path) -> None:
    living = open_trail(path)
    call = a_call()
    living.attempt(call)
    other = open_trail(path)
    run(other)
    assert [r["record_type"] for r in records(path)] == ["attempt", "attempt", "outcome"]
    assert records(path)[-1]["oldest_open"] == 1
    living.outcome(call, CALM)
    assert records(path)[-1]["oldest_open"] is None
    for trail in (living, other):
        trail.close()


def test_only_the_dead_of_several_brokers_is_closed(path: Path) -> None:
    living, dead = open_trail(path), open_trail(path)
    calls = [a_call(), a_call()]
    living.attempt(calls[0])
    dead.attempt(calls[1])
    _die(dead)
    open_trail(path).close()
    assert [r["event_id"] for r in records(path)[2:]] == [calls[1].event_id]
    living.close()


def test_attempts_in_rotated_files_are_found(path: Path) -> None:
    dead, living = open_trail(path), open_trail(path)
    calls = [a_call("dead"), a_call("living")]
    dead.attempt(calls[0])
    living.attempt(calls[1])
    other = open_trail(path)
    for _ in range(3):
        run(other)
        other.rotate()
    _die(dead)
    open_trail(path).close()
    closed = [r for r in records(path) if r.get("code") == "INTERNAL_ERROR"]
    assert [(r["event_id"], r["command_raw"]) for r in closed] == [(calls[0].event_id, "dead")]
    living.outcome(calls[1], CALM)
    assert records(path)[-1]["oldest_open"] is None
    assert verified(path).sound
    for trail in (living, other):
        trail.close()


def test_a_running_broker_closes_what_another_left_when_it_writes_on(path: Path) -> None:
    living, dead = open_trail(path), open_trail(path)
    dead.attempt(a_call("left"))
    _die(dead)
    for _ in range(150):
        living.outcome(a_call(), CALM)
        run(living)
    living.close()
    assert [r["command_raw"] for r in records(path) if r.get("code") == "INTERNAL_ERROR"] == ["left"]
    assert records(path)[-1]["oldest_open"] is None


def test_a_torn_last_line_is_set_aside_and_said(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    torn = b'{"seq":3,"ts":"2026-'
    with path.open("ab") as file:
        file.write(torn)
    said: list[str] = []
    trail = open_trail(path, said.append)
    run(trail)
    trail.close()
    assert Path(f"{path}.torn").read_bytes() == torn + b"\n"
    assert any("torn" in line for line in said)
    assert [r.get("event") for r in records(path)] == [None, None, "torn", None, None]
    assert verified(path).sound


def test_a_running_broker_sets_aside_what_a_killed_one_left_torn(path: Path) -> None:
    living = open_trail(path)
    run(living)
    with path.open("ab") as file:
        file.write(b'{"seq":3,')
    run(living)
    living.close()
    assert [r.get("event") for r in records(path)] == [None, None, "torn", None, None]
    assert verified(path).sound


def test_zeros_that_a_crash_left_at_the_end_are_set_aside(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    with path.open("ab") as file:
        file.write(b"\0" * 5000)
    trail = open_trail(path)
    run(trail)
    trail.close()
    assert verified(path).sound


def test_a_file_that_holds_only_a_torn_line_becomes_a_trail(path: Path) -> None:
    path.write_bytes(b'{"seq":1,"ts"')
    path.chmod(0o600)
    trail = open_trail(path)
    run(trail)
    trail.close()
    assert verified(path).sound


def test_a_start_reads_only_what_stands_last(path: Path) -> None:
    trail = open_trail(path, durability="os")
    for _ in range(1500):
        run(trail)
    trail.close()
    size = path.stat().st_size
    assert size > 1_500_000
    with path.open("r+b") as file:  # a far tail is not read: a hole there stays unseen by a start
        file.seek(size // 4)
        file.write(b"#")
    trail = open_trail(path)
    trail.close()
    assert not verified(path).sound


HOLDER = """
import os, sys
from broker.audit_file import TrailFile
file = TrailFile.open(sys.argv[1], create=False)
file.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_broker_killed_while_it_holds_the_lock_blocks_nobody(path: Path) -> None:
    trail = open_trail(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
        run(trail)
    trail.close()


def test_a_process_that_keeps_the_lock_makes_the_trail_unavailable_not_the_broker_hang(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.audit_file.LOCK_WAIT_S", 0.1)
    open_trail(path).close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(StartupError, match="locked"):
            open_trail(path)
        holder.kill()
