"""Each command with each of the three streams closed, open the wrong way round, or taking nothing."""

import os
import subprocess

import pytest

from tests.support.command import BOUND_S, COMMAND
from tests.support.place import Place

EX_IOERR = 74
USAGE = 2
UNREAD = 1
IN, OUT, ERR = 0, 1, 2

COMMANDS: dict[tuple[str, ...], tuple[int, set[int]]] = {
    ("run", "echo hi"): (0, {OUT}),
    ("run", "ls nowhere"): (2, {ERR}),
    ("explain", "--json", "rm x"): (126, {OUT}),
    ("check",): (0, {OUT}),
    ("check", "nowhere"): (78, set()),
    ("init", "--client", "claude"): (0, {OUT, ERR}),
    ("redact",): (0, set()),
    ("redact", "jail/readme.txt"): (0, {OUT}),
    ("redact", "--explain", "secret.txt"): (0, {OUT, ERR}),
    ("completion", "bash"): (0, {OUT}),
    ("--version",): (0, {OUT}),
    ("run", "--help"): (0, {OUT}),
    ("serve",): (0, set()),
}
"""Command line → the status that it has, and which streams it cannot do without."""
CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
TAKES_NOTHING = {">/dev/full": {OUT}, "1</dev/null": {OUT}, "2>/dev/full": {ERR}, "2</dev/null": {ERR}}
TAKES_NOTHING |= {"1</dev/null 2</dev/null": {OUT, ERR}}


def ended(place: Place, arguments: tuple[str, ...], how: str) -> int:
    """Return the status; nothing that Python says of itself is on a stream."""
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {how}', "sh", COMMAND, *arguments],
        env=place.environment(),
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert not [word for word in (b"Traceback", b"Exception ignored", b"internal error:") if word in said], (
        said
    )
    return ended.returncode


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_stream_that_is_closed_or_takes_nothing_has_its_own_status(
    place: Place, arguments: tuple[str, ...]
) -> None:
    (place.folder / "secret.txt").write_text("password=Zq8Lm3Xw7Yt\n")
    usual, needed = COMMANDS[arguments]
    closed = {how: ended(place, arguments, how) for how in ("", *CLOSED)}
    assert closed == dict.fromkeys(closed, usual)
    full = {how: ended(place, arguments, how) for how in TAKES_NOTHING}
    assert full == {how: EX_IOERR if needed & streams else usual for how, streams in TAKES_NOTHING.items()}


@pytest.mark.parametrize("arguments", [("nosuch",), ("redact", "--nosuch"), ("run",)], ids=" ".join)
def test_wrong_usage_ends_with_2_and_says_nothing_on_stdout(place: Place, arguments: tuple[str, ...]) -> None:
    for how in ("2>&-", "<&- 2>&-", ">/dev/full", "1</dev/null"):
        assert ended(place, arguments, how) == USAGE
    closed = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", COMMAND, *arguments],
        env=place.environment(),
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    assert closed.stdout == b""


def test_an_input_that_cannot_be_read_is_no_internal_error(place: Place) -> None:
    assert ended(place, ("redact",), "0>/dev/null") == UNREAD


@pytest.mark.parametrize("arguments", [("check",), ("--help",), ("run", "echo hi")], ids=" ".join)
def test_a_terminal_that_is_gone_is_output_that_cannot_be_written(
    place: Place, arguments: tuple[str, ...]
) -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    with os.fdopen(theirs, "wb") as terminal:
        gone = subprocess.run(
            [COMMAND, *arguments],
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            timeout=BOUND_S,
            check=False,
        )
    assert (gone.returncode, gone.stderr.count(b"\n")) == (EX_IOERR, 1), gone.stderr
