"""A thin MCP client over a server's stdin and stdout: JSON lines, one thread, little of its own in what is measured."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

BOUND_S = 60.0
_BLOCK_BYTES = 1024 * 1024
Message = dict[str, Any]


class Server(NamedTuple):
    """How a server is started, and the parameters of the `tools/call` that has it run `echo hi`."""

    name: str
    cwd: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    call: Message


class Client:
    """A server that was started and has answered its tools list after `ready_s`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._line = b""
        self._ids = 0

    def __enter__(self) -> Self:
        since = time.perf_counter()
        self._process = subprocess.Popen(
            self.server.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=dict(self.server.environment),
            cwd=self.server.cwd,
        )
        assert self._process.stdin
        assert self._process.stdout
        self.pid = self._process.pid
        self._write_fd, self._read_fd = self._process.stdin.fileno(), self._process.stdout.fileno()
        try:
            self._shake_hands()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self.ready_s = time.perf_counter() - since
        return self

    def _shake_hands(self) -> None:
        who = {"name": "bench", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who})
        self._send({"method": "notifications/initialized"})
        self.request("tools/list", {})

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()

    def _send(self, message: Message) -> None:
        data = json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"
        while data:
            data = data[os.write(self._write_fd, data) :]

    def post(self, method: str, params: Message) -> int:
        """Send a request and return its id."""
        self._ids += 1
        self._send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def answer(self) -> Message:
        """Return the next answer. Raises AssertionError for an error, EOFError at the end, TimeoutError."""
        while True:
            while b"\n" not in self._line:
                if not select.select([self._read_fd], [], [], BOUND_S)[0]:
                    raise TimeoutError(f"{self.server.name}: no answer")
                block = os.read(self._read_fd, _BLOCK_BYTES)
                if not block:
                    raise EOFError(f"{self.server.name}: ended")
                self._line += block
            line, _, self._line = self._line.partition(b"\n")
            message: Message = json.loads(line)
            if "id" in message and "method" not in message:
                assert "result" in message, f"{self.server.name}: {message}"
                return message

    def request(self, method: str, params: Message) -> Message:
        """Send a request and return its answer; nothing else is in flight."""
        sent = self.post(method, params)
        answer = self.answer()
        assert answer["id"] == sent
        return answer

    def call(self) -> None:
        """Have the server run `echo hi`. Raises AssertionError unless it did."""
        self._check(self.request("tools/call", self.server.call))

    def _check(self, answer: Message) -> None:
        text = answer["result"]["content"][0]["text"]
        assert "hi" in text, f"{self.server.name}: {answer}"

    def flight(self, calls: int, width: int) -> float:
        """Make `calls` calls with `width` in flight. Returns calls a second."""
        since = time.perf_counter()
        for _ in range(min(width, calls)):
            self.post("tools/call", self.server.call)
        for done in range(calls):
            self._check(self.answer())
            if done + width < calls:
                self.post("tools/call", self.server.call)
        return calls / (time.perf_counter() - since)
