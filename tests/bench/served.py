"""This product as the bench starts it: a place with the shipped policy, the MCP server in it, and the broker alone."""

import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Self

from protocol.client import BrokerClient
from tests.bench.rpc import Server
from tests.support.command import COMMAND
from tests.support.place import Place

SHIPPED = Path(__file__).parents[2] / "policy.toml"
BROKER = str(Path(sysconfig.get_path("scripts")) / "hardened-terminal-broker")
ECHO = "echo hi"


def a_place(folder: Path, policy: str | None = None) -> Place:
    """Return a place in the new folder `folder`, with the shipped policy or `policy`."""
    folder.mkdir()
    return Place(folder, policy or SHIPPED.read_text(encoding="utf-8"))


def server(place: Place, **changes: str | None) -> Server:
    """Return the MCP server of a place."""
    environment = place.environment(**changes)
    call = {"name": "run_command", "arguments": {"command": ECHO}}
    return Server("ours", place.folder, (COMMAND,), environment, call)


class Broker:
    """The broker alone, and a client that talks to it without MCP. `ready_s` is from the start to its welcome."""

    def __init__(self, place: Place, **changes: str | None) -> None:
        self._place = place
        self._changes = changes

    def __enter__(self) -> Self:
        since = time.perf_counter()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [BROKER, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=self._place.environment(**self._changes),
                cwd=self._place.folder,
            )
        self.pid = self._process.pid
        self.client = BrokerClient(ours)
        self.ready_s = time.perf_counter() - since
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._process.wait(timeout=10)

    def call(self) -> None:
        """Run `echo hi`. Raises AssertionError unless it did."""
        self.run(ECHO)

    def run(self, command: str) -> str:
        """Run `command` and return its output. Raises AssertionError unless it ended well."""
        result = self.client.run(command)
        assert result.ok, f"{command}: {result.code} {result.policy_reason}"
        assert result.exit_code == 0, f"{command}: {result.stdout[-500:]} {result.stderr[-500:]}"
        return result.stdout
