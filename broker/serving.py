"""The four ways to serve: a frontend that we start, an inherited socket, our own stdin and stdout, or a broker elsewhere.

Always true: the frontend starts only after the broker could be built, and ends with it; its exit status is ours.
"""

import os
import shlex
import signal
import socket
import stat

from broker import frontend_process, kernel, startup
from broker.connection import Connection
from broker.refusal import StartupError
from broker.service import Service


def serve_frontend(argv: tuple[str, ...], pair: tuple[socket.socket, socket.socket]) -> int:
    """Build the broker, start `argv` as its confined frontend, serve it to its end. Returns the frontend's status."""
    broker = startup.build(os.environ)
    kernel.forbid_inspection()
    ours, theirs = (end.detach() for end in pair)
    frontend = frontend_process.start(argv, theirs)
    service = _service(broker, Connection(ours, os.dup(ours)))
    status = _serve(broker, service)
    ended = frontend.end(patience_s=frontend_process.END_S if status is None else service.patience_s)
    return status or ended


def _service(broker: startup.Broker, connection: Connection) -> Service:
    concurrent = broker.pipeline.gate.policy.file.limits.concurrent
    return Service(broker.pipeline, connection, concurrent, broker.reload)


def _serve(broker: startup.Broker, service: Service) -> int | None:
    try:
        return service.serve()
    finally:
        broker.close()
        service.close()


def serve_fd(fd: int) -> int:
    """Serve the inherited stream socket `fd`, whose other end the caller holds."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise StartupError(f"--fd {fd}: not a socket")
    except OSError as error:
        raise StartupError(f"--fd {fd}: {error.strerror}") from None
    os.set_inheritable(fd, False)
    broker = startup.build(os.environ)
    kernel.forbid_inspection()
    return _serve(broker, _service(broker, Connection(fd, os.dup(fd)))) or 0


def serve_stdio() -> int:
    """Serve our own stdin and stdout, moved away from 0 and 1 so that no command can inherit them."""
    broker = startup.build(os.environ)
    kernel.forbid_inspection()
    read_fd, write_fd = os.dup(0), os.dup(1)
    frontend_process.release_streams()
    return _serve(broker, _service(broker, Connection(read_fd, write_fd))) or 0


def serve_remote(argv: tuple[str, ...], command: str) -> int:
    """Start the confined frontend here and `command` (such as `ssh HOST hardened-terminal-broker --stdio`) as its broker."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise StartupError(f"HTMCP_BROKER: {error}") from None
    if not words:
        raise StartupError(
            "HTMCP_BROKER: a command is expected, such as: ssh HOST hardened-terminal-broker --stdio"
        )
    ours, theirs = (end.detach() for end in socket.socketpair())
    streams = [(os.POSIX_SPAWN_DUP2, ours, 0), (os.POSIX_SPAWN_DUP2, ours, 1)]
    try:
        carrier = os.posix_spawnp(words[0], words, os.environ, file_actions=streams)
    except OSError as error:
        raise StartupError(f"HTMCP_BROKER: {words[0]}: {error.strerror}") from None
    os.close(ours)
    frontend = frontend_process.start(argv, theirs)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(frontend.pid, signal.SIGTERM))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal sends it to the frontend as well, which cancels and ends
    status = frontend.wait()
    os.kill(carrier, signal.SIGTERM)
    os.waitpid(carrier, 0)
    return status
