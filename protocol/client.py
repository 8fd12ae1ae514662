"""The client side of a connection: a core without I/O, and a small blocking client for embedding.

Always true: an id is used once; a reply that answers nothing we asked ends the connection; a command that no
`RunRequest` can carry is reported with `MalformedRequest`, so that the broker's trail knows every call. Must
not: judge a command, or touch anything but the one descriptor that it was given.
"""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from protocol import framing, messages
from protocol.messages import CommandResult, Description, Progress, Refusal, Result, Tool, Welcome

READ_BYTES = 256 * 1024


class BrokerGone(Exception):
    """The connection is over: the broker ended, closed it, or answered what nobody asked."""


class Descriptor(Protocol):
    """Whatever owns a descriptor, a `socket.socket` for one."""

    def fileno(self) -> int:
        """Return the descriptor's number."""

    def close(self) -> None:
        """Close it."""


def excerpt(text: str, limit_characters: int) -> str:
    """Return the beginning of `text` as a `MalformedRequest` can carry it.

    Half surrogates become `\\udXXX`. A text that is cut loses its unfinished word, too: nobody knows half of a secret for one.
    """
    shown = text[: limit_characters + 1].encode("utf-8", "backslashreplace").decode()
    if len(shown) <= limit_characters:
        return shown
    end = max(shown.rfind(blank, limit_characters // 2, limit_characters - 1) for blank in " \t\n")
    return shown[: end if end >= 0 else limit_characters - 1] + "…"


def fault_in_text(name: str, text: str, limit_characters: int) -> str | None:
    """Say why `text` cannot travel in a request, or None if it can."""
    if len(text) > limit_characters:
        return f"{name} has {len(text)} characters; at most {limit_characters} are allowed"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{name} is not valid Unicode: it holds half of a surrogate pair"
    return None


class ClientConnection:
    """The state of one connection. Feed it what was read, write what it returns; it does no I/O itself.

    Every request method returns the request's id and the frame to send. They may be called before the
    handshake's answer has come: frames are handled in order.
    """

    def __init__(self, frontend: str) -> None:
        self.welcome: Welcome | None = None
        self._frontend = frontend
        self._frames = framing.Frames(framing.REPLY_LIMIT_BYTES)
        self._last_id = 0
        self._unanswered: dict[int, type[Result | Description]] = {}

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answer; more than `welcome.in_flight` is a violation."""
        return len(self._unanswered)

    def hello(self) -> bytes:
        """Return the first frame."""
        return framing.encode(messages.HelloRequest(messages.PROTOCOL_VERSION, self._frontend))

    def run(self, command: str, cwd: str | None = None, *, progress: bool = False) -> tuple[int, bytes]:
        """Ask for a run; what no `RunRequest` can carry is reported as malformed instead."""
        fault = fault_in_text("command", command, messages.COMMAND_CHARACTERS)
        if fault is None and cwd is not None:
            fault = fault_in_text("cwd", cwd, messages.PATH_CHARACTERS)
        if fault is not None:
            return self.malformed(Tool.RUN, command, fault)
        request_id = self._next(Result)
        return request_id, framing.encode(messages.RunRequest(request_id, command, cwd, progress))

    def explain(self, command: str) -> tuple[int, bytes]:
        """Ask for a verdict; what no `ExplainRequest` can carry is reported as malformed instead."""
        fault = fault_in_text("command", command, messages.COMMAND_CHARACTERS)
        if fault is not None:
            return self.malformed(Tool.EXPLAIN, command, fault)
        request_id = self._next(Result)
        return request_id, framing.encode(messages.ExplainRequest(request_id, command))

    def malformed(self, tool: Tool, arguments: str, problem: str) -> tuple[int, bytes]:
        """Report a call whose arguments were none; both texts are cut to what fits."""
        request_id = self._next(Result)
        shown = excerpt(arguments, messages.ARGUMENTS_CHARACTERS)
        reason = excerpt(problem, messages.PROBLEM_CHARACTERS)
        report = messages.MalformedRequest(request_id, tool, shown, reason)
        return request_id, framing.encode(report)

    def describe(self) -> tuple[int, bytes]:
        """Ask for the policy in force."""
        request_id = self._next(Description)
        return request_id, framing.encode(messages.DescribeRequest(request_id))

    def cancel(self, request_id: int) -> bytes:
        """Return the frame that kills a run. Its result still comes."""
        return framing.encode(messages.CancelRequest(request_id))

    def feed(self, data: bytes) -> list[Welcome | Result | Progress | Description]:
        """Return the replies that `data` completes; b"" is the end of the stream. Raises BrokerGone."""
        if not data:
            raise BrokerGone("the broker closed the connection")
        try:
            replies = [framing.decode_reply(body) for body in self._frames.feed(data)]
        except framing.ProtocolViolation as violation:
            raise BrokerGone(str(violation)) from None
        return [self._expected(reply) for reply in replies]

    def _next(self, answer: type[Result | Description]) -> int:
        self._last_id += 1
        self._unanswered[self._last_id] = answer
        return self._last_id

    def _expected(self, reply: messages.AnyReply) -> Welcome | Result | Progress | Description:
        if isinstance(reply, Refusal):
            raise BrokerGone(f"the broker refused to go on: {reply.reason}")
        if isinstance(reply, Welcome):
            return self._welcomed(reply)
        asked_for = self._unanswered.get(reply.id)
        if isinstance(reply, Progress):
            if asked_for is not Result:
                raise BrokerGone(f"progress of {reply.id}, which does not run")
        elif asked_for is not type(reply):
            raise BrokerGone(f"an answer to {reply.id}, which was not asked")
        else:
            del self._unanswered[reply.id]
        return reply

    def _welcomed(self, welcome: Welcome) -> Welcome:
        if self.welcome is not None:
            raise BrokerGone("a second welcome")
        if welcome.version != messages.PROTOCOL_VERSION:
            raise BrokerGone(f"the broker speaks version {welcome.version}, not {messages.PROTOCOL_VERSION}")
        self.welcome = welcome
        return welcome


class BrokerClient:
    """One call at a time over a blocking stream socket (or its descriptor's number), which it closes.

    Source of the message shapes: docs/protocol.md. Not for use by several threads at once.
    """

    def __init__(self, broker: Descriptor | int, frontend: str = "embedded") -> None:
        """Shake hands. Raises BrokerGone."""
        self._broker = broker
        self._fd = broker if isinstance(broker, int) else broker.fileno()
        self._connection = ClientConnection(frontend)
        self._send(self._connection.hello())
        while self._connection.welcome is None:
            self._connection.feed(self._read())
        self.welcome = self._connection.welcome

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs that the policy lets a client call."""
        return self.welcome.programs

    def run(
        self, command: str, cwd: str | None = None, on_progress: Callable[[Progress], None] | None = None
    ) -> CommandResult:
        """Run `command` if the policy lets it; return its envelope, refused or not. Raises BrokerGone."""
        return self._result(self._connection.run(command, cwd, progress=on_progress is not None), on_progress)

    def explain(self, command: str) -> CommandResult:
        """Return the verdict on `command` without running it. Raises BrokerGone."""
        return self._result(self._connection.explain(command))

    def describe(self) -> Description:
        """Return the policy in force, as text and as the names of its programs. Raises BrokerGone."""
        request_id, frame = self._connection.describe()
        answer = self._answer(request_id, frame, None)
        assert isinstance(answer, Description)  # noqa: S101 - the connection has compared it with what was asked
        return answer

    def close(self) -> None:
        """Close the connection; the broker then kills what still runs for it."""
        if isinstance(self._broker, int):
            os.close(self._broker)
        else:
            self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _result(
        self, request: tuple[int, bytes], on_progress: Callable[[Progress], None] | None = None
    ) -> CommandResult:
        answer = self._answer(*request, on_progress)
        assert isinstance(answer, Result)  # noqa: S101 - the connection has compared it with what was asked
        return answer.result

    def _answer(
        self, request_id: int, frame: bytes, on_progress: Callable[[Progress], None] | None
    ) -> Result | Description:
        self._send(frame)
        while True:
            for reply in self._connection.feed(self._read()):
                if isinstance(reply, Progress):
                    if on_progress is not None and reply.id == request_id:
                        on_progress(reply)
                elif isinstance(reply, Result | Description) and reply.id == request_id:
                    return reply

    def _send(self, frame: bytes) -> None:
        rest = memoryview(frame)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise BrokerGone(f"writing to the broker failed: {error.strerror}") from None

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, READ_BYTES)
        except OSError as error:
            raise BrokerGone(f"reading from the broker failed: {error.strerror}") from None
