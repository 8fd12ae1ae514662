"""The MCP frontend, started by the broker: `python -I -m frontend.mcp_server`, HTMCP_BROKER_FD naming the socket.

Always true: no traceback and no warning leaves it, from the first import on; everything is imported before
the client's first byte is read. Must not: decide anything. Whatever runs in this process can only ask the
broker.
"""

from frontend import quiet


def main() -> None:
    """Serve one client until it is done; does not return."""
    quiet.silence()
    from frontend import mcp_session

    mcp_session.serve()


if __name__ == "__main__":
    main()
