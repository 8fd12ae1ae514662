"""A frontend for the fault tests, run as `python -I -c`: it asks for N runs at once, and prints what became of each.

Prints one line a reply ("reply CODE") and last how the connection ended: "done" or "closed". Then it stays until its
stdin ends, as an MCP server does. It never acts on half a reply.
"""

import os
import sys

from protocol import bare


def frames(fd: int, untrusted: bytearray) -> list:
    """Read once; return the whole replies. Raises EOFError at the end of the stream."""
    data = os.read(fd, 65_536)
    if not data:
        raise EOFError
    untrusted += data
    replies = []
    while len(untrusted) >= 4 and len(untrusted) >= 4 + (size := int.from_bytes(untrusted[:4], "big")):
        replies.append(bare.unpack(bytes(untrusted[4 : 4 + size])))
        del untrusted[: 4 + size]
    return replies


def main(calls: int, command: str) -> None:
    """Shake hands, ask, print the replies, wait for the end of stdin."""
    fd, untrusted = int(os.environ["HTMCP_BROKER_FD"]), bytearray()
    run = {"type": "run", "command": command}
    try:
        os.write(fd, bare.frame({"type": "hello", "version": 1, "frontend": "faults"}))
        while not frames(fd, untrusted):
            continue
        os.write(fd, b"".join(bare.frame({**run, "id": number + 1}) for number in range(calls)))
        while calls:
            for reply in frames(fd, untrusted):
                print("reply", reply["result"]["code"], flush=True)
                calls -= 1
        ended = "done"
    except (EOFError, OSError):
        ended = "closed"
    print(ended, flush=True)
    sys.stdin.read()


main(int(sys.argv[1]), sys.argv[2])
