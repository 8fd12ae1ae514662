"""A frontend of a few lines over a socket, for what no client library would ever send; and the broker at its other end.

Always true: nothing here waits longer than its bound; what the broker sent is cut into frames and decoded strictly.
"""

import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from protocol import bare
from tests.support.command import COMMAND
from tests.support.place import Place

BOUND_S = 20.0
Message = dict[str, Any]
BROKER = str(Path(COMMAND).with_name("hardened-terminal-broker"))
HELLO = bare.frame({"type": "hello", "version": 1, "frontend": "bare"})


def frame(kind: str, **fields: Any) -> bytes:
    """Return one request as a frame."""
    return bare.frame({"type": kind, **fields})


class BareClient:
    """`hardened-terminal-broker --fd N`, and the other end of its socket. `with` starts it, and ends it whatever happens.

    `under` are the words of a program that runs it; then `pid` and the signals are that program's.
    """

    def __init__(self, place: Place, *, under: tuple[str, ...] = (), **changes: str | None) -> None:
        self.place = place
        self._under = under
        self._log = place.folder / "broker_stderr.txt"
        self._environment = place.environment(**changes)
        self._untrusted = bytearray()

    def __enter__(self) -> Self:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(BOUND_S)
        with theirs, self._log.open("w") as log:
            fd = theirs.fileno()
            self.process = subprocess.Popen(
                [*self._under, BROKER, "--fd", str(fd)],
                pass_fds=[fd],
                env=self._environment,
                stderr=log,
                cwd=self.place.folder,
            )
        self.pid = self.process.pid
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()
        try:
            self.process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def stderr(self) -> str:
        """What the broker wrote to its standard error so far."""
        return self._log.read_text(errors="replace")

    def send(self, data: bytes) -> None:
        """Send all of `data`. Raises TimeoutError if the broker does not take it."""
        self.socket.sendall(data)

    def send_what_is_taken(self, data: bytes, *, quiet_s: float = 1.0) -> int:
        """Send `data` until the broker takes nothing for `quiet_s`. Returns how much it took."""
        view = memoryview(data)
        self.socket.setblocking(False)
        try:
            while view and select.select([], [self.socket], [], quiet_s)[1]:
                view = view[self.socket.send(view[:65_536]) :]
        finally:
            self.socket.settimeout(BOUND_S)
        return len(data) - len(view)

    def greet(self) -> Message:
        """Shake hands; return the welcome."""
        self.send(HELLO)
        return self.reply()

    def reply(self) -> Message:
        """Return the next reply. Raises EOFError at the end of the connection, TimeoutError after the bound."""
        deadline = time.monotonic() + BOUND_S
        while True:
            size = int.from_bytes(self._untrusted[:4], "big") if len(self._untrusted) >= 4 else None
            if size is not None and len(self._untrusted) >= 4 + size:
                body = bytes(self._untrusted[4 : 4 + size])
                del self._untrusted[: 4 + size]
                message = bare.unpack(body)
                assert isinstance(message, dict)
                return message
            if time.monotonic() > deadline:
                raise TimeoutError
            self._receive()

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:  # the broker closed with some of our bytes unread
            data = b""
        if not data:
            raise EOFError
        self._untrusted += data

    def replies_until_end(self) -> list[Message]:
        """Return all replies up to the end of the connection."""
        replies = []
        while True:
            try:
                replies.append(self.reply())
            except EOFError:
                return replies

    def result(self, request_id: int) -> Message:
        """Return the envelope that answers a request; what comes before it is dropped."""
        while (message := self.reply())["type"] != "result" or message["id"] != request_id:
            continue
        result = message["result"]
        assert isinstance(result, dict)
        return result

    def run(self, request_id: int, command: str) -> Message:
        """Run a command; return its envelope."""
        self.send(frame("run", id=request_id, command=command))
        return self.result(request_id)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker."""
        os.kill(self.pid, number)

    def status(self) -> int:
        """Wait for the broker's end; return its exit status."""
        return self.process.wait(BOUND_S)
