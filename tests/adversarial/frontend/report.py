"""Tries every attack in its order, and prints one JSON line each: its name, and "worked" or the error that it met.

Before and after it asks the broker to run a command, to show that the broker still serves. What runs inside a confined
frontend can import the standard library and `protocol`, nothing of this folder: see `target.SOURCE`.
"""

import json
import os
import socket
import sys

from protocol import bare
from tests.adversarial.frontend.kit import ATTACKS, outcome_of


class Broker:
    """The broker over the socket that the frontend has."""

    def __init__(self, fd: int) -> None:
        self._frame = bare.frame
        self._end = socket.socket(fileno=fd)
        self._end.settimeout(10)
        self._runs = 0
        rights = b"".join(fd.to_bytes(4, "little") for fd in (0, 1, 2))  # sent along, for the broker to keep
        hello = self._frame({"type": "hello", "version": 1, "frontend": "attacks"})
        self._end.sendmsg([hello], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def serves(self) -> bool:
        """Ask for one run; return whether it was done."""
        self._runs += 1
        data = b""
        try:
            self._end.send(self._frame({"type": "run", "id": self._runs, "command": "echo hi"}))
            while b"policy_reason" not in data and (more := self._end.recv(65_536)):
                data += more
        except OSError:
            return False
        return b"hi\n" in data


def main() -> None:
    """Try everything and report."""
    targets = json.loads(sys.argv[1])
    targets["broker"] = targets["broker"] or os.getppid()
    say("facts", {"descriptors": open_descriptors(), "environment": dict(os.environ)})
    broker = Broker(targets["socket"])
    say("served before", broker.serves())
    for name, attack in ATTACKS.items():
        say(name, outcome_of(attack.deed, targets))
    say("served after", broker.serves())


def say(name: str, value: object) -> None:
    """Print one line of the report."""
    print(json.dumps([name, value]), flush=True)


def open_descriptors() -> list[int]:
    """Return the numbers of the open descriptors, without /proc."""
    found = []
    for fd in range(300):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return found
