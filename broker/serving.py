"""The ways to serve here: a frontend that we start, an inherited socket, or our own stdin and stdout.

Always true: a frontend that we start ends with the broker, and its exit status is ours. This module imports only what
starting a frontend takes: the rest of the broker is imported and built while the frontend's interpreter starts.
"""

import os
import stat
from _socket import socketpair  # the module socket costs every start its enums
from typing import TYPE_CHECKING

from broker import configuration, early_end, frontend_process, kernel, lean
from broker.configuration import Settings
from broker.frontend_process import Child
from broker.meanwhile import Meanwhile
from broker.refusal import StartupError

if TYPE_CHECKING:
    from broker.service import Service

BIRTH_S = 1.0
"""How long a signal during the start waits for the frontend that is being started, to kill it; it takes some 10 ms."""


def serve_frontend(argv: tuple[str, ...]) -> int:
    """Start `argv` as a confined frontend, build the broker, serve to the end. Returns the frontend's status.

    What makes one call is ended by whatever a shell or a terminal sends: the status is 128 and the first signal's number.

    The policy file is read first: it says how a frontend is confined. Whatever else is wrong is found before the
    frontend, which nobody has answered yet, could say a word.
    """
    kernel.forbid_inspection()
    settings = configuration.read(os.environ)
    ours, theirs = (end.detach() for end in socketpair())
    mode = settings.file.containment.mode
    starting = Meanwhile(lambda: frontend_process.start(argv, theirs, mode))
    early_end.first(lambda: _kill(starting.within(BIRTH_S)))
    try:
        service = _service(settings, ours, os.dup(ours))
    except BaseException:
        starting.result().kill()
        raise
    frontend = starting.result()
    signals: list[int] = []
    if frontend_process.makes_one_call(argv):
        service.forward = lambda number: _end_call(frontend, signals, number)
    status = service.serve()
    ended = frontend.end(patience_s=frontend_process.END_S if status is None else service.patience_s)
    return 128 + signals[0] if signals else status or ended


def _kill(frontend: Child | None) -> None:
    if frontend is not None:
        frontend.kill()


def _end_call(frontend: Child, signals: list[int], number: int) -> None:
    """Whatever the signal was, it is SIGTERM that a call's frontend dies by without a word, its interpreter's start included."""
    signals.append(number)
    frontend.terminate()


def _service(settings: Settings, read_fd: int, write_fd: int) -> "Service":
    from broker import startup

    service = startup.service(settings, read_fd, write_fd)
    lean.end_of_start()
    return service


def serve_fd(fd: int) -> int:
    """Serve the inherited stream socket `fd`, whose other end the caller holds."""
    kernel.forbid_inspection()
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise StartupError(f"--fd {fd}: not a socket")
    except OSError as error:
        raise StartupError(f"--fd {fd}: {error.strerror}") from None
    except OverflowError:
        raise StartupError(f"--fd {fd}: no descriptor has such a number") from None
    os.set_inheritable(fd, False)
    return _service(configuration.read(os.environ), fd, os.dup(fd)).serve() or 0


def serve_stdio() -> int:
    """Serve our own stdin and stdout, moved away from 0 and 1 so that no command can inherit them."""
    kernel.forbid_inspection()
    for fd, name in ((0, "stdin"), (1, "stdout")):
        _check_stream(fd, name)
    read_fd, write_fd = os.dup(0), os.dup(1)
    frontend_process.release_streams()
    return _service(configuration.read(os.environ), read_fd, write_fd).serve() or 0


def _check_stream(fd: int, name: str) -> None:
    """Raise StartupError for what cannot be waited for: epoll(7) takes no regular file and no /dev/null."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError as error:
        raise StartupError(f"--stdio: {name}: {error.strerror}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise StartupError(f"--stdio: {name} must be a pipe or a socket, such as ssh gives it")
