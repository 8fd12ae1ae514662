"""The frontend as a child of the broker: born confined, ended with it, its exit status handed on.

Always true: the frontend inherits standard input, output and error and one end of the socket, nothing else; after the
start this process has neither the MCP stream nor any way to write to it.
"""

import os
import select
import signal
import sys
from typing import NamedTuple

from broker.birth import spawn_frontend

END_S = 2.0
"""How long a frontend may take to end once its connection is closed."""
SOCKET_FD = 3
_NOT_FOUND = (
    b"hardened-terminal-mcp: a frontend's Python looks into no PYTHONPATH and no site-packages of a user, and does not find "
    b"this package: install it with uv or pipx, or in a virtual environment\n"
)


def _isolated(module: str) -> tuple[str, ...]:
    """Return how an interpreter runs the frontend `module`; -m would import runpy, a third of a start."""
    gone = f"import os; os.write(2, {_NOT_FOUND!r}); os._exit(78)"
    return ("-I", "-c", f"try: from {module} import main\nexcept ModuleNotFoundError: {gone}\nmain()")


MCP_SERVER = _isolated("frontend.mcp_server")
COMMAND_LINE = _isolated("frontend.command_line")


class Child(NamedTuple):
    """A running frontend, or what carries its bytes to a broker elsewhere."""

    pid: int
    pidfd: int

    def end(self, *, patience_s: float) -> int:
        """Wait for its end, then bring it about. Returns the exit status, 128 + N after signal N."""
        if not self.ends_within(patience_s):
            self.terminate()
            if not self.ends_within(END_S):
                self.send(signal.SIGKILL)
        return self.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, before it can say anything."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait for its end. Returns the exit status, 128 + N after signal N."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it has ended, as its number may be another's by now, or became another user."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except (ProcessLookupError, PermissionError):
            return

    def ends_within(self, seconds: float) -> bool:
        """Return whether it ended in that time."""
        ended = select.poll()
        ended.register(self.pidfd, select.POLLIN)
        return bool(ended.poll(seconds * 1000))


def python_frontend(module_arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv of a frontend of this package: always isolated, so that no folder of the jail is imported."""
    return (sys.executable, *module_arguments)


def makes_one_call(argv: tuple[str, ...]) -> bool:
    """Whether that frontend is the command line's."""
    return argv[1 : 1 + len(COMMAND_LINE)] == COMMAND_LINE


def start(argv: tuple[str, ...], frontend_end: int, mode: str = "required") -> Child:
    """Start a frontend on `frontend_end`, and let go of the streams that it now owns. `mode` is `[containment] mode`."""
    environment = {"LANG": "C.UTF-8", "HTMCP_BROKER_FD": str(SOCKET_FD), "PATH": os.defpath}
    pid, pidfd = spawn_frontend(argv, environment, (0, 1, 2, frontend_end), mode)
    os.close(frontend_end)
    release_streams()
    return Child(pid, pidfd)


def release_streams() -> None:
    """Point our own stdin and stdout at /dev/null."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1):
        os.dup2(null, fd, inheritable=False)
    os.close(null)
