"""The command line's frontend, started by the broker with the words VERB FORMAT CWD COMMAND.

VERB is run or explain, FORMAT text or json, CWD may be empty; HTMCP_BROKER_FD names the socket. The exit
status is the command's own, 128 + N after signal N, 126 refused, 124 timeout, 125 anything else of ours.

Always true: stdout carries what the command printed (or one JSON object) and nothing else; a signal ends this
process, wherever it waits, and the broker takes the end of the socket for a cancellation. Must not: import what a
single call cannot pay for, mcp and msgspec above all.
"""

import _signal  # type: ignore[import-not-found]  # the module signal costs its enums
import os
import sys
from time import monotonic

from protocol import bare

NAME = "hardened-terminal-mcp"
READ_BYTES = 256 * 1024
PROTOCOL_VERSION = 1
REQUEST_ID = 1
LONGEST_FRAME_BYTES = 64 * 1024 * 1024 + bare.LENGTH_BYTES
"""protocol.framing says so; any text, as of a login script, would be longer."""
SHOWN_BYTES = 60
SHORT_CHARACTERS = 4096
"""Commands up to here, nearly all, are sent without a look at the protocol's limits."""

QUIET_S = 2.0
REFRESH_S = 0.5

EXIT_OUTPUT, EXIT_TIMEOUT, EXIT_OURS, EXIT_REFUSED, EXIT_PIPE = 74, 124, 125, 126, 141
REFUSED = ("POLICY_DENIED", "PARSE_ERROR", "CWD_ESCAPE")
RAN = ("OK", "OUTPUT_TRUNCATED")
EXPECTED = ("welcome", "progress", "result")
"""What a broker says to a single call."""
FOR_AN_OPERATOR = ("the tool's description names", "check --describe names")
"""What a reason tells a model, who is shown that text, and what somebody at a terminal can do."""

Message = dict[str, bare.Value]


class BrokerGone(Exception):
    """No answer will come."""


class NoBroker(Exception):
    """What answers is no broker; the message is the beginning of what it said."""


class Broker:
    """The socket: frames out, messages in."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._untrusted = bytearray()

    def send(self, frame: bytes) -> None:
        """Write a frame. If nobody takes it, `receive` says so: what answers instead may have said why."""
        try:
            write(self._fd, frame)
        except OSError:
            return

    def receive(self, timeout_s: float | None) -> Message | None:
        """Return the next message; None if none came in time. Raises BrokerGone."""
        while (message := self._buffered()) is None:
            if timeout_s is not None and not self._readable(timeout_s):
                return None
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:
                data = b""
            if not data:
                if 0 < len(self._untrusted) < bare.LENGTH_BYTES:  # too short for the beginning of a frame
                    raise NoBroker(self._untrusted.decode("utf-8", "replace"))
                raise BrokerGone
            self._untrusted += data
        return message

    def _buffered(self) -> Message | None:
        if len(self._untrusted) < bare.LENGTH_BYTES:
            return None
        end = bare.LENGTH_BYTES + int.from_bytes(self._untrusted[: bare.LENGTH_BYTES], "big")
        if not bare.LENGTH_BYTES < end <= LONGEST_FRAME_BYTES:
            raise NoBroker(self._untrusted[:SHOWN_BYTES].decode("utf-8", "replace"))
        if end > len(self._untrusted):
            return None
        body = bytes(self._untrusted[bare.LENGTH_BYTES : end])
        del self._untrusted[:end]
        try:
            message = bare.unpack(body)
        except ValueError:
            raise BrokerGone from None
        if not isinstance(message, dict) or message.get("type") == "refusal":
            raise BrokerGone
        if message.get("type") not in EXPECTED:
            raise NoBroker(body[:SHOWN_BYTES].decode("utf-8", "replace"))
        return message

    def _readable(self, timeout_s: float) -> bool:
        import select

        readable = select.poll()
        readable.register(self._fd, select.POLLIN)
        return bool(readable.poll(timeout_s * 1000))


class Status:
    """One line on a terminal's stderr while a command takes long; nothing anywhere else."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self._started_s = monotonic()
        self._written_bytes = 0
        self._visible = False

    @property
    def timeout_s(self) -> float | None:
        """How long to wait until the line should be drawn again."""
        if not self.shown:
            return None
        return REFRESH_S if self._visible else max(0.0, QUIET_S - (monotonic() - self._started_s))

    def count(self, progress: Message) -> None:
        """Take a progress report."""
        sizes = (progress.get("stdout_bytes"), progress.get("stderr_bytes"))
        self._written_bytes = sum(size for size in sizes if isinstance(size, int))

    def draw(self) -> None:
        """Show elapsed time and bytes so far, once the quiet time is over."""
        elapsed_s = monotonic() - self._started_s
        if self.shown and elapsed_s >= QUIET_S:
            self._appear()
            line = (
                f"{NAME}: running, {elapsed_s:.0f} s, {self._written_bytes} bytes of output; Ctrl-C kills it"
            )
            # a line that wraps could not be drawn over
            write(2, b"\r\x1b[K" + line[: os.get_terminal_size(2).columns - 1].encode())

    def _appear(self) -> None:
        if not self._visible:
            self._visible = True
            for number in (_signal.SIGINT, _signal.SIGTERM):
                _signal.signal(number, self._vanish)

    def _vanish(self, number: int, _frame: object) -> None:
        # it may have come just before a wait, which then hides it; while a line is shown none is long
        self.clear()
        os._exit(128 + number)

    def clear(self) -> None:
        """Leave no trace of the line."""
        if self._visible:
            write(2, b"\r\x1b[K")
            self._visible = False


def opening(verb: str, command: str, cwd: str | None, *, progress: bool) -> bytes:
    """Return the handshake and the request, to be sent at once."""
    request: Message = {"type": verb, "id": REQUEST_ID, "command": command}
    if verb == "run":
        request |= {"cwd": cwd, "progress": progress}
    try:
        if max(len(command), len(cwd or "")) > SHORT_CHARACTERS:
            return _carefully(verb, command, cwd, progress=progress)
        hello: Message = {"type": "hello", "version": PROTOCOL_VERSION, "frontend": "command line"}
        return bare.frame(hello) + bare.frame(request)
    except UnicodeEncodeError:
        return _carefully(verb, command, cwd, progress=progress)


def _carefully(verb: str, command: str, cwd: str | None, *, progress: bool) -> bytes:
    """Do the same by way of the real client, which reports what no request can carry as malformed."""
    from protocol.client import ClientConnection

    connection = ClientConnection("command line")
    hello = connection.hello()
    ask = connection.run(command, cwd, progress=progress) if verb == "run" else connection.explain(command)
    return hello + ask[1]


def answer(broker: Broker, status: Status) -> Message:
    """Return the envelope. Raises BrokerGone."""
    while True:
        message = broker.receive(status.timeout_s)
        if message is not None and message.get("type") == "progress":
            status.count(message)
        elif message is not None and message.get("type") == "result":
            result = message.get("result")
            if not isinstance(result, dict):
                raise BrokerGone
            return result
        status.draw()


def write(fd: int, data: bytes) -> None:
    """Write all of `data`, also where somebody has made the descriptor non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            import select

            writable = select.poll()
            writable.register(fd, select.POLLOUT)
            writable.poll()


def one_line(text: str) -> str:
    """Return `text` so that it cannot end a line or move a cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def tell(message: str) -> None:
    """Say one line on stderr; somebody who has closed it does not want it."""
    try:
        write(2, f"{NAME}: {one_line(message)}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return


def exit_status(result: Message) -> int:
    """Return the status that stands for an envelope."""
    code, own = result.get("code"), result.get("exit_code")
    if code in RAN and isinstance(own, int):
        return own if own >= 0 else 128 - own
    if code == "TIMEOUT":
        return EXIT_TIMEOUT
    return EXIT_REFUSED if code in REFUSED else EXIT_OURS


def show_text(verb: str, result: Message) -> int:
    """Print an envelope for a person or a script, and return the exit status."""
    code = result.get("code")
    reason = str(result.get("policy_reason")).replace(*FOR_AN_OPERATOR)
    if verb == "explain":
        verdict = "" if code == "OK" else f"refused: {code}: "
        write(1, f"{verdict}{one_line(reason)}\n".encode())
        return 0 if code == "OK" else exit_status(result)
    stderr = str(result.get("stderr"))
    write(1, str(result.get("stdout")).encode())
    # What we say begins its own line, though the command may not have ended its last one.
    write(2, (stderr + "\n" if code != "OK" and stderr and not stderr.endswith("\n") else stderr).encode())
    if code != "OK":
        tell(f"{code}: {reason}")
    return exit_status(result)


def show_json(verb: str, result: Message) -> int:
    """Print the envelope as it is, and return the same exit status as `show_text`."""
    import json

    write(1, json.dumps(result, ensure_ascii=False).encode() + b"\n")
    return 0 if verb == "explain" and result.get("code") == "OK" else exit_status(result)


def call(verb: str, form: str, cwd: str, command: str) -> int:
    """Make one call and show its result. Returns the exit status."""
    broker = Broker(int(os.environ["HTMCP_BROKER_FD"]))
    status = Status(shown=verb == "run" and os.isatty(2))
    try:
        broker.send(opening(verb, command, cwd or None, progress=status.shown))
        result = answer(broker, status)
        status.clear()
        return (show_json if form == "json" else show_text)(verb, result)
    except BrokerGone:
        status.clear()
        tell("INTERNAL_ERROR: the broker is gone; the command's outcome is not known")
        return EXIT_OURS
    except NoBroker as answered:
        tell(
            f"what answers is no broker; it said {str(answered)!r}: does a login script of the other side print something?"
        )
        return EXIT_OURS


def main() -> None:
    """Make the call of the command line and end the process with its status."""
    sys.excepthook = lambda *_: None
    # Python's own handler would be heard between two steps only: one that came just before a wait never ended it.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    status = EXIT_OURS
    try:
        status = call(*sys.argv[1:5])
    except BrokenPipeError:
        status = EXIT_PIPE
    except (KeyError, TypeError, ValueError, OverflowError):
        tell("this is a part of the command, which starts it itself")
    except OSError as error:
        tell(f"cannot write: {error.strerror}")
        status = EXIT_OUTPUT
    # Everything was written with write(2): the interpreter's own end would only cost time.
    os._exit(status)


if __name__ == "__main__":
    main()
