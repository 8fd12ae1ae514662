"""What a frontend may say on stderr: short lines of our own, and nothing that Python or a library has to say.

Always true: writing here never waits, a line for which there is no room is dropped; a fault that nobody
foresaw leaves one generic line, never a traceback, since stderr ends up in a client's log.
"""

import logging
import os
import select
import sys
import warnings
from types import TracebackType

NAME = "hardened-terminal-mcp"
LINE_BYTES = 4096
"""PIPE_BUF of pipe(7): what a pipe that polls as writable takes without waiting."""


def say(line: str) -> None:
    """Print one line on stderr if there is room for it now."""
    data = f"{NAME}: {line}".encode("utf-8", "replace")[: LINE_BYTES - 1] + b"\n"
    try:
        room = select.poll()
        room.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in room.poll(0)):
            os.write(2, data)
    except OSError:
        return


def silence() -> None:
    """Let no traceback, no warning and no log record of the interpreter and its libraries through."""
    sys.excepthook = _say_that_it_failed
    sys.unraisablehook = _ignore
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


def _say_that_it_failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    say("internal error")


def _ignore(unraisable: "sys.UnraisableHookArgs") -> None:
    """Say nothing: what fails in a destructor has nobody to tell."""
