"""Requests of one client in flight: each gets exactly one answer, or none when the client cancelled it.

Always true: an exception's text never reaches the client; an id that is in flight is not taken twice; a
client with too much in flight is not read any further until some of it is done. Must not: know a method, save
the two notifications that are about requests themselves.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext

from frontend import jsonrpc
from frontend.eras import Context, Params

REQUESTS_HELD = 320
"""Requests in flight or waiting for their turn, above which no further line is read: later cancellations wait too."""

HELD_BYTES = 32 * 1024 * 1024
"""The same for the bytes of their lines; one line of any allowed length is always taken."""

_TRANSPORT = TransportContext(kind="stdio", can_send_request=False)
_CANCELLED = "notifications/cancelled"


class Handlers(Protocol):
    """What answers: see `eras.Eras`."""

    def open(self, method: str, params: Params) -> None:
        """See a request before it is handled."""

    async def on_request(self, context: Context, method: str, params: Params) -> dict[str, Any]:
        """Return a request's result."""

    async def on_notify(self, context: Context, method: str, params: Params) -> None:
        """Take a notification."""


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
        self._closed = False

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
        if not self._closed:
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
        self._closed = True


class Conversation(Outbound):
    """Takes lines and writes answers. `on_change` is called whenever a request is done."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None], on_change: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._write = write
        self._on_change = on_change
        self._handlers: Handlers | None = None
        self._in_flight: dict[jsonrpc.RequestId, asyncio.Task[None]] = {}
        self._notifications: set[asyncio.Task[None]] = set()
        self._held_bytes = 0

    def serve(self, handlers: Handlers) -> None:
        """Set who answers; before the first line."""
        self._handlers = handlers

    @property
    def is_idle(self) -> bool:
        """Whether every request has had its answer."""
        return not self._in_flight

    @property
    def is_full(self) -> bool:
        """Whether no further line should be taken now."""
        return len(self._in_flight) >= REQUESTS_HELD or self._held_bytes >= HELD_BYTES

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refuse: this server asks its client nothing."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        self._write(jsonrpc.notification(method, None if params is None else dict(params)))

    def receive(self, untrusted_line: bytes | None) -> None:
        """Take one line; None stands for one that was too long. Blank lines mean nothing."""
        if untrusted_line is None:
            limit_mib = jsonrpc.LINE_LIMIT_BYTES // 2**20
            message = f"Invalid Request: a line is longer than {limit_mib} MiB"
            self._write(jsonrpc.error(None, jsonrpc.INVALID_REQUEST, message))
        elif untrusted_line.strip():
            try:
                message_or_none = jsonrpc.decode(untrusted_line)
            except jsonrpc.Invalid as invalid:
                self._write(jsonrpc.error(invalid.id, invalid.code, invalid.message))
                return
            if message_or_none is not None:
                self._dispatch(message_or_none, len(untrusted_line))

    def _dispatch(self, message: jsonrpc.Message, line_bytes: int) -> None:
        if message.id is None:
            self._take_notification(message)
        elif message.id in self._in_flight:
            fault = "Invalid Request: the id belongs to a request in flight"
            self._write(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, fault))
        else:
            self._handler.open(message.method, message.params)
            self._held_bytes += line_bytes
            task = self._in_flight[message.id] = self._loop.create_task(self._answer(message, message.id))
            # Not in a `finally` of the task: one that is cancelled before its first step never enters its `try`.
            task.add_done_callback(functools.partial(self._done, message.id, line_bytes))

    def _take_notification(self, message: jsonrpc.Message) -> None:
        if message.method == _CANCELLED:
            self._cancel((message.params or {}).get("requestId"))
        task = self._loop.create_task(self._notice(message))
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    @property
    def _handler(self) -> Handlers:
        if self._handlers is None:
            raise RuntimeError("nobody serves yet")
        return self._handlers

    def _cancel(self, untrusted_id: object) -> None:
        """Cancel the request that is meant; some clients send a numeric id back as text."""
        if not isinstance(untrusted_id, int | str) or isinstance(untrusted_id, bool):
            return
        task = self._in_flight.get(untrusted_id)
        if (
            task is None
            and isinstance(untrusted_id, str)
            and untrusted_id.isdecimal()
            and len(untrusted_id) < 20
        ):
            task = self._in_flight.get(int(untrusted_id))
        if task is not None:
            task.cancel()

    async def _answer(self, message: jsonrpc.Message, request_id: jsonrpc.RequestId) -> None:
        context = RequestContext(self, message)
        try:
            self._write(await self._line(context, message, request_id))
        finally:
            context.close()

    def _done(self, request_id: jsonrpc.RequestId, line_bytes: int, _: asyncio.Task[None]) -> None:
        del self._in_flight[request_id]
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

    async def _notice(self, message: jsonrpc.Message) -> None:
        context = RequestContext(self, message)
        with contextlib.suppress(Exception):
            # A notification has no answer in which a fault could be told.
            await self._handler.on_notify(context, message.method, message.params)
