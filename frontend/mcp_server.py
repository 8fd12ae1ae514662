"""The MCP frontend, started by the broker, HTMCP_BROKER_FD naming the socket.

Always true: no traceback and no warning leaves it, from the first import on; everything is imported before the
client's first byte is read. Must not: decide anything. Whatever runs in this process can only ask the broker.
"""

import gc
import os
import signal
from types import FrameType

from frontend import quiet

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve one client until it is done; does not return."""
    quiet.silence()
    for number in ENDING_SIGNALS:
        signal.signal(number, _end_at_once)
    # The SDK's imports make a million objects and drop none: collections meanwhile are an eighth of the start.
    gc.disable()
    from frontend import mcp_session  # the hooks come before whatever the SDK has to say

    mcp_session.serve(ENDING_SIGNALS)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End before anything was served, as cleanly as later."""
    os._exit(0)


if __name__ == "__main__":
    main()
