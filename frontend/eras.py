"""One client's connection as the SDK's server sees it, in the era of the protocol that its first request opens.

Always true: the first request decides between the handshake era (2024-11-05 to 2025-11-25) and the era in
which every request carries its own envelope (2026-07-28), once; a claim of the other era is refused; a call of
a tool that the SDK refuses, for whatever reason, is reported before it is answered. Must not: read or write.

The SDK's own loop does the same on memory streams, with a task for each hop: that is most of the time of a
call that does nothing. Its kernel, `ServerRunner`, is quick, and used here as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, serve_one
from mcp.shared.dispatcher import DispatchContext, Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp_types import INVALID_REQUEST, PROTOCOL_VERSION_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

from frontend.glimpse import Seen

Context = DispatchContext[TransportContext]
Params = Mapping[str, Any] | None

TOOL_CALL = "tools/call"
SEAL = "untrusted"
"""The one key under which the arguments of a tool call reach its handler, whatever they are."""

_NO_ID = "Invalid Request: a call without an id is not handled"

ReportLost = Callable[[Seen, str], Coroutine[None, None, None] | None]
"""Tells of a tool call that no handler will see, and why; None where it calls no tool of ours."""


class Sealed:
    """The arguments of a tool call, and whether a handler has taken the call."""

    __slots__ = ("is_taken", "untrusted")

    def __init__(self, untrusted: object) -> None:
        self.untrusted = untrusted
        self.is_taken = False

    def take(self) -> object:
        """Return the arguments to the handler, which answers for the call from now on."""
        self.is_taken = True
        return self.untrusted


class Eras:
    """Routes requests and notifications to the server in the era of the connection."""

    def __init__(self, server: Server[Any], outbound: Outbound, report_lost: ReportLost) -> None:
        self._server = server
        self._report_lost = report_lost
        self._state: dict[str, Any] = {}
        self._notify_only = NotifyOnlyOutbound(outbound)
        self._handshake = ServerRunner(server, Connection.for_loop(outbound), self._state)
        self._is_modern: bool | None = None

    def open(self, method: str, params: Params) -> None:
        """Let the first request decide the era; later ones change nothing."""
        if self._is_modern is None:
            self._is_modern = method != "initialize" and _has_envelope(params)

    async def on_request(self, context: Context, method: str, params: Params) -> dict[str, Any]:
        """Return the result of a request. Raises MCPError or pydantic's ValidationError."""
        if method != TOOL_CALL:
            return await self._route(context, method, params)
        given = params or {}
        sealed = Sealed(given.get("arguments", {}))
        try:
            return await self._route(context, method, {**given, "arguments": {SEAL: sealed}})
        except (Exception, asyncio.CancelledError) as failure:
            if not sealed.is_taken:
                await self._report(Seen.of(None, method, given), failure)
            raise

    def note_lost(self, seen: Seen, fault: str) -> Coroutine[None, None, None] | None:
        """Return what reports a message that will not be handled, None if it calls no tool of ours."""
        return self._report_lost(seen, fault) if TOOL_CALL in seen.methods else None

    async def _report(self, seen: Seen, failure: BaseException) -> None:
        known = handler_exception_to_error_data(failure)
        reported = self.note_lost(seen, known.message if known else "internal error")
        if reported is not None:
            await reported

    def _route(self, context: Context, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        if self._is_modern:
            return self._on_modern_request(context, method, params)
        if method != "initialize" and _has_envelope(params):
            raise MCPError(code=INVALID_REQUEST, message="this connection was opened in the handshake era")
        return self._handshake.on_request(context, method, params)

    async def on_notify(self, context: Context, method: str, params: Params) -> None:
        """Hand a notification to the server. A tool call without an id is none, and nothing runs."""
        if method == TOOL_CALL:
            reported = self.note_lost(Seen.of(None, method, params), _NO_ID)
            if reported is not None:
                await reported
            return
        if not self._is_modern:
            await self._handshake.on_notify(context, method, params)
            return
        connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._notify_only)
        await ServerRunner(self._server, connection, self._state).on_notify(context, method, params)

    async def _on_modern_request(self, context: Context, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            raise _no_handshake((params or {}).get("protocolVersion"))
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(code=route.code, message=route.message, data=route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._notify_only
        )
        return await serve_one(
            self._server, context, method, params, connection=connection, lifespan_state=self._state
        )


def _no_handshake(untrusted_requested: object) -> MCPError:
    """Return the error for a handshake that comes too late; like the SDK's, it names what is served."""
    data: dict[str, Any] = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
    if isinstance(untrusted_requested, str):
        data["requested"] = untrusted_requested[:64]
    message = "this connection was opened without a handshake; initialize is not accepted on it"
    return MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message=message, data=data)


def _has_envelope(params: Params) -> bool:
    """Say whether a request carries the protocol version, which only the later era has."""
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
