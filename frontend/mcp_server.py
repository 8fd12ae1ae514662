"""The MCP frontend: `python -I -m frontend.mcp_server`, started by the broker with HTMCP_BROKER_FD naming its socket.

Always true: no traceback and no warning leaves it, from the first import on; everything is imported before the
client's first byte is read. Must not: decide anything. Whatever runs in this process can only ask the broker.
"""

from frontend import quiet


def main() -> None:
    """Serve one client until it is done; does not return."""
    quiet.silence()
    from frontend import mcp_session  # noqa: PLC0415 - the hooks come before whatever the SDK has to say

    mcp_session.serve()


if __name__ == "__main__":
    main()
