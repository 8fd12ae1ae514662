"""One MCP client served from its first byte to its last: streams, conversation and broker on one event loop.

Always true: stdout carries JSON-RPC and nothing else; the process ends with status 0 when the client closes
stdin (its answers go out first), goes away, or sends SIGTERM, SIGINT or SIGHUP; what waits for a client that
does not read is bounded, since neither its requests nor their results are read meanwhile.
"""

import asyncio
import functools
import gc
import os
import signal

from frontend import mcp_answers, quiet
from frontend.broker_link import BrokerLink
from frontend.conversation import Conversation
from frontend.eras import Eras
from frontend.glimpse import Seen
from frontend.transport import Input, Output
from protocol.client import READ_BYTES, BrokerGone, ClientConnection

PENDING_BYTES = 1024 * 1024
"""How much may wait for a client that does not read before nothing more is read for it."""

EXIT_NO_BROKER = 70
"""EX_SOFTWARE of sysexits.h: there is nobody to serve."""


class Session:
    """The parts of one client's connection, and what each of them tells the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stdin: int, stdout: int, broker: int) -> None:
        self._ended = loop.create_future()
        self._input_ended = False
        connection = shake_hands(broker)
        self._link = BrokerLink(broker, connection, loop)
        self._output = Output(stdout, loop, self.end, self._balance)
        self._conversation = Conversation(loop, self._write, self._balance)
        self._input = Input(stdin, loop, self._receive, self._end_input)
        programs = connection.welcome.programs if connection.welcome else ()
        server = mcp_answers.server(self._link, programs)
        lost = functools.partial(mcp_answers.report_lost, self._link)
        self._conversation.serve(Eras(server, self._conversation, lost))

    async def run(self) -> None:
        """Serve until the end; then nothing more is read from the client."""
        self._input.resume()
        await self._ended
        self._input_ended = True
        self._input.pause()
        self._link.resume()
        await self._conversation.end()
        self._output.close()

    def end(self) -> None:
        """End now, whatever is in flight."""
        if not self._ended.done():
            self._ended.set_result(None)

    def _receive(self, untrusted_line: bytes | Seen) -> None:
        self._conversation.receive(untrusted_line)
        if self._conversation.is_full:
            self._input.pause()

    def _write(self, line: bytes) -> None:
        self._output.write(line)
        if self._output.pending_bytes > PENDING_BYTES:
            self._input.pause()
            self._link.pause()

    def _end_input(self) -> None:
        self._input_ended = True
        self._output.watch_reader()
        self._balance()

    def _balance(self) -> None:
        """Go on with whatever had to wait for a request or for the client; end if nothing is left to do."""
        if self._output.pending_bytes <= PENDING_BYTES:
            self._link.resume()
            if not self._input_ended and not self._conversation.is_full:
                self._input.resume()
        if self._input_ended and self._conversation.is_idle and not self._output.pending_bytes:
            self.end()


def shake_hands(broker: int) -> ClientConnection:
    """Return the welcomed connection over a blocking descriptor. Raises BrokerGone."""
    connection = ClientConnection("mcp")
    try:
        os.write(broker, connection.hello())
        while connection.welcome is None:
            connection.feed(os.read(broker, READ_BYTES))
    except OSError as error:
        raise BrokerGone(str(error)) from None
    return connection


def serve(ending_signals: tuple[signal.Signals, ...]) -> None:
    """Serve the client on stdin and stdout with the broker of HTMCP_BROKER_FD; end the process."""
    loop = asyncio.SelectorEventLoop()
    loop.set_exception_handler(lambda _, __: None)
    stdout = _claim_stdout()
    try:
        session = Session(loop, 0, stdout, int(os.environ["HTMCP_BROKER_FD"]))
    except (BrokerGone, KeyError, ValueError, OSError):
        quiet.say("the broker is not there")
        os._exit(EXIT_NO_BROKER)
    for number in ending_signals:
        loop.add_signal_handler(number, session.end)
    if os.isatty(0):
        quiet.say('waiting for an MCP client on stdin; Ctrl-D ends. For one command: run "ls -l"')
    # What has been imported stays: no collection walks through it.
    gc.freeze()
    gc.enable()
    loop.run_until_complete(session.run())
    # Not by the interpreter's own end, which takes longer than most calls: nothing is left to be flushed.
    os._exit(0)


def _claim_stdout() -> int:
    """Return a descriptor of stdout of its own; what else would print there goes to stderr."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    return stdout
