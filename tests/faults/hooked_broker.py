"""hardened-terminal-broker with one hook: when calls reach a step, a fault hits broker or frontend.

usage: python -I hooked_broker.py STEP WHEN VICTIM FAULT TIMES -- PROGRAM …

The hook is the product's own function, wrapped; the product knows nothing of it. It strikes the TIMES-th time that a
step is reached after the handshake, and says "struck" on stderr. A stopped victim is announced there too ("stopped PID"),
so that the test can kill it; a process that stopped itself cannot.
"""

import os
import signal
import sys
import threading
from _queue import SimpleQueue
from _socket import SHUT_RDWR, socket
from collections.abc import Callable
from typing import Any

from broker import birth, configuration, connection, execution, frontend_process, main, run, startup
from broker.audit import Trail
from broker.nursery import Nursery
from broker.output import OutputFilter
from broker.pipeline import Pipeline
from broker.service import Service
from broker.warden import Warden

STEP, WHEN, VICTIM, FAULT, TIMES = sys.argv[1:6]
STEPS: dict[str, tuple[Any, str]] = {
    "frame read": (connection.Connection, "receive"),
    "verdict": (Pipeline, "admit"),
    "attempt written": (Trail, "attempt"),
    "program started": (run, "spawn"),
    "exec asked": (Warden, "_decide"),
    "output read": (OutputFilter, "feed"),
    "program ended": (run.Call, "_completed"),
    "outcome written": (Trail, "outcome"),
    "reply sent": (connection.Connection, "flush"),
}
STARTING: dict[str, tuple[Any, str]] = {
    "settings read": (configuration, "read"),
    "frontend started": (birth, "_spawn"),
    "layers found": (execution, "layers_in_force"),
    "reaper started": (Nursery, "_start_reaper"),
    "containment proved": (execution, "prove"),
    "trail opened": (startup, "open_trail"),
}
"""Steps of the start: reached once, before any handshake."""


class Hook:
    """Counts how often the step was reached, and strikes once.

    The fault comes from a thread of its own: the thread of a call is confined and may not signal the frontend.
    """

    def __init__(self) -> None:
        self.armed = STEP in STARTING
        self.frontend_pid = 0
        self.frontend_known = threading.Event()  # it is started beside the rest of the start
        self.socket_fd = -1
        self._left = int(TIMES)
        self._lock = threading.Lock()
        self._orders: SimpleQueue[None] = SimpleQueue()
        self._struck = threading.Event()
        threading.Thread(target=self._strike_when_told, daemon=True).start()

    def reached(self) -> bool:
        """Note that the step was reached. Returns, after the fault, whether this was the time for it."""
        with self._lock:
            self._left -= self.armed
            due = self.armed and self._left == 0
        if due:
            self._orders.put(None)
            self._struck.wait()
        return due

    def _strike_when_told(self) -> None:
        self._orders.get()
        os.write(2, b"struck\n")
        if VICTIM != "broker":
            self.frontend_known.wait()
        victim = os.getpid() if VICTIM == "broker" else self.frontend_pid
        assert victim > 0, "a signal to process 0 would reach the tests"
        if FAULT == "close":
            end = socket(fileno=os.dup(self.socket_fd))
            end.shutdown(SHUT_RDWR)
            end.close()
        elif FAULT == "stop":
            os.write(2, f"stopped {victim}\n".encode())
            os.kill(victim, signal.SIGSTOP)
        else:
            os.kill(victim, getattr(signal, FAULT))
        self._struck.set()


hook = Hook()


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put what `make` makes of it in the place of `owner.name`."""
    setattr(owner, name, make(getattr(owner, name)))


def striking(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original` with the fault before or after it."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if WHEN == "before":
            hook.reached()
        result = original(*arguments, **named)
        if WHEN == "after":
            hook.reached()
        return result

    return wrapped


def remembering_frontend(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original`, which starts the frontend, so that its process id is kept."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        started = original(*arguments, **named)
        hook.frontend_pid = started.pid
        hook.frontend_known.set()
        return started

    return wrapped


def arming(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original`, which answers the hello, so that the hook counts from then on."""

    def wrapped(self: Any, request: Any) -> None:
        original(self, request)
        hook.socket_fd = self._connection.read_fd
        hook.armed = True

    return wrapped


class HalfOs:
    """The module os as the connection sees it, with a write that stops halfway through a reply, and then the fault."""

    @staticmethod
    def write(fd: int, data: bytes) -> int:
        """Write half of it if it is the time for the fault, else all."""
        half = bytes(data[: len(data) // 2])
        if not hook.armed:
            return os.write(fd, data)
        sent = os.write(fd, half)
        return sent if hook.reached() else sent + os.write(fd, data[sent:])

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


wrap(frontend_process, "start", remembering_frontend)
wrap(Service, "_answer_hello", arming)
if STEP == "half of a reply":
    connection.os = HalfOs()  # type: ignore[assignment]
elif STEP != "none":
    wrap(*(STEPS | STARTING)[STEP], striking)

sys.argv = ["hardened-terminal-broker", *sys.argv[6:]]
main.hardened_terminal_broker()
