"""The broker's service without a broker: real frames in, real replies out, every request judged by a stand-in.

Always true: no process, no policy and no kernel layer is involved, so that a hundred thousand streams can be tried; what is
cut, decoded, ordered, answered and refused is the product's own code.
"""

import os
import socket
from types import SimpleNamespace
from typing import Any

from broker.connection import Connection
from broker.service import Service
from protocol import framing
from protocol.messages import AnyReply, CommandResult, Result, ResultCode

RESULT = CommandResult(False, ResultCode.POLICY_DENIED, "", "", None, 0, "refused by a stand-in")
CHUNK_BYTES = 32_768
"""Less than a socket holds, so that sending never waits."""
HELD_BYTES = framing.REQUEST_LIMIT_BYTES + framing.LENGTH_BYTES + 2 * 65_536
"""What a connection may hold of what a frontend sent: one frame, and what one read brought after it."""


class StandIn:
    """Refuses every run, and notes what it was asked and which violations it was told of."""

    def __init__(self) -> None:
        self.judged: list[Any] = []
        self.violations: list[str] = []
        limits = SimpleNamespace(limits=SimpleNamespace(concurrent=4))
        self.gate = SimpleNamespace(
            policy=SimpleNamespace(file=limits, callable=("echo",), describe=lambda: "nothing is allowed")
        )

    def admit(self, request: Any) -> Result:
        self.judged.append(request)
        return Result(request.id, RESULT)

    answer_explain = answer_malformed = admit

    def note_violation(self, reason: str) -> None:
        self.violations.append(reason)


class DrivenService:
    """A service on a socket pair. `feed` it, look at `replies`. To be closed."""

    def __init__(self) -> None:
        ours, self._frontend = socket.socketpair()
        self._frontend.setblocking(False)
        read_fd = ours.detach()
        self.pipeline = StandIn()
        self._connection = Connection(read_fd, os.dup(read_fd))
        broker: Any = SimpleNamespace(pipeline=self.pipeline, reload=lambda: None, close=lambda: None)
        self._service = Service(broker, self._connection)
        self._cutter = framing.Frames(framing.REPLY_LIMIT_BYTES)
        self.replies: list[AnyReply] = []

    def feed(self, untrusted: bytes) -> None:
        """Let the service read `untrusted`, and take what it answers. After a violation nothing is read any more."""
        service = self._service
        for start in range(0, len(untrusted), CHUNK_BYTES):
            if self.ended:
                return
            self._frontend.send(untrusted[start : start + CHUNK_BYTES])
            service._receive()
            self._take()
            while service._interrupted:
                service._flush()
                service._go_on()
                self._take()
            assert self.held_bytes <= HELD_BYTES

    def _take(self) -> None:
        try:
            while data := self._frontend.recv(1 << 20):
                self.replies += [framing.decode_reply(body) for body in self._cutter.feed(data)]
                self._connection.flush()
        except BlockingIOError:
            return

    @property
    def ended(self) -> bool:
        """Whether the frontend broke the protocol."""
        return bool(self.pipeline.violations)

    @property
    def held_bytes(self) -> int:
        """How much of what was fed is held, unanswered."""
        return len(self._connection._frames._untrusted)

    def close(self) -> None:
        """Let go of every descriptor."""
        self._service._close()
        self._frontend.close()
