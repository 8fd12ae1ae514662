"""The broker's event loop: one frontend, its requests, the commands that run for it, and how all of that ends.

Always true: nothing here blocks but the wait for events; at most `IN_FLIGHT` requests are unanswered; replies that the frontend
does not take stop further commands from starting; when the loop ends, every command is dead and every attempt has its outcome.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from broker.connection import Connection
from broker.execution import Completed, Running
from broker.notice import warn
from broker.pipeline import Admitted, Pipeline
from broker.processors import Together
from broker.refusal import ExecutorError
from protocol.framing import ProtocolViolation
from protocol.messages import (
    PROTOCOL_VERSION,
    AnyReply,
    AnyRequest,
    CancelRequest,
    DescribeRequest,
    Description,
    ExplainRequest,
    HelloRequest,
    MalformedRequest,
    Progress,
    Refusal,
    RunRequest,
    Welcome,
)

IN_FLIGHT = 256
"""How many requests of one frontend may be unanswered at once."""
WAITING_CHARACTERS = 2_000_000
"""How long the commands that wait for their turn may be together: 256 of the longest would be 100 MB in several copies."""
REQUESTS_PER_TURN = 64
"""After so many, signals and commands that ended have their turn: a flood of requests must not hold them up."""
TURN_S = 0.1
"""After so long as well: one request may take `beneath.SECONDS` to judge."""
UNSENT_LIMIT_BYTES = 1024 * 1024
"""While more than this waits for the frontend to read, no further command starts and no request is read."""
PROGRESS_INTERVAL_S = 1.0
DRAIN_S = 1.0
"""How long the last replies may take to be read once the broker is ending."""
CLEAN_S = 1.0
"""How long an answer may wait for the kill of what its command left, which the thread of the call does meanwhile."""
KILL_S = 2.0
"""How long commands may take to be killed one by one; what is left then is killed all at once."""
INTERRUPT_PATIENCE_S = 0.3
"""How long the frontend may take to end by itself after Ctrl-C."""
TOO_LONG_A_QUEUE = "too many long commands wait for their turn; ask again when some have ended"
REASON_CHARACTERS = 300
EXIT_VIOLATION = 76
"""The exit status after a frontend broke the protocol (EX_PROTOCOL of sysexits.h)."""


class Broker(Protocol):
    """What is served: the pipeline, and how it is reloaded and ended."""

    pipeline: Pipeline

    def reload(self) -> None:
        """Take the policy as it stands now."""

    def close(self) -> None:
        """Kill what runs, and close the trail."""


class Service:
    """Serves one connection until its frontend is gone, breaks the protocol, or a signal ends the broker.

    `forward`: where the broker is for one call, each signal ends it, and is the frontend's to answer with its status.
    """

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self._broker = broker
        self._pipeline = broker.pipeline
        self._connection = connection
        self._concurrent = broker.pipeline.gate.policy.file.limits.concurrent
        self._waiting: dict[int, Admitted] = {}  # oldest first; a million cancels must not search it
        self._running: dict[int, tuple[Admitted, Running]] = {}
        self._done: deque[tuple[int, Completed]] = deque()
        self._together = Together()
        self._last_id = 0
        self._interrupted = False
        self._next_progress = 0.0
        self._ending: float | None = None
        self._status: int | None = None
        self.patience_s = 0.0
        self.forward: Callable[[signal.Signals], None] | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._signals_r, self._signals_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._answers: dict[type, Callable[..., None]] = {
            HelloRequest: self._answer_hello,
            RunRequest: self._answer_run,
            ExplainRequest: lambda request: self._send(self._pipeline.answer_explain(request)),
            MalformedRequest: lambda request: self._send(self._pipeline.answer_malformed(request)),
            CancelRequest: self._answer_cancel,
            DescribeRequest: self._answer_describe,
        }

    def serve(self) -> int | None:
        """Run until the end, then close all. Returns None if the frontend left, 0 after a signal, or `EXIT_VIOLATION`."""
        try:
            return self._loop()
        finally:
            self._broker.close()
            self._close()

    def _loop(self) -> int | None:
        self._watch_signals()
        self._want(self._wake_fd, select.EPOLLIN, self._collect)
        self._want(self._signals_r, select.EPOLLIN, self._take_signals)
        while not self._finished():
            self._adjust_interest()
            for fd, _ in self._epoll.poll(self._patience_s()):
                self._actions[fd]()
            self._go_on()
            self._report_progress()
        return self._status

    def _finished(self) -> bool:
        if self._connection.end_of_file:
            self._end(None)
        if self._ending is None:
            return False
        if self._running:
            return time.monotonic() > self._ending + KILL_S
        gone = self._connection.end_of_file or not self._connection.unsent_bytes
        return gone or time.monotonic() > self._ending

    def _patience_s(self) -> float | None:
        if self._interrupted and not self._congested:
            return 0.0
        if self._ending is not None:
            left_s = self._ending - time.monotonic() + (KILL_S if self._running else 0.0)
            return max(0.0, left_s)
        if any(admitted.request.progress for admitted, _ in self._running.values()):
            return max(0.0, self._next_progress - time.monotonic())
        return None

    @property
    def _congested(self) -> bool:
        return self._connection.unsent_bytes > UNSENT_LIMIT_BYTES

    def _adjust_interest(self) -> None:
        reading = self._ending is None and not self._congested and not self._interrupted
        self._want(self._connection.read_fd, select.EPOLLIN, self._receive if reading else None)
        sending = self._connection.unsent_bytes > 0
        self._want(self._connection.write_fd, select.EPOLLOUT, self._flush if sending else None)

    def _want(self, fd: int, event: int, action: Callable[[], None] | None) -> None:
        if (action is not None) is (fd in self._actions):
            return
        if action is None:
            self._epoll.unregister(fd)
            del self._actions[fd]
        else:
            self._epoll.register(fd, event)
            self._actions[fd] = action

    # What the frontend sends

    def _receive(self) -> None:
        self._take(self._connection.receive())

    def _go_on(self) -> None:
        if self._interrupted and not self._congested:
            self._take(self._connection.held())

    def _take(self, requests: Iterator[AnyRequest]) -> None:
        """Answer one turn's requests. What is whole but not answered yet stays undecoded: one read holds thousands,
        whose replies together may be a thousand times as long.
        """
        self._interrupted = False
        until = time.monotonic() + TURN_S
        try:
            for turn, request in enumerate(requests, start=1):
                self._answer(request)
                if self._congested or turn == REQUESTS_PER_TURN or time.monotonic() > until:
                    self._interrupted = True
                    return
        except ProtocolViolation as violation:
            self._break_off(str(violation))

    def _flush(self) -> None:
        self._connection.flush()
        self._start_waiting()

    def _answer(self, request: AnyRequest) -> None:
        if not isinstance(request, HelloRequest | CancelRequest):
            if request.id <= self._last_id:
                raise ProtocolViolation("a request id that is not above the last one")
            self._last_id = request.id
        self._answers[type(request)](request)

    def _answer_hello(self, request: HelloRequest) -> None:
        if request.version != PROTOCOL_VERSION:
            raise ProtocolViolation(
                f"protocol version {request.version}; this broker speaks {PROTOCOL_VERSION}"
            )
        self._send(Welcome(PROTOCOL_VERSION, self._pipeline.gate.policy.callable, IN_FLIGHT))

    def _answer_describe(self, request: DescribeRequest) -> None:
        policy = self._pipeline.gate.policy
        self._send(Description(request.id, policy.describe(), policy.callable))

    def _answer_run(self, request: RunRequest) -> None:
        if len(self._running) + len(self._waiting) >= IN_FLIGHT:
            raise ProtocolViolation(f"more than {IN_FLIGHT} requests in flight")
        admitted = self._pipeline.admit(request)
        if not isinstance(admitted, Admitted):
            self._send(admitted)
            return
        waiting = self._waiting.values()
        if waiting and sum(len(each.request.command) for each in waiting) > WAITING_CHARACTERS:
            self._send(self._pipeline.refuse_admitted(admitted, ExecutorError(TOO_LONG_A_QUEUE)))
            return
        self._waiting[request.id] = admitted
        self._start_waiting()

    def _answer_cancel(self, request: CancelRequest) -> None:
        if request.id in self._running:
            self._running[request.id][1].cancel()
        elif request.id in self._waiting:
            self._send(self._pipeline.cancelled(self._waiting.pop(request.id)))

    def _break_off(self, untrusted_reason: str) -> None:
        reason = untrusted_reason[:REASON_CHARACTERS]  # it may quote a field that the frontend made up
        self._pipeline.note_violation(reason)
        warn(f"the frontend broke the protocol: {reason}")
        self._send(Refusal(reason))
        self._end(EXIT_VIOLATION)

    def _send(self, reply: AnyReply) -> None:
        # a refusal is the last frame; what still ends is recorded, not told
        if self._status != EXIT_VIOLATION:
            self._connection.send(reply)

    # Commands

    def _start_waiting(self) -> None:
        while self._waiting and self._may_start():
            request_id = next(iter(self._waiting))
            admitted = self._waiting.pop(request_id)
            started = self._pipeline.start(admitted, partial(self._finished_in_thread, request_id))
            if isinstance(started, Running):
                self._running[request_id] = (admitted, started)
                self._together.look(len(self._running))
            else:
                self._send(started)

    def _may_start(self) -> bool:
        return self._ending is None and len(self._running) < self._concurrent and not self._congested

    def _finished_in_thread(self, request_id: int, completed: Completed) -> None:
        self._done.append((request_id, completed))
        os.eventfd_write(self._wake_fd, 1)

    def _collect(self) -> None:
        os.eventfd_read(self._wake_fd)
        while self._done:
            request_id, completed = self._done.popleft()
            admitted, running = self._running.pop(request_id)
            reply = self._pipeline.answer_run(admitted, completed)
            running.ended.wait(CLEAN_S)
            self._send(reply)
        self._start_waiting()
        self._together.look(len(self._running))

    def _report_progress(self) -> None:
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_INTERVAL_S
        if self._connection.unsent_bytes:
            return
        for request_id, (admitted, running) in self._running.items():
            if admitted.request.progress:
                self._send(Progress(request_id, *running.progress()))

    # The end

    def _watch_signals(self) -> None:
        signal.set_wakeup_fd(self._signals_w, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _take_signals(self) -> None:
        numbers = os.read(self._signals_r, 4096)
        if self.forward is not None:
            self.patience_s = INTERRUPT_PATIENCE_S
            self.forward(signal.Signals(numbers[0]))
            self._end(0)
        elif signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.patience_s = 0.0 if signal.SIGTERM in numbers else INTERRUPT_PATIENCE_S
            self._end(0)
        elif signal.SIGHUP in numbers:
            self._broker.reload()

    def _end(self, status: int | None) -> None:
        if self._ending is not None:
            return
        self._ending = time.monotonic() + DRAIN_S
        self._status = status
        self._interrupted = False
        for admitted in self._waiting.values():
            self._send(self._pipeline.cancelled(admitted))
        self._waiting.clear()
        for _, running in self._running.values():
            running.cancel()

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._epoll.close()
        self._connection.close()
        for fd in (self._wake_fd, self._signals_r, self._signals_w):
            os.close(fd)
