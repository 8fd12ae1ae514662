"""Calls never reach each other, and nothing outlives its call: not by leaving its session, its group or its parent."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.messages import CommandResult
from tests.adversarial.cage import Cage
from tests.adversarial.calls import Calls
from tests.adversarial.identity import Identity
from tests.adversarial.policies import quoted
from tests.support import processes
from tests.support.waiting import eventually

PROGRAMS = Path(__file__).parent / "programs"
_HOLDER = """
import os
open(os.environ["TMPDIR"] + "/private", "w").write("x")
print("up", flush=True)
open("go").read()
"""
_GO = 'python3 -c \'open("go", "w")\''
"""Lets the holder end: it waits for who opens the other end of a fifo."""
POLICY = f"""
[commands]
allow = ["python3"]

[limits]
timeout_s = 20
processes = 2000

[audit]
durability = "os"

[environment]
path = {quoted(["/usr/bin", "/bin"])}

[rules.python3]
arguments = "any"
writes = true
temporary = true
may_run = ["sleep"]
"""
BRIEF = POLICY.replace("timeout_s = 20", "timeout_s = 1")


def _prepared(policy: str, identity: Identity) -> Cage:
    cage = Cage(policy, identity)
    for name in ("daemon.py", "neighbour.py"):
        shutil.copy(PROGRAMS / name, cage.jail / name)
    (cage.jail / "holder.py").write_text(_HOLDER)
    os.mkfifo(cage.jail / "go")
    cage.give_jail()
    return cage


@pytest.fixture
def calls(identity: Identity) -> Iterator[Calls]:
    with _prepared(POLICY, identity) as cage, Calls(cage.client) as connected:
        yield connected


@pytest.fixture
def brief_calls(identity: Identity) -> Iterator[Calls]:
    with _prepared(BRIEF, identity) as cage, Calls(cage.client) as connected:
        yield connected


def test_one_call_cannot_reach_another(calls: Calls) -> None:
    marker = processes.unique_seconds()
    held = calls.start(f"python3 holder.py {marker}")
    processes.wait_until_running(marker)
    (pid,) = processes.marked(marker)
    folder = processes.environment(pid)["TMPDIR"]
    eventually(lambda: os.path.exists(f"{folder}/private"), "the neighbour's file")
    answer = calls.run(f"python3 neighbour.py {pid} {folder}")
    assert answer.stdout.splitlines() == ["tried"], answer
    assert processes.alive(pid)
    assert calls.run(_GO).code == "OK"
    ended = calls.result(held)
    assert (ended.code, ended.exit_code, ended.stdout) == ("OK", 0, "up\n")
    assert not os.path.exists(folder)


def _start_daemons(calls: Calls) -> tuple[int, str]:
    """Start a call that stays with its daemons; return it and their marker."""
    marker = processes.unique_seconds()
    held = calls.start(f"python3 daemon.py stay {marker}")
    eventually(lambda: len(processes.marked(marker)) >= 4, "daemons")
    return held, marker


def test_the_end_of_one_call_leaves_the_others_daemons_alone(calls: Calls) -> None:
    held, marker = _start_daemons(calls)
    assert calls.run("python3 -c 'print(1)'").stdout == "1\n"
    assert len(processes.marked(marker)) >= 4
    calls.cancel(held)
    calls.result(held)
    processes.wait_until_nothing_left(marker)


def _outlived_by_nothing(calls: Calls, how: str) -> CommandResult:
    """Run a call that leaves daemons behind; return its end after theirs."""
    marker = processes.unique_seconds()
    answer = calls.run(f"python3 daemon.py {how} {marker}")
    assert answer.stdout == "left\n", answer
    processes.wait_until_nothing_left(marker)
    return answer


def test_daemons_die_with_the_end_of_their_call(calls: Calls) -> None:
    assert _outlived_by_nothing(calls, "leave").code == "OK"


def test_a_call_ends_though_a_child_holds_its_output(calls: Calls) -> None:
    answer = _outlived_by_nothing(calls, "hold")
    assert answer.code == "OK"
    assert answer.duration_ms < 5_000


def test_daemons_die_at_the_timeout(brief_calls: Calls) -> None:
    assert _outlived_by_nothing(brief_calls, "stay").code == "TIMEOUT"


def test_daemons_die_when_their_call_is_cancelled(calls: Calls) -> None:
    held, marker = _start_daemons(calls)
    calls.cancel(held)
    assert calls.result(held).exit_code is None
    processes.wait_until_nothing_left(marker)


def _die_with(identity: Identity, end: Callable[[Cage], None]) -> None:
    """Let `end` end a broker whose command has daemons, and see them die."""
    with _prepared(POLICY, identity) as cage:
        _, marker = _start_daemons(Calls(cage.client))
        end(cage)
        processes.wait_until_nothing_left(marker)


def test_daemons_die_when_the_frontend_goes_away(identity: Identity) -> None:
    _die_with(identity, Cage.hang_up)


def test_daemons_die_with_the_broker_when_it_is_killed(identity: Identity) -> None:
    _die_with(identity, lambda cage: os.kill(cage.pid, signal.SIGKILL))
