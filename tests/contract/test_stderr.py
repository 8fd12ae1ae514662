"""A client that never reads the server's standard error, or closed it, costs no call."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from tests.support.place import Place
from tests.support.raw_client import RawClient

CALLS = 40


@contextmanager
def _full_pipe() -> Iterator[int]:
    """Yield the writing end of a pipe that holds as much as it can, and whose reader never reads."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_fd, b"x" * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(write_fd, b"x")
    os.set_blocking(write_fd, True)
    yield write_fd
    os.close(write_fd)
    os.close(read_fd)


@contextmanager
def _pipe_without_reader() -> Iterator[int]:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    yield write_fd
    os.close(write_fd)


@pytest.mark.parametrize("stderr", [_full_pipe, _pipe_without_reader], ids=["full", "closed"])
def test_warnings_that_nobody_reads_hold_up_no_call(
    place: Place, stderr: Callable[[], AbstractContextManager[int]]
) -> None:
    with stderr() as stderr_fd, RawClient(place, stderr_fd=stderr_fd, HTMCP_AUDIT_FAIL_MODE="open") as raw:
        raw.initialize()
        place.trail.unlink()
        for number in range(CALLS):
            assert raw.run(f"echo {number}").stdout == f"{number}\n"


def test_failing_calls_that_nobody_hears_of_are_all_answered(place: Place) -> None:
    with _full_pipe() as stderr_fd, RawClient(place, stderr_fd=stderr_fd) as raw:
        raw.initialize()
        for _ in range(CALLS):
            raw.send_bytes(b"no request\n")
            assert "error" in raw.message()
            assert raw.call("run_command", {"command": 7}).code == "PARSE_ERROR"
