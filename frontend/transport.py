"""The client's two streams as raw descriptors on an event loop: no thread, no lock, no call that waits.

Always true: lines come in order, one at a time, and none while paused; what is written leaves in order and
whole; what waits to leave is counted, so that its writer can stop asking for more. Must not: know what a line
says; block on a client that does not read.
"""

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable

from frontend.glimpse import Seen
from frontend.jsonrpc import Lines, LineTooLong

READ_BYTES = 256 * 1024


class Input:
    """Reads lines.

    `on_line` gets each one, what could be seen of it if it was too long; `on_end` comes once, after the last.
    """

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_line: Callable[[bytes | Seen], None],
        on_end: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._loop = loop
        self._on_line = on_line
        self._on_end = on_end
        self._lines = Lines()
        self._reading = False
        self._resuming = False
        self._pollable = True
        self._ended = False

    def resume(self) -> None:
        """Go on, with the lines that were read already first."""
        if not self._resuming and not self._reading:
            self._resuming = True
            self._loop.call_soon(self._drain_then_read)

    def pause(self) -> None:
        """Hand out no further line until `resume`."""
        self._resuming = False
        if self._reading:
            self._reading = False
            if self._pollable:
                self._loop.remove_reader(self._fd)

    def _drain_then_read(self) -> None:
        if not self._resuming:
            return
        self._resuming = False
        self._reading = True
        self._drain()
        if self._reading:
            self._watch()

    def _watch(self) -> None:
        try:
            self._loop.add_reader(self._fd, self._read)
        except PermissionError:
            # epoll_ctl(2): EPERM for what is always ready, a regular file or /dev/null.
            self._pollable = False
            self._loop.call_soon(self._read_without_watching)

    def _read_without_watching(self) -> None:
        if self._reading:
            self._read()
        if self._reading:
            self._loop.call_soon(self._read_without_watching)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # A terminal that hung up says EIO; a socket that was reset says so. Either way nothing more will come.
            data = b""
        self._ended = self._ended or not data
        self._lines.feed(data)
        self._drain()

    def _drain(self) -> None:
        while self._reading:
            try:
                line = self._lines.take()
            except LineTooLong as too_long:
                self._on_line(too_long.seen)
                continue
            if line is None:
                break
            self._on_line(line)
        if self._reading and self._ended:
            self.pause()
            self._on_end()


class Output:
    """Writes bytes in order.

    `on_broken` comes once when nobody can read any more, `on_drained` when all has left.
    """

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_broken: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._loop = loop
        self._waiting: deque[memoryview] = deque()
        self.pending_bytes = 0
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._broken = False
        kind = os.fstat(fd).st_mode
        self._is_pipe = stat.S_ISFIFO(kind)
        # Only a pipe or a socket can make us wait for a reader; the flag is on the open file description, which
        # others may share, so it is put back in `close`.
        self._was_blocking = (self._is_pipe or stat.S_ISSOCK(kind)) and os.get_blocking(fd)
        if self._was_blocking:
            os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Send `data`, now or when the reader is ready."""
        if self._broken:
            return
        rest = memoryview(data)
        if not self._waiting:
            rest = self._send(rest)
        if rest and not self._broken:
            if not self._waiting:
                self._loop.add_writer(self._fd, self._flush)
            self._waiting.append(rest)
            self.pending_bytes += len(rest)

    def watch_reader(self) -> None:
        """Notice a pipe's reader that goes away while there is nothing to write to it."""
        if self._is_pipe:
            self._loop.add_reader(self._fd, self._break)

    def close(self) -> None:
        """Send what can be sent at once, and leave the stream as it was found."""
        while self._waiting and not self._broken and not self._send(self._waiting.popleft()):
            continue
        if self._was_blocking:
            os.set_blocking(self._fd, True)

    def _send(self, data: memoryview) -> memoryview:
        """Write until all has left or the reader is not ready; return the rest."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            self._break()
        return data

    def _flush(self) -> None:
        while self._waiting and not self._broken:
            first = self._waiting.popleft()
            rest = self._send(first)
            self.pending_bytes -= len(first) - len(rest)
            if rest:
                self._waiting.appendleft(rest)
                return
        self._loop.remove_writer(self._fd)
        if not self._broken:
            self._on_drained()

    def _break(self) -> None:
        if self._broken:
            return
        self._broken = True
        self._loop.remove_writer(self._fd)
        self._loop.remove_reader(self._fd)
        self._on_broken()
