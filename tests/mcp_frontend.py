"""The MCP frontend as a process of its own with a fake broker behind it, driven by raw lines; every wait is bounded."""

import atexit
import contextlib
import functools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

from tests.fake_broker import FakeBroker

BOUND_S = 20.0
OPENING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


PIPE = subprocess.PIPE
_WARM = Path(__file__).with_name("warm_frontends.py")
_Stream = int | IO[Any]
"""A pipe, or what is the frontend's own."""


class WarmProcess:
    """A frontend that was forked from a process which had imported it, as far as the tests need of a `Popen`."""

    def __init__(self, broker_fd: int, stdin: _Stream, stdout: _Stream, stderr: _Stream) -> None:
        with contextlib.ExitStack() as theirs:
            self.stdin, stdin_fd = _ends(stdin, theirs, writing=True)
            self.stdout, stdout_fd = _ends(stdout, theirs)
            self.stderr, stderr_fd = _ends(stderr, theirs)
            self._report, report_fd = os.pipe()
            theirs.callback(os.close, report_fd)
            fds = [stdin_fd, stdout_fd, stderr_fd, broker_fd, report_fd]
            socket.send_fds(_warm_frontends(), [b"x"], fds)
        self._told = b""
        self.pid = int(self._line(BOUND_S))
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait(BOUND_S)
        os.close(self._report)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Return how it ended. Raises TimeoutError."""
        if self.returncode is None:
            self.returncode = int(self._line(timeout))
        return self.returncode

    def _line(self, bound_s: float) -> bytes:
        while b"\n" not in self._told:
            if not select.select([self._report], [], [], bound_s)[0]:
                raise TimeoutError
            told = os.read(self._report, 64)
            assert told, "nobody tells what became of it"
            self._told += told
        line, _, self._told = self._told.partition(b"\n")
        return line


def _ends(
    asked: _Stream, theirs: contextlib.ExitStack, *, writing: bool = False
) -> tuple[IO[bytes] | None, int]:
    """Return our end of a stream, if a pipe is asked for, and the frontend's, which `theirs` closes then."""
    if asked != PIPE:
        return None, asked if isinstance(asked, int) else asked.fileno()
    read_fd, write_fd = os.pipe()
    our_fd, their_fd = (write_fd, read_fd) if writing else (read_fd, write_fd)
    theirs.callback(os.close, their_fd)
    return open(our_fd, "wb" if writing else "rb", buffering=0), their_fd


@functools.cache
def _warm_frontends() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", str(_WARM), str(theirs.fileno())],
            env={"LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_end, ours, process)
    return ours


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait(BOUND_S)


class McpFrontend:
    """The process; `stderr` may be a descriptor for tests that do not drain it.

    `cold`: started as the broker starts it, for tests of the start; otherwise forked with its imports done.
    """

    def __init__(self, broker: FakeBroker, *, cold: bool = False, **streams: Any) -> None:
        fd = broker.frontend.fileno()
        streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE} | streams
        self.process = _cold(fd, **streams) if cold else WarmProcess(fd, **streams)
        # As the broker does: else the frontend's own end would keep the connection alive after it has ended.
        broker.frontend.close()
        self._untrusted = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self.process:
            self.process.kill()

    def initialize(self) -> dict[str, Any]:
        self.send(id=0, method="initialize", params=OPENING)
        answer = self.receive()
        self.send(method="notifications/initialized")
        return answer["result"]

    def send(self, **message: Any) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin
        fd = self.process.stdin.fileno()
        os.set_blocking(fd, False)
        rest = memoryview(data)
        deadline = time.monotonic() + BOUND_S
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_WRITE)
            while rest:
                assert selector.select(deadline - time.monotonic()), f"{len(rest)} bytes were not read"
                rest = rest[os.write(fd, rest[:65536]) :]

    def call(self, request_id: int | str, command: Any, **params: Any) -> None:
        arguments = {"name": "run_command", "arguments": {"command": command}}
        self.send(id=request_id, method="tools/call", params=arguments | params)

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.line())
        assert message["jsonrpc"] == "2.0"
        return message

    def envelope(self) -> dict[str, Any]:
        result = self.receive()["result"]
        assert result["isError"] is False
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def line(self) -> bytes:
        """Return the next line. Raises EOFError at the end."""
        assert self.process.stdout
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + BOUND_S
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._untrusted:
                assert selector.select(deadline - time.monotonic()), "no line came"
                data = os.read(fd, 1 << 20)
                if not data:
                    raise EOFError
                self._untrusted += data
        line, _, rest = bytes(self._untrusted).partition(b"\n")
        self._untrusted[:] = rest
        return line

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def close_output(self) -> None:
        assert self.process.stdout
        self.process.stdout.close()

    def ended(self) -> tuple[int, bytes]:
        """Wait for the end; return the exit status and what was said on stderr."""
        status = self.process.wait(timeout=BOUND_S)
        return status, self.process.stderr.read() if self.process.stderr else b""

    def catches(self, number: int) -> bool:
        """Say whether the process has a handler for signal `number` by now (proc_pid_status(5), SigCgt)."""
        with open(f"/proc/{self.process.pid}/status") as status:
            (line,) = [line for line in status if line.startswith("SigCgt")]
        return bool(int(line.split()[1], 16) >> (number - 1) & 1)

    def memory_kib(self) -> int:
        """Return the highest resident memory so far."""
        with open(f"/proc/{self.process.pid}/status") as status:
            (line,) = [line for line in status if line.startswith("VmHWM")]
        return int(line.split()[1])


def _cold(broker_fd: int, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "frontend.mcp_server"],
        env={"HTMCP_BROKER_FD": str(broker_fd), "LANG": "C.UTF-8"},
        pass_fds=[broker_fd],
        bufsize=0,
        **streams,
    )
