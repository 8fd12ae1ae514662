"""A broker elsewhere: a carrier that leads to it (ssh, kubectl, socat), and its bytes, handed to and fro.

Always true: frontend and carrier each have a socket whose other end this process alone holds. So whoever of the three dies, by
SIGKILL too, the others read end of file, and the broker beyond kills what runs: nobody needs a right over another for it.
Every way out ends both, in bounded time. What is handed on is not looked at, and at most `READ_BYTES` wait in each direction.
"""

import os
import select
import signal
from _socket import SHUT_RDWR, SHUT_WR, socket, socketpair  # the module socket costs every start its enums
from collections.abc import Callable

from broker import frontend_process, kernel
from broker.frontend_process import Child
from broker.notice import warn
from broker.refusal import StartupError

READ_BYTES = 64 * 1024
FAREWELL_S = 0.5
"""How long a carrier may take to end by itself at the end of its input, before it is asked to."""
SILENCE_S = 5.0
"""Until then nobody wonders why nothing happens: a carrier may have to connect, and to ask for a password."""
EXIT_NO_ANSWER = 125
EXIT_NO_BROKER = 70
"""The same for an MCP client: EX_SOFTWARE of sysexits.h."""


def serve(argv: tuple[str, ...], command: str) -> int:
    """Start the confined frontend `argv` here and `command` (such as `ssh HOST hardened-terminal-broker --stdio`) as its broker.

    Returns the frontend's status; of one call that a signal ended, 128 and the signal's number.
    """
    kernel.forbid_inspection()
    words = words_of(command)
    signals_fd = _watched_signals()
    far, carrier = start_carrier(words)
    try:
        near, theirs = socketpair()
        frontend = frontend_process.start(argv, theirs.detach())
        ends = "; Ctrl-C ends it" if frontend_process.makes_one_call(argv) else ""
        silent = f"no broker has answered yet (`{words[0]}`), still waiting{ends}"
        relay = Relay(near, far, signals_fd, lambda: warn(silent))
        try:
            relay.run(frontend, carrier)
        finally:
            status = frontend.end(patience_s=0.0)
    finally:
        far.close()
        carrier_status = carrier.end(patience_s=FAREWELL_S)
    one_call = frontend_process.makes_one_call(argv)
    if number := relay.signal():  # Ctrl-C hits a carrier as well, and it may have been the first to end
        return 128 + number if one_call else status
    if relay.answered:
        return status
    warn(f"no broker answered (`{words[0]}` ended with {carrier_status})")
    return EXIT_NO_ANSWER if one_call else EXIT_NO_BROKER


def words_of(command: str) -> list[str]:
    """Return the words of HTMCP_BROKER. Raises StartupError."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise StartupError(f"HTMCP_BROKER: {error}") from None
    if not words:
        raise StartupError(
            "HTMCP_BROKER: a command is expected, such as: ssh HOST hardened-terminal-broker --stdio"
        )
    return words


def _watched_signals() -> int:
    """Return a descriptor that has the number of each signal that is to end us: whoever waits for it misses none."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read_fd


def start_carrier(words: list[str]) -> tuple[socket, Child]:
    """Start the carrier. Returns our end of its stdin and stdout, and the process. Raises StartupError."""
    ours, theirs = socketpair()
    streams = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), fd) for fd in (0, 1)]
    # A server that was named there by mistake would start itself without end.
    environ = {name: value for name, value in os.environ.items() if name != "HTMCP_BROKER"}
    try:
        pid = os.posix_spawnp(words[0], words, environ, file_actions=streams, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        raise StartupError(f"HTMCP_BROKER: {words[0]}: {error.strerror}") from None
    theirs.close()
    return ours, Child(pid, os.pidfd_open(pid))


def _readable(reads: list[int], writes: list[int], patience_s: float | None) -> list[int] | None:
    """Wait until something can be read or written; return what can be read, None if nothing came in time."""
    events = dict.fromkeys(reads, select.POLLIN)
    for fd in writes:
        events[fd] = events.get(fd, 0) | select.POLLOUT
    poll = select.poll()
    for fd, event in events.items():
        poll.register(fd, event)
    came = poll.poll(None if patience_s is None else patience_s * 1000)
    return [fd for fd, event in came if event & ~select.POLLOUT] if came else None


class Relay:
    """Hands bytes on between the frontend's socket and the carrier's. `answered`: the carrier said anything.

    `on_silence` is called once, if it has said nothing for `SILENCE_S`.
    """

    def __init__(self, near: socket, far: socket, signals_fd: int, on_silence: Callable[[], object]) -> None:
        near.setblocking(False)
        far.setblocking(False)
        self._far = far
        self._signals_fd = signals_fd
        self._signal = 0
        self._on_silence = on_silence
        self._out = Flow(near, far, SHUT_WR)
        # a frontend that is told of the end writes to nobody any more
        self._back = Flow(far, near, SHUT_RDWR)

    @property
    def answered(self) -> bool:
        """Whether the carrier said anything, or might still do so."""
        return self._back.began or not self._back.ended

    def signal(self) -> int:
        """Return the number of the first signal that came, 0 if none did."""
        try:
            self._signal = self._signal or os.read(self._signals_fd, 1)[0]
        except BlockingIOError:
            return 0
        return self._signal

    def run(self, frontend: Child, carrier: Child) -> None:
        """Go on until the frontend ends, a signal comes, or the carrier ends before it said anything."""
        watched = [self._signals_fd, frontend.pidfd, carrier.pidfd]
        flows = (self._out, self._back)
        patience_s: float | None = SILENCE_S
        while self.answered:
            for flow in flows:
                flow.hand_on_end()
            ready = _readable(
                [*watched, *(fd for flow in flows for fd in flow.reads())],
                [fd for flow in flows for fd in flow.writes()],
                None if self._back.began else patience_s,
            )
            if ready is None:
                patience_s = None
                self._on_silence()
                continue
            if self.signal() or frontend.pidfd in ready:
                return
            if carrier.pidfd in ready:  # what it made may hold its streams still
                watched.remove(carrier.pidfd)
                self._far.shutdown(SHUT_RDWR)
            for flow in flows:
                flow.go_on(ready)


class Flow:
    """One direction: read only when nothing is held. At the end of `source`, `sink` is shut down in the way `how`."""

    def __init__(self, source: socket, sink: socket, how: int) -> None:
        self._source = source
        self._sink = sink
        self._how = how
        self._held = b""
        self.began = False
        self.ended = False

    def reads(self) -> list[int]:
        """Return what has to be readable for it to go on."""
        return [] if self._held or self.ended else [self._source.fileno()]

    def writes(self) -> list[int]:
        """Return what has to be writable for it to go on."""
        return [self._sink.fileno()] if self._held else []

    def go_on(self, ready: list[int]) -> None:
        """Read if the source is among `ready`, and write what the sink takes."""
        try:
            if not self._held and self._source.fileno() in ready:
                self._held = self._source.recv(READ_BYTES)
                if not self._held:
                    self._end()
            if self._held:
                self.began = True
                self._held = self._held[self._sink.send(self._held) :]
        except BlockingIOError:
            return
        except OSError:
            self._end()

    def _end(self) -> None:
        self.ended = True
        self._held = b""

    def hand_on_end(self) -> None:
        """Shut the sink down if the source has ended."""
        if not self.ended:
            return
        try:
            self._sink.shutdown(self._how)
        except OSError:  # whoever had the other end is gone
            return
