"""What the SDK's low-level server answers: two tools and one resource, each by asking the broker.

Always true: a call of a tool that exists gets an envelope, whatever its arguments are and whatever fails; a
refusal is data, not an error. The tool layer itself is `tools`; this is its only translation into the SDK's
types.
"""

from collections.abc import Coroutine
from importlib import metadata
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from frontend import tools
from frontend.broker_link import BrokerLink, Reporter
from frontend.eras import SEAL
from frontend.glimpse import Seen
from protocol.messages import CommandResult, Progress, Tool

NAME = "hardened-terminal-mcp"
RESOURCE_NOT_FOUND = -32602
"""Invalid params, as the 2026-07-28 revision has it; the code of earlier ones, -32002, is retired there."""

Context = ServerRequestContext[Any, Any]


class Answers:
    """The handlers of one connection."""

    def __init__(self, link: BrokerLink, programs: tuple[str, ...]) -> None:
        self._link = link
        texts = tools.descriptions(programs)
        self._tools = types.ListToolsResult(tools=[_tool(tool, texts[tool]) for tool in Tool])
        self._resources = types.ListResourcesResult(resources=[_policy_resource()])

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Answer `tools/list`."""
        return self._tools

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Answer `tools/call`. An unknown tool is an error of the protocol, anything else an envelope."""
        if params.name not in _NAMES:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool; there are: {', '.join(_NAMES)}")
        sealed = (params.arguments or {})[SEAL]
        call = tools.read_call(Tool(params.name), sealed.take())
        return _as_tool_result(await self._link.call(call, _reporter(context)))

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Answer `resources/list`."""
        return self._resources

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Answer `resources/templates/list`, which clients ask of everybody who has resources."""
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Answer `resources/read`."""
        if params.uri != tools.POLICY_URI:
            raise MCPError(code=RESOURCE_NOT_FOUND, message=f"Unknown resource; there is: {tools.POLICY_URI}")
        description = await self._link.describe()
        if description is None:
            raise MCPError(code=types.INTERNAL_ERROR, message="Internal error")
        text = types.TextResourceContents(uri=tools.POLICY_URI, mime_type="text/plain", text=description.text)
        return types.ReadResourceResult(contents=[text])


def report_lost(link: BrokerLink, seen: Seen, fault: str) -> Coroutine[None, None, None] | None:
    """Return what tells the broker of a tool call that no handler will see, None if it names no tool of ours."""
    tool = next((name for name in seen.names if name in _NAMES), None)
    if not isinstance(tool, str):
        return None
    arguments = seen.arguments
    # what could not be read goes on escapes and all: what they hide, the broker looks for
    is_excerpt = isinstance(arguments, bytes)
    shown = arguments.decode("utf-8", "backslashreplace") if is_excerpt else tools.shown(arguments)
    return _report(link, tools.Malformed(Tool(tool), shown, fault))


async def _report(link: BrokerLink, call: tools.Malformed) -> None:
    await link.call(call)


def server(link: BrokerLink, programs: tuple[str, ...]) -> Server[Any]:
    """Return the server of one connection."""
    answers = Answers(link, programs)
    made: Server[Any] = Server(
        NAME,
        version=metadata.version(NAME),
        title="Hardened terminal",
        instructions=tools.instructions(programs),
        on_list_tools=answers.list_tools,
        on_call_tool=answers.call_tool,
        on_list_resources=answers.list_resources,
        on_list_resource_templates=answers.list_templates,
        on_read_resource=answers.read_resource,
    )
    # Tracing is on by default and a third of the server's own time; a process without network has nobody to send to.
    made.middleware.clear()
    return made


_NAMES = tuple(tool.value for tool in Tool)


def _tool(tool: Tool, description: str) -> types.Tool:
    hints = tools.HINTS[tool]
    return types.Tool(
        name=tool.value,
        title=tools.TITLES[tool],
        description=description,
        input_schema=tools.INPUT_SCHEMAS[tool],
        output_schema=tools.OUTPUT_SCHEMA,
        annotations=types.ToolAnnotations(
            title=tools.TITLES[tool],
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


def _policy_resource() -> types.Resource:
    return types.Resource(
        uri=tools.POLICY_URI,
        name="policy",
        title="Policy in force",
        description="Which programs may be called, with which arguments, and what each may do.",
        mime_type="text/plain",
    )


def _reporter(context: Context) -> Reporter | None:
    """Return what tells the client about progress, None if it gave no token."""
    if not context.meta or "progress_token" not in context.meta:
        return None

    async def report(progress: Progress) -> None:
        written_bytes = progress.stdout_bytes + progress.stderr_bytes
        elapsed_s = progress.elapsed_ms / 1000
        await context.session.report_progress(
            elapsed_s, None, f"{elapsed_s:.1f} s, {written_bytes} bytes of output"
        )

    return report


def _as_tool_result(result: CommandResult) -> types.CallToolResult:
    text = types.TextContent(type="text", text=tools.as_text(result))
    return types.CallToolResult(
        content=[text], structured_content=tools.as_structured(result), is_error=False
    )
