"""The frontend's end of the connection to the broker, on the event loop: one call in, one envelope out.

Always true: never more requests are unanswered than the broker allows, and those that wait are sent in their
order; a call that is cancelled is cancelled at the broker and still holds its place until its result came; one
that is cancelled while it waits is sent in its turn all the same, as one that was malformed; when the broker is
gone every call, in flight or later, gets the same generic envelope. Must not: wait for anything but the loop.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable

from frontend.tools import BROKER_GONE, CANCELLED_EARLY, Explain, Malformed, Run, ToolCall
from protocol.client import READ_BYTES, BrokerGone, ClientConnection
from protocol.messages import CommandResult, Description, Progress, Result, Tool, Welcome

Reporter = Callable[[Progress], Awaitable[None]]


class _Asked:
    """A request that was sent: what the broker said about it.

    Of several progress reports only the last is kept.
    """

    __slots__ = ("_answer", "_answered", "_news", "_progress")

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._progress: Progress | None = None
        self._answer: Result | Description | None = None
        self._answered = False

    def report(self, progress: Progress) -> None:
        """Take a progress report."""
        self._progress = progress
        self._news.set()

    def answer(self, answer: Result | Description | None) -> None:
        """Take the answer; None says that there will be none."""
        self._answer = answer
        self._answered = True
        self._news.set()

    async def news(self) -> Progress | Result | Description | None:
        """Return the answer if it is there, else the next progress report."""
        await self._news.wait()
        self._news.clear()
        return self._answer if self._answered else self._progress


class BrokerLink:
    """Sends calls and hands out their results. `connection` has been welcomed already."""

    def __init__(self, fd: int, connection: ClientConnection, loop: asyncio.AbstractEventLoop) -> None:
        if connection.welcome is None:
            raise ValueError("the handshake comes first")
        self._fd = fd
        self._connection = connection
        self._loop = loop
        self._free = connection.welcome.in_flight
        self._turns: deque[asyncio.Future[None]] = deque()
        self._asked: dict[int, _Asked] = {}
        self._unsent = bytearray()
        self._reading = False
        self._gone = False
        os.set_blocking(fd, False)
        self.resume()

    async def call(self, call: ToolCall, report: Reporter | None = None) -> CommandResult:
        """Return the envelope of `call`; `report` is awaited for each progress report of a run.

        Cancelled, it ends when the broker has answered all the same: then the trail has its outcome. Nothing runs if the
        broker had not heard of it yet.
        """
        is_cancelled = await self._turn()
        if is_cancelled:
            call, report = _unheard(call), None
        answer = await self._ask(lambda: self._encode(call, progress=report is not None), report)
        if is_cancelled:
            raise asyncio.CancelledError
        return answer.result if isinstance(answer, Result) else BROKER_GONE

    async def describe(self) -> Description | None:
        """Return the policy in force, None if the broker is gone."""
        if await self._turn():
            self._give_turn()
            raise asyncio.CancelledError
        answer = await self._ask(self._connection.describe, None)
        return answer if isinstance(answer, Description) else None

    def pause(self) -> None:
        """Read no further reply: the client does not take what it has got."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read replies again."""
        if not self._reading and not self._gone:
            self._reading = True
            self._loop.add_reader(self._fd, self._read)

    def _encode(self, call: ToolCall, *, progress: bool) -> tuple[int, bytes]:
        if isinstance(call, Run):
            return self._connection.run(call.untrusted_command, call.untrusted_cwd, progress=progress)
        if isinstance(call, Explain):
            return self._connection.explain(call.untrusted_command)
        return self._connection.malformed(*call)

    async def _ask(
        self, encode: Callable[[], tuple[int, bytes]], report: Reporter | None
    ) -> Result | Description | None:
        """Send a request, whose turn has come, and return its answer; None if the broker is gone."""
        if self._gone:
            return None
        request_id, frame = encode()
        asked = self._asked[request_id] = _Asked()
        self._send(frame)
        is_cancelled = False
        while True:
            try:
                news = await asked.news()
                if not isinstance(news, Progress):
                    break
                if report is not None and not is_cancelled:
                    await report(news)
            except asyncio.CancelledError:
                is_cancelled = True
                self._send(self._connection.cancel(request_id))
        if is_cancelled:
            raise asyncio.CancelledError
        return news

    async def _turn(self) -> bool:
        """Wait until a request may be sent, in the order of asking; return whether it was cancelled meanwhile."""
        if self._free > 0 or self._gone:
            self._free -= 1
            return False
        turn = self._loop.create_future()
        self._turns.append(turn)
        is_cancelled = False
        while not turn.done():
            try:
                await asyncio.shield(turn)
            except asyncio.CancelledError:
                is_cancelled = True
        return is_cancelled

    def _give_turn(self) -> None:
        if self._turns:
            self._turns.popleft().set_result(None)
        else:
            self._free += 1

    def _read(self) -> None:
        try:
            for reply in self._connection.feed(os.read(self._fd, READ_BYTES)):
                self._take(reply)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, BrokerGone):
            self._lose()

    def _take(self, reply: Welcome | Progress | Result | Description) -> None:
        if isinstance(reply, Progress):
            self._asked[reply.id].report(reply)
        elif not isinstance(reply, Welcome):
            self._asked.pop(reply.id).answer(reply)
            self._give_turn()

    def _send(self, frame: bytes) -> None:
        if self._gone:
            return
        if not self._unsent:
            frame = self._write(frame)
            if frame:
                self._loop.add_writer(self._fd, self._flush)
        self._unsent += frame

    def _write(self, data: bytes) -> bytes:
        """Write what the broker takes now; return the rest."""
        try:
            return data[os.write(self._fd, data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            # Nobody reads any more, but answers may still lie in the socket: the end of those says it is over.
            return b""

    def _flush(self) -> None:
        rest = self._write(bytes(self._unsent))
        self._unsent[:] = rest
        if not rest:
            self._loop.remove_writer(self._fd)

    def _lose(self) -> None:
        """Tell everybody who waits that no answer will come."""
        if self._gone:
            return
        self.pause()
        self._loop.remove_writer(self._fd)
        self._gone = True
        for asked in self._asked.values():
            asked.answer(None)
        self._asked.clear()
        while self._turns:
            self._give_turn()


def _unheard(call: ToolCall) -> Malformed:
    """Return how a call is reported that was cancelled while it waited for its turn."""
    if isinstance(call, Malformed):
        return call
    tool = Tool.RUN if isinstance(call, Run) else Tool.EXPLAIN
    return Malformed(tool, call.untrusted_command, CANCELLED_EARLY)
