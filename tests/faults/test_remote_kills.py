"""With the broker elsewhere three processes hold together: whoever dies, and whenever, nothing is left on either side."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bare_client import BROKER
from tests.faults.hooked_run import check_fresh_start
from tests.support import processes
from tests.support.command import COMMAND, run_cli
from tests.support.place import Place
from tests.support.raw_client import RawClient
from tests.support.waiting import eventually

BOUND_S = 15.0
ELSEWHERE = {"HTMCP_BROKER": f"{BROKER} --stdio"}
"""A broker of its own, reached as one beyond ssh is."""
HERE: dict[str, str] = {}
MOMENTS_S = [step * 0.02 for step in range(10)]
"""Counted from the first line of ours: a start takes about a tenth of a second."""
_GROUP, _CAUGHT = 2, "SigCgt:"


class Run:
    """A run that would take five minutes, and whatever belongs to it."""

    def __init__(self, place: Place, settings: dict[str, str]) -> None:
        self.marker = processes.unique_seconds()
        self.process = subprocess.Popen(
            [COMMAND, "run", f"sh -c 'setsid sleep {self.marker} & sleep {self.marker}'"],
            env=place.environment(**settings),
            cwd=place.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        eventually(self._listens, "it has come to a line of ours")

    def _listens(self) -> bool:
        """Whether signals are ours: Python itself never catches SIGTERM."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (caught,) = [int(line.split()[1], 16) for line in lines if line.startswith(_CAUGHT)]
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def left(self) -> list[int]:
        """Return who lives: in the command's process group, or with the marker in its command line."""
        return [
            pid
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if processes.alive(pid)
            and (
                _group(pid) == self.process.pid or any(self.marker in w for w in processes.command_line(pid))
            )
        ]

    def one(self, who: str) -> int:
        """Return the process id of the launcher, its frontend or its carrier."""
        if who == "launcher":
            return self.process.pid
        (pid,) = [
            pid
            for pid in processes.children(self.process.pid)
            if ("-I" in processes.command_line(pid)) is (who == "frontend")
        ]
        return pid

    def end(self) -> tuple[int, str]:
        """Wait until nothing is left. Returns the status and what was said."""
        said = self.process.communicate(timeout=BOUND_S)[1].decode()
        eventually(lambda: not self.left(), "nothing is left")
        return self.process.returncode, said


def _group(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[_GROUP])
    except OSError:
        return None


@contextlib.contextmanager
def started(place: Place, settings: dict[str, str]) -> Iterator[Run]:
    """Yield a run; whatever fails, none of it outlives the block."""
    run = Run(place, settings)
    try:
        yield run
    finally:
        for pid in run.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.process.communicate()


@pytest.mark.parametrize("settings", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_a_run_with_its_status_and_leaves_nothing(
    place: Place, settings: dict[str, str], number: signal.Signals
) -> None:
    for moment_s in MOMENTS_S:
        with started(place, settings) as run:
            threading.Event().wait(moment_s)
            os.kill(run.process.pid, number)
            assert run.end() == (128 + number, ""), f"after {moment_s} s"
    check_fresh_start(place)


@pytest.mark.parametrize("moment_s", [0.0, 0.03, 0.06, 0.1, None], ids=str)
def test_a_launcher_that_is_killed_takes_its_frontend_its_carrier_and_the_command_with_it(
    place: Place, moment_s: float | None
) -> None:
    with started(place, ELSEWHERE) as run:
        if moment_s is None:
            processes.wait_until_running(run.marker)
        else:
            threading.Event().wait(moment_s)
        run.process.kill()
        assert run.end()[0] == -signal.SIGKILL
    check_fresh_start(place)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("who", ["launcher", "frontend", "carrier"])
def test_whoever_dies_while_a_command_runs_beyond_ends_the_others(
    place: Place, who: str, number: signal.Signals
) -> None:
    with started(place, ELSEWHERE) as run:
        processes.wait_until_running(run.marker)
        os.kill(run.one(who), number)
        status, said = run.end()
    if who == "launcher":
        assert status in (128 + number, -number)
    elif who == "frontend":
        assert (status, said) == (128 + number, "")
    else:  # one that dies has no last word, one that ends in order answers
        assert status == 125
        assert said.count("\n") == 1
    check_fresh_start(place)


@pytest.mark.parametrize("who", ["launcher", "frontend"])
def test_an_mcp_client_whose_launcher_or_frontend_is_killed_leaves_nothing_that_runs_beyond(
    place: Place, who: str
) -> None:
    marker = processes.unique_seconds()
    with RawClient(place, **ELSEWHERE) as client:
        client.initialize()
        client.start("run_command", {"command": f"sh -c 'setsid sleep {marker} & sleep {marker}'"})
        processes.wait_until_running(marker)
        here = processes.descendants(client.pid)
        os.kill(client.pid if who == "launcher" else client.frontend_pid(), signal.SIGKILL)
        processes.wait_until_nothing_left(marker)
        client.close_input()
        client.ended()
        eventually(lambda: not any(map(processes.alive, here)), "frontend and carrier have ended")
    check_fresh_start(place)


def test_a_frontend_that_is_stopped_ends_too(place: Place) -> None:
    with started(place, ELSEWHERE) as run:
        processes.wait_until_running(run.marker)
        frontend = run.one("frontend")
        os.kill(frontend, signal.SIGSTOP)
        os.kill(run.process.pid, signal.SIGINT)
        eventually(lambda: not processes.alive(frontend), "the frontend has ended")
        assert run.end() == (130, "")


def test_a_carrier_that_takes_no_request_to_end_is_killed(place: Place) -> None:
    deaf = "sh -c 'trap \"\" INT TERM; while :; do sleep 0.05; done'"
    with started(place, {"HTMCP_BROKER": deaf}) as run:
        eventually(lambda: len(processes.children(run.process.pid)) > 1, "both have started")
        os.kill(run.process.pid, signal.SIGINT)
        assert run.end() == (130, "")


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("true", 0),
        ("false", 1),
        ("sh -c 'exit 78'", 78),
        ("sh -c 'kill -9 $$'", 137),
    ],
)
def test_a_carrier_that_ends_before_a_word_is_one_line_that_says_how(
    place: Place, command: str, how: int
) -> None:
    line = f"hardened-terminal-mcp: no broker answered (`{command.partition(' ')[0]}` ended with {how})\n"
    assert run_cli(place, "run", "echo hi", HTMCP_BROKER=command) == (125, "", line)
    assert run_cli(place, HTMCP_BROKER=command) == (70, "", line)
