"""The streams of a client on an event loop: order, back-pressure, ends, and descriptors that cannot be watched."""

import asyncio
import os
import select
import socket

import pytest

from frontend.transport import Input, Output

BOUND_S = 10


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


class Reading:
    """An input and what it has handed out; pauses itself after `pause_after` lines."""

    def __init__(self, loop, fd, pause_after=None):
        self.lines = []
        self.ends = 0
        self.changed = asyncio.Event()
        self.pause_after = pause_after
        self.input = Input(fd, loop, self.take, self.end)
        self.loop = loop
        self.input.resume()

    def take(self, line):
        self.lines.append(line)
        if len(self.lines) == self.pause_after:
            self.input.pause()
        self.changed.set()

    def end(self):
        self.ends += 1
        self.changed.set()

    def until(self, condition):
        async def wait():
            while not condition():
                self.changed.clear()
                await self.changed.wait()

        self.loop.run_until_complete(asyncio.wait_for(wait(), BOUND_S))


def turn(loop):
    """Let the loop do what it has to do now."""
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))


def test_lines_come_in_order_and_the_end_comes_once_after_the_last(loop, pipe):
    os.write(pipe[1], b"one\ntwo\nthree")
    os.close(pipe[1])
    reading = Reading(loop, pipe[0])
    reading.until(lambda: reading.ends)
    turn(loop)
    assert (reading.lines, reading.ends) == ([b"one", b"two", b"three"], 1)


def test_a_paused_input_hands_out_nothing_even_of_what_it_has_read(loop, pipe):
    os.write(pipe[1], b"one\ntwo\nthree\n")
    reading = Reading(loop, pipe[0], pause_after=1)
    reading.until(lambda: reading.lines)
    turn(loop)
    assert reading.lines == [b"one"]
    reading.input.resume()
    reading.until(lambda: len(reading.lines) == 3)
    assert reading.lines == [b"one", b"two", b"three"]


def test_an_input_that_is_paused_at_its_end_still_ends(loop, pipe):
    os.write(pipe[1], b"one\ntwo")
    os.close(pipe[1])
    reading = Reading(loop, pipe[0], pause_after=1)
    reading.until(lambda: reading.lines)
    turn(loop)
    assert reading.ends == 0
    reading.input.resume()
    reading.until(lambda: reading.ends)
    assert reading.lines == [b"one", b"two"]


def test_an_input_that_is_paused_by_its_very_last_line_ends_only_after_it_was_resumed(loop, pipe):
    os.write(pipe[1], b"one\ntwo")
    os.close(pipe[1])
    reading = Reading(loop, pipe[0], pause_after=2)
    reading.until(lambda: len(reading.lines) == 2)
    turn(loop)
    assert reading.ends == 0
    reading.input.resume()
    reading.until(lambda: reading.ends)
    assert (reading.lines, reading.ends) == ([b"one", b"two"], 1)


def test_resuming_twice_and_pausing_at_once_is_harmless(loop, pipe):
    os.write(pipe[1], b"one\n")
    reading = Reading(loop, pipe[0])
    reading.input.resume()
    reading.input.pause()
    turn(loop)
    assert reading.lines == []
    reading.input.resume()
    reading.input.resume()
    reading.until(lambda: reading.lines)
    assert reading.lines == [b"one"]


def test_a_regular_file_is_read_though_it_cannot_be_watched(loop, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" * 100_000)
    with path.open("rb") as file:
        reading = Reading(loop, file.fileno(), pause_after=10)
        reading.until(lambda: len(reading.lines) == 10)
        turn(loop)
        assert len(reading.lines) == 10
        reading.input.resume()
        reading.until(lambda: reading.ends)
    assert (len(reading.lines), reading.ends) == (100_000, 1)


def test_of_a_line_that_is_too_long_what_was_seen_is_told(loop, pipe, monkeypatch):
    monkeypatch.setattr("frontend.transport.Lines.__init__.__defaults__", (10,))
    os.write(pipe[1], b'{"id": 12345}\nok\n')
    reading = Reading(loop, pipe[0])
    reading.until(lambda: len(reading.lines) == 2)
    assert (reading.lines[0].id, reading.lines[1]) == (12345, b"ok")


class Writing:
    def __init__(self, loop, fd):
        self.broken = 0
        self.drained = asyncio.Event()
        self.output = Output(fd, loop, self.break_off, self.drained.set)

    def break_off(self):
        self.broken += 1


def test_what_the_reader_does_not_take_waits_and_is_counted_and_leaves_in_order(loop, pipe):
    writing = Writing(loop, pipe[1])
    pieces = [bytes([65 + number]) * 50_000 for number in range(8)]
    for piece in pieces:
        writing.output.write(piece)
    assert writing.output.pending_bytes >= 300_000
    read = bytearray()

    def take():
        read.extend(os.read(pipe[0], 65536))

    loop.add_reader(pipe[0], take)
    loop.run_until_complete(asyncio.wait_for(writing.drained.wait(), BOUND_S))
    turn(loop)
    while select.select([pipe[0]], [], [], 0)[0]:
        take()
    assert read == b"".join(pieces)
    assert writing.output.pending_bytes == 0


def test_a_reader_that_is_gone_breaks_the_output_once(loop, pipe):
    writing = Writing(loop, pipe[1])
    os.close(pipe[0])
    writing.output.write(b"one")
    writing.output.write(b"two")
    writing.output.close()
    assert writing.broken == 1


def test_a_pipe_s_reader_that_goes_away_is_noticed_without_a_write(loop, pipe):
    writing = Writing(loop, pipe[1])
    writing.output.watch_reader()
    turn(loop)
    assert writing.broken == 0
    os.close(pipe[0])
    turn(loop)
    assert writing.broken == 1


def test_a_shared_stream_is_made_blocking_again(loop, pipe):
    writing = Writing(loop, pipe[1])
    assert not os.get_blocking(pipe[1])
    writing.output.write(b"one")
    writing.output.close()
    assert os.get_blocking(pipe[1])
    assert os.read(pipe[0], 10) == b"one"


def test_a_stream_that_was_not_blocking_stays_so(loop, pipe):
    os.set_blocking(pipe[1], False)
    Writing(loop, pipe[1]).output.close()
    assert not os.get_blocking(pipe[1])


def test_a_socket_is_written_without_blocking_too(loop):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writing = Writing(loop, ours.fileno())
        writing.output.write(b"x" * 4_000_000)
        assert writing.output.pending_bytes > 0
        theirs.close()
        loop.run_until_complete(asyncio.sleep(0))
        turn(loop)
    assert writing.broken == 1


def test_a_file_is_never_made_non_blocking(loop, tmp_path):
    with (tmp_path / "out").open("wb") as file:
        writing = Writing(loop, file.fileno())
        writing.output.write(b"x" * 1_000_000)
        assert os.get_blocking(file.fileno())
        writing.output.close()
    assert (tmp_path / "out").stat().st_size == 1_000_000
