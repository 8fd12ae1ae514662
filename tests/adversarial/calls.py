"""Several calls at once over one connection to the broker."""

import os
from typing import Self

from protocol.client import READ_BYTES, BrokerClient
from protocol.messages import CommandResult, Result


class Calls:
    """Takes over a client's connection, whose handshake is done, and keeps the answers as they come."""

    def __init__(self, client: BrokerClient) -> None:
        self._connection = client._connection
        self._fd = client._fd
        self._results: dict[int, CommandResult] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """The client owns the connection."""

    def start(self, command: str, cwd: str | None = None) -> int:
        """Ask for a run and return its id."""
        request_id, frame = self._connection.run(command, cwd)
        os.write(self._fd, frame)
        return request_id

    def cancel(self, request_id: int) -> None:
        """Ask for a run's end."""
        os.write(self._fd, self._connection.cancel(request_id))

    def result(self, request_id: int) -> CommandResult:
        """Wait for the answer to a run. Raises BrokerGone, also after the connection's own bound."""
        while request_id not in self._results:
            for reply in self._connection.feed(os.read(self._fd, READ_BYTES)):
                if isinstance(reply, Result):
                    self._results[reply.id] = reply.result
        return self._results.pop(request_id)

    def run(self, command: str, cwd: str | None = None) -> CommandResult:
        """Run a command and wait for its answer."""
        return self.result(self.start(command, cwd))
