"""One frontend's connection: untrusted bytes in, requests out; replies in, bytes out.

Always true: neither direction blocks, at most one partial frame is held of what the frontend sends, and a descriptor
that it passes along is dropped by the kernel, because this side never receives ancillary data. It must not judge or run.
"""

import os
from collections.abc import Iterator

from protocol import framing
from protocol.framing import ProtocolViolation
from protocol.messages import AnyReply, AnyRequest, HelloRequest

READ_BYTES = 64 * 1024


class Connection:
    """Frames over one socket, or over a pair of pipes (`--stdio`). Owns both descriptors, which must differ (dup a socket)."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._frames = framing.Frames(framing.REQUEST_LIMIT_BYTES)
        self._outbox = bytearray()
        self._greeted = False
        self.end_of_file = False
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def receive(self) -> Iterator[AnyRequest]:
        """Read once, and return what `held` does; sets `end_of_file`."""
        try:
            untrusted = os.read(self.read_fd, READ_BYTES)
        except BlockingIOError:
            return self.held()
        except OSError:
            untrusted = b""
        self.end_of_file = not untrusted
        return self.held(untrusted)

    def held(self, untrusted: bytes = b"") -> Iterator[AnyRequest]:
        """Yield the requests that are whole, `untrusted` after what is held, one by one.

        To be begun at once. Who stops early goes on later with another call. Raises ProtocolViolation.
        """
        for body in self._frames.feed(untrusted):
            yield self._in_order(framing.decode_request(body))

    def _in_order(self, request: AnyRequest) -> AnyRequest:
        if isinstance(request, HelloRequest) == self._greeted:
            raise ProtocolViolation("a second hello" if self._greeted else "a request before the hello")
        self._greeted = True
        return request

    def send(self, reply: AnyReply) -> None:
        """Queue `reply` and write what the frontend takes right now."""
        self._outbox += framing.encode(reply)
        self.flush()

    def flush(self) -> None:
        """Write what the frontend takes right now; a frontend that is gone shows as `end_of_file`."""
        while self._outbox:
            try:
                written = os.write(self.write_fd, self._outbox)
            except BlockingIOError:
                return
            except OSError:
                self.end_of_file = True
                self._outbox.clear()
                return
            del self._outbox[:written]

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that the frontend has not taken yet."""
        return len(self._outbox)

    def close(self) -> None:
        """Close both descriptors: what the frontend has not read by now is lost."""
        os.close(self.read_fd)
        os.close(self.write_fd)
