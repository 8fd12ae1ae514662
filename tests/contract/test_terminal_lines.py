"""What a person sees who starts the command on a terminal: one line that says what goes on, never a second of the same."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable

import pytest

from tests.faults.bare_client import BROKER
from tests.support.command import COMMAND
from tests.support.place import Place
from tests.support.processes import unique_seconds, wait_until_nothing_left, wait_until_running

COLUMNS = 40
BOUND_S = 20.0


def shown(place: Place, arguments: list[str], enough: Callable[[bytes], bool]) -> bytes:
    """Return what the command shows on a narrow terminal until it is `enough`, or the command ends; then it is ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    text = b""
    with subprocess.Popen(
        [COMMAND, *arguments],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=place.environment(),
        cwd=place.folder,
    ) as process:
        os.close(theirs)
        deadline = time.monotonic() + BOUND_S
        while not enough(text) and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    text += os.read(ours, 4096)
                except OSError:  # EIO: nobody has the terminal open any more
                    break
        process.terminate()
        try:
            process.wait(BOUND_S)
        finally:
            process.kill()
    os.close(ours)
    return text


def test_serving_on_a_terminal_says_once_what_it_waits_for(place: Place) -> None:
    text = shown(place, [], lambda text: b"waiting" in text and text.endswith(b"\n"))
    assert text.count(b"\n") == 1
    assert text.startswith(b"hardened-terminal-mcp: waiting for an MCP client on stdin")


def test_a_run_that_takes_long_is_one_line_that_is_drawn_over_on_a_narrow_terminal(place: Place) -> None:
    text = shown(place, ["run", "sh -c 'sleep 60'"], lambda text: text.count(b"running") > 1)
    drawn = [line.decode() for line in text.split(b"\r\x1b[K") if line]
    assert len(drawn) > 1
    assert all(len(line) < COLUMNS for line in drawn)
    assert b"\n" not in text


@pytest.mark.parametrize("settings", [{}, {"HTMCP_BROKER": f"{BROKER} --stdio"}], ids=["here", "elsewhere"])
def test_ctrl_c_on_a_terminal_ends_a_run_with_130_and_without_a_word(
    place: Place, settings: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    seconds = unique_seconds()
    with subprocess.Popen(
        ["setsid", "--ctty", COMMAND, "run", f"sh -c 'echo begun; sleep {seconds}'"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=place.environment(**settings),
        cwd=place.folder,
    ) as process:
        try:
            wait_until_running(seconds)
            os.write(ours, b"\x03")
            assert process.wait(timeout=BOUND_S) == 130
        finally:
            process.kill()
    assert os.read(ours, 4096) == b"^C"
    os.close(theirs)
    os.close(ours)
    wait_until_nothing_left(seconds)
