"""A client that speaks raw JSON lines, for what the SDK's client would never send.

Always true: neither a read nor a write waits longer than its bound, and every line that the server wrote to its
standard output is kept as it came: one that is no JSON object is an error.
"""

import json
import os
import selectors
import subprocess
import time
from typing import Any, Self

from tests.support.command import COMMAND
from tests.support.envelope import Envelope
from tests.support.place import Place
from tests.support.processes import children, command_line

BOUND_S = 25.0
Message = dict[str, Any]
_BLOCK_BYTES = 65_536


class RawClient:
    """The installed command with pipes; `pid` is the broker's process id.

    Its standard error goes to a file, or to `stderr_fd`.
    """

    def __init__(self, place: Place, *, stderr_fd: int | None = None, **changes: str | None) -> None:
        self.place = place
        self._stderr_fd = stderr_fd
        self._environment = place.environment(**changes)
        self._log = place.folder / "raw_stderr.txt"
        self._untrusted = bytearray()
        self._ids = 0

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if self._stderr_fd is None else self._stderr_fd,
                bufsize=0,
                cwd=self.place.folder,
                env=self._environment,
            )
        assert self._process.stdin
        assert self._process.stdout
        self.pid = self._process.pid
        self._write_fd = self._process.stdin.fileno()
        self._read_fd = self._process.stdout.fileno()
        os.set_blocking(self._write_fd, False)
        return self

    def __exit__(self, *exception: object) -> None:
        with self._process as process:
            self.close_input()
            try:
                process.wait(timeout=BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    @property
    def stderr(self) -> str:
        """What the command wrote to its standard error so far."""
        return self._log.read_text(errors="replace")

    def close_input(self) -> None:
        """Close the server's standard input, as a client does that goes away."""
        assert self._process.stdin
        self._process.stdin.close()

    def vanish(self) -> None:
        """Close both of the server's streams, as a client does that was killed."""
        assert self._process.stdout
        self.close_input()
        self._process.stdout.close()

    def frontend_pid(self) -> int:
        """Return the process id of the server's frontend."""
        (pid,) = [
            child
            for child in children(self.pid)
            if any("frontend.mcp_server" in word for word in command_line(child))
        ]
        return pid

    def ended(self) -> int:
        """Wait for the server's end and return its status. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout=BOUND_S)

    def send_bytes(self, raw: bytes) -> None:
        """Write `raw` as it is. Raises AssertionError when the server does not read it in time."""
        view = memoryview(raw)
        deadline = time.monotonic() + BOUND_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._write_fd, selectors.EVENT_WRITE)
            while view:
                assert selector.select(deadline - time.monotonic()), f"{len(view)} bytes were not read"
                view = view[os.write(self._write_fd, view[:_BLOCK_BYTES]) :]

    def send(self, message: Message) -> None:
        """Write one JSON-RPC message."""
        self.send_bytes(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    def line(self, *, bound_s: float = BOUND_S) -> bytes:
        """Return the server's next line. Raises AssertionError after `bound_s`, EOFError at the end."""
        deadline = time.monotonic() + bound_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            while b"\n" not in self._untrusted:
                assert selector.select(max(0.0, deadline - time.monotonic())), f"no line within {bound_s} s"
                block = os.read(self._read_fd, _BLOCK_BYTES)
                if not block:
                    raise EOFError(bytes(self._untrusted))
                self._untrusted += block
        line, _, rest = bytes(self._untrusted).partition(b"\n")
        self._untrusted = bytearray(rest)
        return line

    def message(self, *, bound_s: float = BOUND_S) -> Message:
        """Return the server's next message."""
        decoded = json.loads(self.line(bound_s=bound_s))
        assert isinstance(decoded, dict)
        assert decoded.get("jsonrpc") == "2.0"
        return decoded

    def rest(self) -> bytes:
        """Return everything that the server still writes before its end."""
        lines = []
        while True:
            try:
                lines.append(self.line())
            except EOFError as end:
                return b"\n".join([*lines, end.args[0]])

    def request(self, method: str, params: Message) -> int:
        """Send a request and return its id."""
        self._ids += 1
        self.send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def answer(self, request_id: int | str) -> Message:
        """Return the answer to a request; notifications before it are dropped, another answer is an error."""
        while True:
            message = self.message()
            if "id" in message:
                assert message["id"] == request_id, message
                return message

    def initialize(self, version: str = "2025-06-18") -> Message:
        """Do the handshake in a revision of the protocol and return the server's part."""
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        answer = self.answer(self.request("initialize", params))
        self.send({"method": "notifications/initialized"})
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def start(self, tool: str, arguments: object, **meta: object) -> int:
        """Begin a tool call and return its id."""
        params: Message = {"name": tool, "arguments": arguments}
        return self.request("tools/call", params | ({"_meta": meta} if meta else {}))

    def call(self, tool: str, arguments: object) -> Envelope:
        """Call a tool and return its envelope."""
        return envelope_in(self.answer(self.start(tool, arguments)))

    def run(self, command: str) -> Envelope:
        """Call `run_command`."""
        return self.call("run_command", {"command": command})


def envelope_in(answer: Message) -> Envelope:
    """Return the envelope in an answer. Raises AssertionError for a JSON-RPC error."""
    assert "result" in answer, f"no result: {answer}"
    return Envelope.of(answer["result"]["structuredContent"])
