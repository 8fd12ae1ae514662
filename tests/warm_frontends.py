"""MCP frontends without the half second of their imports: a process that has them all forks for each frontend.

Run as `python -I warm_frontends.py CONTROL_FD`. For four descriptors (the frontend's stdin, stdout, stderr and broker)
and a fifth it starts a frontend, and writes to the fifth its process id, then how it ended, as a line each. It ends
when the other end of its control socket is closed. A frontend has no descriptor but its own.
"""

import fcntl
import os
import signal
import socket
import sys

from frontend import mcp_server, mcp_session  # noqa: F401 - what the server imports when it is started

_FREE_FROM = 64
_DESCRIPTORS = 5


def main(control: socket.socket) -> None:
    """Start what is asked for, until nobody can ask; does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what became of a frontend, its guardian tells
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, _DESCRIPTORS)
        if not fds:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            guard(fds)
        for fd in fds:
            os.close(fd)


def guard(fds: list[int]) -> None:
    """Start one frontend and tell of it; does not return."""
    *streams, report = fds
    if (pid := os.fork()) == 0:
        serve(streams)
    for fd in streams:
        os.close(fd)
    os.write(report, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def serve(streams: list[int]) -> None:
    """Be the frontend; does not return."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE_FROM) for fd in streams]
    for target, fd in enumerate(moved):
        os.dup2(fd, target)
    os.closerange(len(moved), max(moved) + 1)
    os.environ.clear()
    os.environ |= {"HTMCP_BROKER_FD": str(len(moved) - 1), "LANG": "C.UTF-8"}
    mcp_server.main()


main(socket.socket(fileno=int(sys.argv[1])))
