"""Lets a suite that speaks HTTP test a server that speaks stdio: one child for each session, on loopback.

Only for the conformance suite, so the least that it asks for: POST answers with JSON or, for a request that reports progress
or is told something meanwhile, with an event stream; GET has no stream; hosts and origins other than this machine are refused.
"""

import json
import queue
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
PROTOCOL = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
ANSWER_S = 20.0
LOCAL = ("localhost", "127.0.0.1")


class Child:
    """A server on stdio, its requests numbered anew so that two of them may have one id."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Message]] = {}
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            message = json.loads(line)
            with self._lock:
                waiting = self._waiting.get(message.get("id"))
            if waiting is not None:
                waiting.put(message)

    def send(self, message: Message) -> None:
        """Write a message."""
        assert self._process.stdin
        with self._lock:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def ask(self, request: Message) -> Message:
        """Return the answer to a request. Raises queue.Empty after `ANSWER_S`."""
        with self._lock:
            self._last += 1
            number = self._last
            waiting = self._waiting[number] = queue.SimpleQueue()
        self.send({**request, "id": number})
        try:
            return {**waiting.get(timeout=ANSWER_S), "id": request["id"]}
        finally:
            with self._lock:
                del self._waiting[number]

    def close(self) -> None:
        """End it as a client does: by closing its stdin."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=ANSWER_S)
        assert self._process.stdout
        self._process.stdout.close()


class Bridge(ThreadingHTTPServer):
    """Serves `command` on a free port of loopback; `url` is where."""

    daemon_threads = True

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._command, self._environment = command, environment
        self._sessions: dict[str | None, Child] = {}
        self._sessions_lock = threading.Lock()
        self.url = f"http://localhost:{self.server_address[1]}/mcp"

    def child_for(self, session: str | None, message: Message) -> tuple[str | None, Child | None]:
        """Return the session and its child; a handshake begins one, and what has none shares one without handshake."""
        with self._sessions_lock:
            if message.get("method") == "initialize" and not _is_modern(message):
                session = uuid.uuid4().hex
                self._sessions[session] = Child(self._command, self._environment)
            elif session is None and None not in self._sessions:
                self._sessions[None] = Child(self._command, self._environment)
                self._sessions[None].ask(_discover())
            return session, self._sessions.get(session)

    def end(self, session: str | None) -> None:
        """End a session, if there is one."""
        with self._sessions_lock:
            child = self._sessions.pop(session, None)
        if child is not None:
            child.close()

    def close(self) -> None:
        """Stop, and end every child."""
        self.shutdown()
        self.server_close()
        for session in list(self._sessions):
            self.end(session)


def _is_modern(message: Message) -> bool:
    parameters = message.get("params")
    meta = parameters.get("_meta") if isinstance(parameters, dict) else None
    return isinstance(meta, dict) and f"{PROTOCOL}protocolVersion" in meta


def _discover() -> Message:
    meta = {f"{PROTOCOL}protocolVersion": MODERN, f"{PROTOCOL}clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}


def _status(answer: Message) -> int:
    """Return the HTTP status that the revision without handshake gives to a JSON-RPC error."""
    return {-32601: 404, -32602: 400, -32022: 400}.get(answer.get("error", {}).get("code"), 200)


class _Handler(BaseHTTPRequestHandler):
    server: Bridge

    def do_POST(self) -> None:
        if not self._is_local():
            self._reply(403, {"error": "not from this machine"})
            return
        try:
            message = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
        except ValueError:
            self._reply(
                400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
            )
            return
        session, child = self.server.child_for(self.headers.get("mcp-session-id"), message)
        if child is None:
            self._reply(404, {"error": "no such session"})
        elif "id" not in message or "method" not in message:
            child.send(message)
            self._reply(202, None)
        else:
            answer = child.ask(message)
            modern = self.headers.get("mcp-session-id") is None and session is None
            self._reply(_status(answer) if modern else 200, answer, session)

    def do_GET(self) -> None:
        self._reply(405, None)

    def do_DELETE(self) -> None:
        self.server.end(self.headers.get("mcp-session-id"))
        self._reply(200, None)

    def _is_local(self) -> bool:
        host = self.headers.get("host", "").rpartition(":")[0]
        origin = self.headers.get("origin")
        return host in LOCAL and (
            origin is None or any(origin.startswith(f"http://{name}") for name in LOCAL)
        )

    def _reply(self, status: int, message: Message | None, session: str | None = None) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if session is not None:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - idem
        return
