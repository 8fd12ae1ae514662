"""Requests of one client in flight: each gets exactly one answer, or none when the client cancelled it.

Always true: an exception's text never reaches the client; an id that is in flight is not taken twice; a
client with too much in flight is not read any further until some of it is done; of a request that is refused,
or cancelled before its first step, the handlers hear before it is answered. Must not: know a method, save the
two notifications that are about requests themselves.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext

from frontend import jsonrpc
from frontend.eras import Context, Params
from frontend.glimpse import AnyId, Seen
from frontend.tools import CANCELLED_EARLY

REQUESTS_HELD = 320
"""Requests in flight or waiting for their turn, above which no further line is read: later cancellations wait too."""

HELD_BYTES = 32 * 1024 * 1024
"""The same for the bytes of their lines; one line of any allowed length is always taken."""

ENDING_S = 0.2
"""How long the end may wait until the trail knows of calls that were not handled yet."""

_TRANSPORT = TransportContext(kind="stdio", can_send_request=False)
_CANCELLED = "notifications/cancelled"
_ENDING = "The server is ending"


class Handlers(Protocol):
    """What answers: see `eras.Eras`."""

    def open(self, method: str, params: Params) -> None:
        """See a request before it is handled."""

    async def on_request(self, context: Context, method: str, params: Params) -> dict[str, Any]:
        """Return a request's result."""

    async def on_notify(self, context: Context, method: str, params: Params) -> None:
        """Take a notification."""

    def note_lost(self, seen: Seen, fault: str) -> Coroutine[None, None, None] | None:
        """Return what must be done before a message that will not be handled is answered, None if nothing."""


class RequestContext:
    """One request's way back to the client; implements the SDK's DispatchContext.

    Closed, it says nothing any more.
    """

    transport = _TRANSPORT
    can_send_request = False
    message_metadata = None

    def __init__(self, conversation: "Conversation", message: jsonrpc.Message) -> None:
        self.request_id = message.id
        self._conversation = conversation
        self._token = progress_token_from_params(message.params) if message.id is not None else None
        self._last_progress = -1.0
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_closed = False

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: a cancelled request's task is cancelled, as the SDK does by default."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refuse: this server asks its client nothing."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification while the request is in flight."""
        if not self.is_closed:
            await self._conversation.notify(method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to a client that gave a token; it must rise with each report."""
        if self._token is None or progress <= self._last_progress:
            return
        self._last_progress = progress
        params = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        await self.notify(
            "notifications/progress", {key: value for key, value in params.items() if value is not None}
        )

    def close(self) -> None:
        """Say nothing more about this request."""
        self.is_closed = True

    def cancel(self) -> None:
        """Close, and cancel the task if it has begun: before its first step it would never know, so it looks."""
        self.close()
        if self.has_begun and self.task is not None:
            self.task.cancel()


class Conversation(Outbound):
    """Takes lines and writes answers. `on_change` is called whenever a request is done."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None], on_change: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._write = write
        self._on_change = on_change
        self._handlers: Handlers | None = None
        self._in_flight: dict[jsonrpc.RequestId, RequestContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_bytes = 0

    def serve(self, handlers: Handlers) -> None:
        """Set who answers; before the first line."""
        self._handlers = handlers

    @property
    def is_idle(self) -> bool:
        """Whether every message is done with."""
        return not self._tasks

    @property
    def is_full(self) -> bool:
        """Whether no further line should be taken now."""
        return len(self._tasks) >= REQUESTS_HELD or self._held_bytes >= HELD_BYTES

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refuse: this server asks its client nothing."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        self._write(jsonrpc.notification(method, None if params is None else dict(params)))

    def receive(self, untrusted_line: bytes | Seen) -> None:
        """Take one line, or what could be seen of one that was too long. Blank lines mean nothing."""
        if isinstance(untrusted_line, Seen):
            limit_mib = jsonrpc.LINE_LIMIT_BYTES // 2**20
            fault = f"Invalid Request: a line is longer than {limit_mib} MiB"
            self._refuse(untrusted_line, jsonrpc.INVALID_REQUEST, fault)
        elif untrusted_line.strip():
            try:
                message_or_none = jsonrpc.decode(untrusted_line)
            except jsonrpc.Invalid as invalid:
                for seen in invalid.seen:
                    self._refuse(seen, invalid.code, invalid.message)
                return
            if message_or_none is not None:
                self._dispatch(message_or_none, len(untrusted_line))

    async def end(self) -> None:
        """Answer what is in flight with an error, and let the handlers hear of what has not begun."""
        for request_id, context in self._in_flight.items():
            context.cancel()
            self._write(jsonrpc.error(request_id, jsonrpc.INTERNAL_ERROR, _ENDING))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING_S)

    def _dispatch(self, message: jsonrpc.Message, line_bytes: int) -> None:
        context = RequestContext(self, message)
        if message.id is None:
            if message.method == _CANCELLED:
                self._cancel((message.params or {}).get("requestId"))
            self._hold(self._notice(context, message), line_bytes)
        elif message.id in self._in_flight:
            fault = "Invalid Request: the id belongs to a request in flight"
            self._refuse(_seen(message), jsonrpc.INVALID_REQUEST, fault, line_bytes)
        else:
            self._handler.open(message.method, message.params)
            self._in_flight[message.id] = context
            context.task = self._hold(self._answer(context, message, message.id), line_bytes)

    def _hold(self, work: Coroutine[Any, Any, None], line_bytes: int) -> asyncio.Task[None]:
        self._held_bytes += line_bytes
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, line_bytes))
        return task

    def _refuse(self, seen: Seen, code: int, fault: str, line_bytes: int = 0) -> None:
        noted = self._handler.note_lost(seen, fault)
        if noted is None:
            self._write(jsonrpc.error(seen.id, code, fault))
        else:
            self._hold(self._answer_refused(noted, seen.id, code, fault), line_bytes)

    async def _answer_refused(
        self, noted: Coroutine[None, None, None], request_id: AnyId | None, code: int, fault: str
    ) -> None:
        await noted
        self._write(jsonrpc.error(request_id, code, fault))

    @property
    def _handler(self) -> Handlers:
        if self._handlers is None:
            raise RuntimeError("nobody serves yet")
        return self._handlers

    def _cancel(self, untrusted_id: object) -> None:
        """Cancel the request that is meant; some clients send a numeric id back as text."""
        if not isinstance(untrusted_id, int | str) or isinstance(untrusted_id, bool):
            return
        context = self._in_flight.get(untrusted_id)
        if (
            context is None
            and isinstance(untrusted_id, str)
            and untrusted_id.isdecimal()
            and len(untrusted_id) < 20
        ):
            context = self._in_flight.get(int(untrusted_id))
        if context is not None and context.request_id is not None:
            # From now on the id is free, though the request may not be done with yet.
            del self._in_flight[context.request_id]
            context.cancel()

    async def _answer(
        self, context: RequestContext, message: jsonrpc.Message, request_id: jsonrpc.RequestId
    ) -> None:
        if context.is_closed:
            noted = self._handler.note_lost(_seen(message), CANCELLED_EARLY)
            if noted is not None:
                await noted
            return
        context.has_begun = True
        try:
            line = await self._line(context, message, request_id)
            if not context.is_closed:
                self._write(line)
        finally:
            context.close()
            if self._in_flight.get(request_id) is context:
                del self._in_flight[request_id]

    def _done(self, line_bytes: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._held_bytes -= line_bytes
        self._on_change()

    async def _line(
        self, context: RequestContext, message: jsonrpc.Message, request_id: jsonrpc.RequestId
    ) -> bytes:
        try:
            return jsonrpc.answer(
                request_id, await self._handler.on_request(context, message.method, message.params)
            )
        except Exception as failure:  # noqa: BLE001 - the one place where a fault becomes an answer
            known = handler_exception_to_error_data(failure)
            if known is None:
                return jsonrpc.error(request_id, jsonrpc.INTERNAL_ERROR, "Internal error")
            return jsonrpc.error(request_id, known.code, known.message, known.data)

    async def _notice(self, context: RequestContext, message: jsonrpc.Message) -> None:
        with contextlib.suppress(Exception):
            # A notification has no answer in which a fault could be told.
            await self._handler.on_notify(context, message.method, message.params)


def _seen(message: jsonrpc.Message) -> Seen:
    return Seen.of(message.id, message.method, message.params)
