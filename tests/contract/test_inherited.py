"""What a start inherits from whoever starts it: signals that are ignored or blocked, a umask, and that no thread is to be had."""

import signal
import stat
import subprocess
import sys

import pytest

from tests.support.command import BOUND_S, COMMAND, EX_CONFIG
from tests.support.place import Place
from tests.support.waiting import eventually

BEFORE = "import os, signal, sys\n{}\nos.execv(sys.argv[1], sys.argv[1:])"
IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])"
WAITS = "sh -c 'echo begun > begun; sleep 60'"
WITHOUT_A_THREAD = """
import _thread, itertools, sys
start, counted = _thread.start_new_thread, itertools.count()
def start_new_thread(*how):
    if next(counted) == {}:
        raise RuntimeError("can't start new thread")
    return start(*how)
_thread.start_new_thread = start_new_thread
from broker.main import hardened_terminal_mcp
hardened_terminal_mcp()
"""
NO_THREAD = """
import _thread
_thread.stack_size(1 << 46)
from broker.main import hardened_terminal_mcp
hardened_terminal_mcp()
"""
THREADS = 14
"""So many has a run at most, some of them at once."""


def python(place: Place, code: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Run `code` with `arguments`, and return its end."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=place.environment(),
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [("run", "echo hi"), ("explain", "ls"), ("doctor",), ("serve",)], ids=" ".join
)
def test_a_caller_that_ignores_the_end_of_its_children_changes_nothing(
    place: Place, arguments: tuple[str, ...]
) -> None:
    ended = python(place, BEFORE.format(IGNORED), COMMAND, *arguments)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_the_caller_had_blocked_ends_a_run(place: Place, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BEFORE.format(BLOCKED), COMMAND, "run", WAITS],
        env=place.environment(),
        stdin=subprocess.DEVNULL,
    ) as process:
        try:
            eventually((place.jail / "begun").exists, "the command runs")
            process.send_signal(number)
            assert process.wait(BOUND_S) == 128 + number
        finally:
            process.kill()


@pytest.mark.parametrize("umask", [0o000, 0o277, 0o777], ids=oct)
def test_whatever_the_umask_what_is_made_is_for_its_owner_alone_who_can_use_it(
    place: Place, umask: int
) -> None:
    own = place.folder / "own.toml"
    for arguments in (("run", "echo hi"), ("trust", str(place.policy)), ("init", "--output", str(own))):
        ended = python(place, BEFORE.format(f"os.umask({umask})"), COMMAND, *arguments)
        assert (ended.returncode, ended.stderr) == (0, b"")
    made = [path for top in ("state", "config") for path in (place.folder / top).rglob("*")]
    assert {"home", "trusted"} <= {path.name for path in made}
    for path in (place.folder / "state", place.folder / "config", *made, place.trail, own):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("which", range(THREADS))
def test_whichever_thread_cannot_be_had_a_run_ends_in_time_and_says_why(place: Place, which: int) -> None:
    ended = python(place, WITHOUT_A_THREAD.format(which), "run", "echo hi")
    assert (ended.returncode, ended.stdout) in ((0, b"hi\n"), (EX_CONFIG, b""), (125, b"")), ended
    assert ended.stderr.count(b"\n") == (ended.returncode != 0), ended.stderr
    assert b"internal error" not in ended.stderr


@pytest.mark.parametrize("verb", ["run", "doctor"])
def test_where_no_thread_can_be_had_at_all_a_start_is_refused(place: Place, verb: str) -> None:
    ended = python(place, NO_THREAD, *(("run", "echo hi") if verb == "run" else ("doctor",)))
    assert (ended.returncode, ended.stdout) == (EX_CONFIG, b"")
    assert b"as many threads or as much memory as it may have" in ended.stderr


def test_doctor_says_where_a_limit_lets_no_frontend_start(place: Place) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))"
    assert python(place, BEFORE.format(few), COMMAND, "run", "echo hi").returncode == EX_CONFIG
    ended = python(place, BEFORE.format(few), COMMAND, "doctor")
    assert ended.returncode == 1
    assert b"cannot be started" in ended.stdout
