"""What `verify` calls sound a start accepts, and what a start refuses `verify` names, also where somebody made hashes anew."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.audit_record import GENESIS, LINE_LIMIT_BYTES, BrokenChainError, digest
from broker.audit_recovery import find_first, line_at
from broker.refusal import StartupError
from tests.support.opened_trail import a_call, files_of, open_trail, records, run, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trail of three files, with an attempt in the first that nobody closed."""
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path)
    trail.attempt(a_call("make all"))
    for turn in range(3):
        run(trail, f"echo {turn}")
        if turn < 2:
            trail.rotate()
    trail.close()
    return path


def chained(lines: list[bytes], prev: str = GENESIS) -> bytes:
    """Return lines with the chain made anew, as whoever may write the file can."""
    made = b""
    for line in lines:
        body = b'%b,"prev":"%b"}' % (line.rpartition(b',"prev":"')[0], prev.encode())
        prev = digest(body)
        made += b'%b,"hash":"%b"}\n' % (body[:-1], prev.encode())
    return made


def starts(path: Path) -> bool:
    try:
        open_trail(path).close()
    except StartupError:
        return False
    return True


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of the trail's last file and make its chain anew."""
    lines = path.read_bytes().splitlines()
    prev = records(path)[-len(lines)]["prev"]
    path.write_bytes(chained(change(lines), prev))


def without(name: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(b'"%b":' % name, b'"no_%b":' % name)


def twice(field: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(b',"session":', b",%b" % field + b',"session":')


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "no tool": without(b"tool"),
    "no session": without(b"session"),
    "no kind": without(b"record_type"),
    "no UTF-8": lambda line: line.replace(b"echo", b"\xff\xfe"),
    "half a character": lambda line: line.replace(b"echo", b"\\ud800"),
    "two numbers": twice(b'"seq":7777'),
    "two kinds": twice(b'"record_type":"event"'),
    "a number of no record": lambda line: line.replace(b'"oldest_open":', b'"oldest_open":-1,"x":'),
    "no depth ends": twice(b'"x":' + b"[" * 100_000 + b"]" * 100_000),
    "longer than any record": twice(b'"x":"' + b"x" * LINE_LIMIT_BYTES + b'"'),
    "another number": lambda line: line.replace(b'{"seq":1', b'{"seq":2', 1),
    "nothing": lambda line: line,
}


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize("at", [1, 2])
def test_a_start_and_verify_agree_on_a_record_whose_hash_somebody_made_anew(
    path: Path, kind: str, at: int
) -> None:
    rewrite(path, lambda lines: [*lines[:at], FORGERIES[kind](lines[at]), *lines[at + 1 :]])
    fault = verified(path).fault
    assert (fault is None) == (kind == "nothing")
    assert fault is None or (fault.file, fault.line) == (str(path), at + 1)
    assert starts(path) == (kind == "nothing")


@pytest.mark.parametrize("kind", FORGERIES)
def test_they_agree_on_a_record_that_no_start_reads_too(path: Path, kind: str) -> None:
    open_trail(path).close()  # closes the attempt: from now on a start reads the last record alone
    rewrite(path, lambda lines: [*lines[:1], FORGERIES[kind](lines[1]), *lines[2:]])
    assert not verified(path).sound or starts(path)


def test_numbers_that_are_repeated_or_left_out_are_found_in_the_middle_of_a_block(path: Path) -> None:
    for _ in range(3):
        trail = open_trail(path)
        run(trail)
        trail.close()
    number = records(path)[-4]["seq"]

    def repeat(lines: list[bytes]) -> list[bytes]:
        return [*lines[:-2], lines[-2].replace(b'{"seq":%d' % (number + 2), b'{"seq":%d' % number), lines[-1]]

    rewrite(path, repeat)
    fault = verified(path).fault
    assert fault is not None
    assert f"record {number + 2} should stand here, not {number}" in fault.why


def test_a_file_that_was_cut_in_two_is_found_though_the_chain_is_whole(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    first = records(path)[-len(lines)]["seq"]
    Path(f"{path}.{first:012}").write_bytes(b"".join(lines[:1]))
    Path(f"{path}.{first:012}").chmod(0o600)
    path.write_bytes(b"".join(lines[1:]))
    fault = verified(path).fault
    assert fault is not None
    assert (fault.file, fault.line) == (str(path), 1)
    assert f"no file of a trail begins with record {first + 1}" in fault.why
    assert not starts(path)


@pytest.mark.parametrize("left", [0, 100])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_in_which_no_record_is_left_is_found_wherever_it_stands(
    path: Path, number: int, left: int
) -> None:
    name = files_of(path)[number]
    os.truncate(name, left)
    fault = verified(path).fault
    assert fault is not None
    assert (fault.file, fault.line) == (name, 1)
    assert name != str(path) or not starts(path)


def test_a_file_with_the_number_of_another_record_is_found(path: Path) -> None:
    second = Path(files_of(path)[1])
    wrong = second.rename(f"{path}.000000000002")
    fault = verified(path).fault
    assert fault is not None
    assert (fault.file, fault.line) == (str(wrong), 1)
    assert "name" in fault.why


def test_a_line_of_any_length_is_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    lines = [b"a" * 100, b"b" * 40_000_000, b"c" * 100]
    path.write_bytes(b"\n".join(lines) + b"\n")
    fd = os.open(path, os.O_RDONLY)
    size = path.stat().st_size
    tracemalloc.start()
    try:
        assert find_first(fd, size, lambda beginning: beginning.startswith(b"c")) == size - 101
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
        os.close(fd)


def test_a_line_that_is_longer_than_any_record_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (LINE_LIMIT_BYTES + 1) + b"\n")
    fd = os.open(path, os.O_RDONLY)
    with pytest.raises(BrokenChainError, match="longer than any record"):
        line_at(fd, 0)
    os.close(fd)
