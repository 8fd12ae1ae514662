"""The SDK's own client on the installed command over stdio, for tests that are no coroutines.

The client's event loop lives in a thread of its own; a call may be waited for, or started and waited for later.
"""

import json
import os
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Self

from anyio.from_thread import start_blocking_portal
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent, Tool

from tests.support.command import COMMAND
from tests.support.envelope import Envelope
from tests.support.place import Place
from tests.support.processes import children

BOUND_S = 30.0
Reports = list[tuple[float, float | None, str | None]]


class SdkClient:
    """A connected client; `pid` is the process that it started, the broker.

    `mode` is the protocol's era as the SDK names it; under `file_limit_bytes` the broker can make no file longer.
    """

    def __init__(
        self,
        place: Place,
        *,
        mode: str = "legacy",
        file_limit_bytes: int | None = None,
        **changes: str | None,
    ) -> None:
        self.place = place
        self._mode = mode
        limited = [] if file_limit_bytes is None else ["prlimit", f"--fsize={file_limit_bytes}:"]
        program, *arguments = [*limited, COMMAND]
        self._server = StdioServerParameters(
            command=program, args=arguments, env=place.environment(**changes), cwd=place.folder
        )
        self._log = place.folder / "stderr.txt"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            log = stack.enter_context(self._log.open("w"))
            self._portal = stack.enter_context(start_blocking_portal())
            before = children(os.getpid())
            transport = stdio_client(self._server, errlog=log)
            connecting = Client(transport, mode=self._mode, read_timeout_seconds=BOUND_S)
            self.client = stack.enter_context(self._portal.wrap_async_context_manager(connecting))
            (self.pid,) = children(os.getpid()) - before
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def stderr(self) -> str:
        """What the command wrote to its standard error so far."""
        return self._log.read_text(errors="replace")

    def tools(self) -> dict[str, Tool]:
        """Return the server's tools by name."""
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools).tools}

    def start(
        self, tool: str, arguments: dict[str, Any], *, reports: Reports | None = None
    ) -> "Future[CallToolResult]":
        """Begin a call; cancelling the future cancels the call. Progress is appended to `reports`."""

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if reports is not None:
                reports.append((progress, total, message))

        async def call() -> CallToolResult:
            callback = None if reports is None else note
            return await self.client.call_tool(tool, arguments, progress_callback=callback)

        return self._portal.start_task_soon(call)

    def result(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool and return the protocol's result."""
        return self.start(tool, arguments).result(timeout=BOUND_S)

    def call(self, tool: str, arguments: dict[str, Any]) -> Envelope:
        """Call a tool and return its envelope."""
        return envelope_of(self.result(tool, arguments))

    def run(self, command: str, cwd: str | None = None) -> Envelope:
        """Call `run_command`."""
        return self.call("run_command", {"command": command} | ({} if cwd is None else {"cwd": cwd}))

    def explain(self, command: str) -> Envelope:
        """Call `explain_command`."""
        return self.call("explain_command", {"command": command})


def envelope_of(result: CallToolResult) -> Envelope:
    """Return the envelope of a result. Raises AssertionError unless text and structure agree and it is no error."""
    assert not result.is_error, f"a refusal is data, not an error: {result}"
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == result.structured_content
    return Envelope.of(result.structured_content)
