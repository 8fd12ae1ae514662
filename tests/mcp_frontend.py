"""The MCP frontend as a process of its own with a fake broker behind it, driven by raw lines; every wait is bounded."""

import json
import os
import selectors
import subprocess
import sys
import time
from typing import Any, Self

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


class McpFrontend:
    """The process; `stderr` may be a descriptor for tests that do not drain it."""

    def __init__(self, broker: FakeBroker, **streams: Any) -> None:
        fd = broker.frontend.fileno()
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "frontend.mcp_server"],
            env={"HTMCP_BROKER_FD": str(fd), "LANG": "C.UTF-8"},
            pass_fds=[fd],
            bufsize=0,
            **streams,
        )
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
