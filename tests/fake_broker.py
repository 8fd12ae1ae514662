"""A broker that judges nothing: it speaks the protocol from its own thread, so that a frontend can be tested alone.

Commands are orders to it: `echo TEXT` answers TEXT, `deny` is refused, `big N` answers N characters, `hold` waits until
`release()` or a cancellation, `progress` reports twice and then waits likewise, `die` closes the connection at once.
"""

import queue
import socket
import threading
from types import TracebackType
from typing import Self

from protocol import framing, messages
from protocol.messages import CommandResult, ResultCode

WAIT_S = 20
PROGRAMS = ("cat", "echo", "ls")


def envelope(code=ResultCode.OK, stdout="", stderr="", exit_code=0, reason="allowed"):
    ok = code in (ResultCode.OK, ResultCode.OUTPUT_TRUNCATED)
    return CommandResult(ok, code, stdout, stderr, exit_code, 1, reason)


class FakeBroker:
    """Serves one connection; `requests` gets every request in the order of arrival."""

    def __init__(self, in_flight: int = 4, programs: tuple[str, ...] = PROGRAMS) -> None:
        self.frontend, self._socket = socket.socketpair()
        self._in_flight = in_flight
        self._programs = programs
        self.requests: queue.SimpleQueue[messages.AnyRequest] = queue.SimpleQueue()
        self.received: list[messages.AnyRequest] = []
        self.most_unanswered = 0
        self.holds = True
        self._held: dict[int, str] = {}
        self._unanswered: set[int] = set()
        self._taking = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._thread.join(WAIT_S)
        self.frontend.close()
        self._socket.close()

    def next_request(self):
        """Return the next request that has not been looked at; the handshake is not shown."""
        return self.requests.get(timeout=WAIT_S)

    def forget(self) -> None:
        """Start counting anew, for a test that shares this broker with others."""
        with self._taking:  # the last request may be answered and not shown yet
            self.received.clear()
            self.most_unanswered = 0
            self.holds = True
            while not self.requests.empty():
                self.requests.get()

    def release(self) -> None:
        """Answer every call that is held."""
        for request_id in tuple(self._held):
            self._finish(request_id, envelope(stdout="released\n"))

    def kill(self) -> None:
        """Close the connection."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def send(self, reply: messages.AnyReply) -> None:
        self.send_bytes(framing.encode(reply))

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            return

    def _serve(self) -> None:
        frames = framing.Frames(framing.REQUEST_LIMIT_BYTES)
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                return
            if not data:
                return
            for body in frames.feed(data):
                with self._taking:
                    self._take(framing.decode_request(body))

    def _take(self, request: messages.AnyRequest) -> None:
        if isinstance(request, messages.HelloRequest):
            self.send(messages.Welcome(request.version, self._programs, self._in_flight))
            return
        self.received.append(request)
        if not isinstance(request, messages.CancelRequest):
            self._unanswered.add(request.id)
            self.most_unanswered = max(self.most_unanswered, len(self._unanswered))
        self._answer(request)
        self.requests.put(request)

    def _answer(self, request: messages.AnyRequest) -> None:
        if isinstance(request, messages.CancelRequest):
            if request.id in self._held:
                self._finish(
                    request.id, envelope(ResultCode.EXECUTOR_ERROR, exit_code=None, reason="cancelled")
                )
        elif isinstance(request, messages.MalformedRequest):
            self._finish(request.id, envelope(ResultCode.PARSE_ERROR, exit_code=None, reason=request.problem))
        elif isinstance(request, messages.DescribeRequest):
            self._unanswered.discard(request.id)
            self.send(messages.Description(request.id, "the policy as text", self._programs))
        elif isinstance(request, messages.ExplainRequest):
            self._finish(request.id, envelope(exit_code=None))
        elif isinstance(request, messages.RunRequest):
            self._run(request)

    def _run(self, request: messages.RunRequest) -> None:
        order, _, rest = request.command.partition(" ")
        if order == "hold" and self.holds:
            self._held[request.id] = request.command
        elif order == "die":
            self.kill()
        elif order == "progress":
            self._held[request.id] = request.command
            for step in (1, 2):
                self.send(messages.Progress(request.id, step * 1000, step * 10, 0))
        elif order == "deny":
            refusal = envelope(ResultCode.POLICY_DENIED, exit_code=None, reason="`deny` is not on the list")
            self._finish(request.id, refusal)
        elif order == "big":
            self._finish(request.id, envelope(stdout="x" * int(rest)))
        elif order == "result":
            code, exit_code, stdout, stderr = rest.split(",")
            status = int(exit_code) if exit_code else None
            self._finish(request.id, envelope(ResultCode(code), stdout, stderr, status, "because"))
        else:
            self._finish(request.id, envelope(stdout=rest + "\n"))

    def _finish(self, request_id: int, result: CommandResult) -> None:
        self._held.pop(request_id, None)
        self._unanswered.discard(request_id)
        self.send(messages.Result(request_id, result))
