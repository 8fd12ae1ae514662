"""Bytes between a frontend and a broker elsewhere: handed on whole, both ways at once, however slowly they are taken."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from broker import remote
from broker.frontend_process import Child
from broker.remote import READ_BYTES, Relay

BOUND_S = 20.0
SIZE = 20 * READ_BYTES


@contextlib.contextmanager
def living() -> Iterator[Child]:
    """Yield a child that lives until it is killed."""
    with subprocess.Popen(["sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        try:
            yield Child(process.pid, pidfd)
        finally:
            process.kill()
            os.close(pidfd)


class Relayed:
    """A relay in a thread, with the test in the place of a frontend, at `near`, and of a carrier, at `far`."""

    def __init__(self, frontend: Child, carrier: Child) -> None:
        self.frontend, self.carrier = frontend, carrier
        self.near, near = socket.socketpair()
        self.far, far = socket.socketpair()
        self._signals = os.pipe2(os.O_NONBLOCK)
        for end in (self.near, self.far):
            end.settimeout(BOUND_S)
        self._ends = (self.near, near, self.far, far)
        self.silences: SimpleQueue[str] = SimpleQueue()
        self.relay = Relay(near, far, self._signals[0], lambda: self.silences.put("silent"))
        self._thread = threading.Thread(target=self.relay.run, args=(frontend, carrier), daemon=True)
        self._thread.start()

    def signal(self, number: int) -> None:
        os.write(self._signals[1], bytes([number]))

    def ended(self) -> bool:
        self._thread.join(BOUND_S)
        return not self._thread.is_alive()

    def close(self) -> None:
        self.signal(signal.SIGTERM)
        self.ended()
        for end in self._ends:
            end.close()
        for fd in self._signals:
            os.close(fd)


@pytest.fixture
def relayed() -> Iterator[Relayed]:
    with living() as frontend, living() as carrier:
        relayed = Relayed(frontend, carrier)
        yield relayed
        relayed.close()


def whole(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := end.recv(7000)):
        data += more
    return data


def test_all_bytes_arrive_both_ways_at_once(relayed: Relayed) -> None:
    out, back = random.Random(1).randbytes(SIZE), random.Random(2).randbytes(SIZE)
    senders = [
        threading.Thread(target=end.sendall, args=(data,), daemon=True)
        for end, data in ((relayed.near, out), (relayed.far, back))
    ]
    for sender in senders:
        sender.start()
    assert whole(relayed.far, SIZE) == out
    assert whole(relayed.near, SIZE) == back
    os.kill(relayed.frontend.pid, signal.SIGKILL)
    assert relayed.ended()
    assert relayed.relay.answered


def test_what_the_carrier_said_last_arrives_and_then_its_end(relayed: Relayed) -> None:
    last = random.Random(3).randbytes(SIZE)
    sender = threading.Thread(target=relayed.far.sendall, args=(last,), daemon=True)
    sender.start()
    assert whole(relayed.near, SIZE) == last
    relayed.far.send(b"!")
    os.kill(relayed.carrier.pid, signal.SIGKILL)  # its socket stays open: somebody else has it
    assert whole(relayed.near, 2) == b"!"
    assert whole(relayed.far, 1) == b""
    relayed.signal(signal.SIGTERM)
    assert relayed.ended()
    assert relayed.relay.signal() == signal.SIGTERM


def test_a_carrier_that_ends_before_a_word_is_no_end_that_the_frontend_sees(
    relayed: Relayed,
) -> None:
    relayed.near.send(b"hello")
    assert whole(relayed.far, 5) == b"hello"
    os.kill(relayed.carrier.pid, signal.SIGKILL)
    assert relayed.ended()
    assert not relayed.relay.answered
    relayed.near.setblocking(False)
    with pytest.raises(BlockingIOError):
        relayed.near.recv(1)


def test_a_carrier_that_says_nothing_is_waited_for_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(remote, "SILENCE_S", 0.01)
    relayed: Relayed = request.getfixturevalue("relayed")
    assert relayed.silences.get(timeout=BOUND_S) == "silent"
    relayed.far.send(b"at last")
    assert whole(relayed.near, 7) == b"at last"
    relayed.signal(signal.SIGTERM)
    assert relayed.ended()
    assert relayed.silences.empty()


def test_the_frontends_end_of_file_is_handed_on(relayed: Relayed) -> None:
    relayed.near.send(b"bye")
    relayed.near.shutdown(socket.SHUT_WR)
    assert whole(relayed.far, 4) == b"bye"
    relayed.far.send(b"good bye")
    assert whole(relayed.near, 8) == b"good bye"
