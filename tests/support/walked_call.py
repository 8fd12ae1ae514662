"""Runs one call through a whole broker in this process, and prints the modules of the project that it passed through.

python -m tests.support.walked_call COMMAND     with the settings of a broker in the environment
"""

import _thread
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
_start = _thread.start_new_thread


class Walk:
    """Notes whose functions are called, in every thread that is started once `begin` was called."""

    def __init__(self) -> None:
        self.under_way = False
        self.files: set[str] = set()

    def begin(self) -> None:
        """Watch this thread, and each that is started from now on."""
        sys.setprofile(self._note)
        _thread.start_new_thread = self._start_watched

    def modules(self) -> list[str]:
        """Return what was passed through, as paths from the project's root."""
        paths = [Path(name) for name in self.files]
        own = [path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT)]
        return sorted(str(path) for path in own if path.parts[0] in ("broker", "frontend", "protocol"))

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.under_way and event == "call":
            self.files.add(frame.f_code.co_filename)

    def _start_watched(self, function: Callable[..., object], arguments: tuple[Any, ...], *more: Any) -> int:
        def body() -> None:
            sys.setprofile(self._note)
            function(*arguments)

        return _start(body, (), *more)


def main(command: str) -> None:
    walk = Walk()
    walk.begin()
    from broker import configuration, startup
    from protocol.client import BrokerClient

    ours, theirs = socket.socketpair()
    fd = theirs.detach()
    service = startup.service(configuration.read(os.environ), fd, os.dup(fd))

    def ask() -> None:
        client = BrokerClient(ours)
        walk.under_way = True
        result = client.run(command)
        walk.under_way = False
        client.close()
        print(result.code, result.stdout, file=sys.stderr)

    asking = threading.Thread(target=ask)
    asking.start()
    service.serve()
    asking.join()
    sys.setprofile(None)
    print(*walk.modules())


if __name__ == "__main__":
    main(sys.argv[1])
