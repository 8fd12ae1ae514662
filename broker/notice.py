"""A line to the operator on stderr.

Always true: it never raises and never waits. stderr is shared with the frontend, who can fill it while its reader sleeps,
and the reader may be gone; a line that does not fit at once is lost, the audit trail has what matters. It stays one line,
and printable, whatever a frontend got into it: a terminal must not obey what stands in an error message.
"""

import os
import select
from typing import Final

NAME: Final = "hardened-terminal-mcp"
_STDERR: Final = 2
_LINE_BYTES: Final = 4096
"""Linux calls a pipe writable while it takes so much without waiting (PIPE_BUF, pipe(7))."""


def printable(line: str) -> str:
    """Return `line` so that it stays one and steers no terminal."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def warn(line: str) -> None:
    """Say one line."""
    data = f"{NAME}: {printable(line)}".encode("utf-8", "replace")[: _LINE_BYTES - 1] + b"\n"
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(_STDERR, data)
    except OSError:
        return
