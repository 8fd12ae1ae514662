"""hardened-terminal-broker with one hook: when a call reaches a step, a fault hits broker or frontend.

usage: python -I hooked_broker.py FAULT -- PROGRAM …     FAULT is JSON: {"step", "when", "victim", "fault"}

The hook is the product's own function, wrapped; the product knows nothing of it. A stopped victim is announced on stderr
("stopped PID"), so that the test can kill it; a process that stops itself cannot.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from broker import connection, execution, frontend_process, main, output, pipeline, service
from broker.audit import Trail

FAULT = json.loads(sys.argv[1])
STEPS: dict[str, tuple[Any, str]] = {
    "frame read": (connection.Connection, "receive"),
    "verdict": (pipeline.Pipeline, "admit"),
    "attempt written": (Trail, "attempt"),
    "program started": (execution.os, "posix_spawn"),
    "output read": (output.OutputFilter, "feed"),
    "program ended": (service.Service, "_finished_in_thread"),
    "outcome written": (Trail, "outcome"),
    "reply sent": (connection.Connection, "flush"),
}
REQUESTS_BEFORE = 1
"""The hello is a frame too; the fault waits for the call."""

state: dict[str, Any] = {"frontend": None, "fds": (), "admitted": False, "done": False}


def strike() -> None:
    """Do the fault once."""
    if state["done"] or not state["admitted"]:
        return
    state["done"] = True
    victim = os.getpid() if FAULT["victim"] == "broker" else state["frontend"]
    if FAULT["fault"] == "close":
        with socket.socket(fileno=os.dup(state["fds"][0])) as end:
            end.shutdown(socket.SHUT_RDWR)
    elif FAULT["fault"] == "stop":
        os.write(2, f"stopped {victim}\n".encode())
        os.kill(victim, signal.SIGSTOP)
    else:
        os.kill(victim, getattr(signal, FAULT["fault"]))


def hook(owner: Any, name: str) -> None:
    """Wrap `owner.name` so that the fault strikes before or after it."""
    original: Callable[..., Any] = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if FAULT["when"] == "before":
            strike()
        result = original(*arguments, **named)
        if FAULT["when"] == "after":
            strike()
        return result

    setattr(owner, name, wrapped)


def half_of_a_reply(fd: int, data: bytes) -> int:
    """Send half, then the fault: the frontend has the beginning of a frame."""
    if not state["admitted"] or state["done"] or len(data) < 2:
        return real_write(fd, data)
    sent = real_write(fd, bytes(data[: len(data) // 2]))
    strike()
    return sent


def remember_frontend(*arguments: Any) -> Any:
    """Start the frontend, and keep its process id."""
    started = real_start(*arguments)
    state["frontend"] = started.pid
    return started


def remember_request(self: Any, request: Any) -> None:
    """Arm the hook with the first request after the hello."""
    state["fds"] = (self._connection.read_fd,)
    if type(request).__name__ == "RunRequest":
        state["admitted"] = True
        if FAULT["step"] == "frame read":
            strike()
    real_answer(self, request)


real_write, real_start, real_answer = os.write, frontend_process.start, service.Service._answer
frontend_process.start = remember_frontend
service.Service._answer = remember_request  # type: ignore[method-assign]
if FAULT["step"] == "half of a reply":

    class HalfOs:
        """The module os as the connection sees it, with a write that stops halfway."""

        write = staticmethod(half_of_a_reply)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    connection.os = HalfOs()  # type: ignore[assignment]
elif FAULT["step"] in STEPS:
    hook(*STEPS[FAULT["step"]])

sys.argv = ["hardened-terminal-broker", *sys.argv[2:]]
main.hardened_terminal_broker()
