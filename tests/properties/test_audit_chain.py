"""Whatever is done to a trail by another hand is found; whatever brokers do to it, alone or together, is not."""

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker.audit import Trail
from broker.audit_reading import Source
from broker.audit_record import Call
from broker.audit_verify import verify
from protocol.messages import ResultCode
from tests.support.opened_trail import a_call, files_of, open_trail, records, result, run, verified

RECORDS = 12


@pytest.fixture(scope="module")
def untouched() -> Iterator[list[bytes]]:
    """Yield the contents of a trail's three files, oldest first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        trail = open_trail(path)
        for turn in range(RECORDS // 4):
            run(trail, f"echo {turn}")
            trail.outcome(a_call(f"id {turn}"), result(ResultCode.POLICY_DENIED, "id is on no list"))
            if turn < 2:
                trail.rotate()
        trail.close()
        yield [Path(name).read_bytes() for name in files_of(path)]


def _verify(contents: list[bytes], head: str | None = None) -> bool:
    return verify([_in_memory(content) for content in contents], head).sound


def _in_memory(content: bytes) -> Source:
    fd = os.memfd_create("trail")
    os.write(fd, content)
    return Source("trail", fd)


def _lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def _head(contents: list[bytes]) -> str:
    return contents[-1][-67:-3].decode()


def test_no_descriptor_is_left_open_by_a_fault(untouched: list[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert not _verify([b"nonsense\n", *untouched])
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_untouched_trail_verifies(untouched: list[bytes]) -> None:
    assert len(untouched) == 3
    assert _verify(untouched)
    assert _verify(untouched, _head(untouched))
    for content in untouched:
        assert _verify([content])


def test_every_single_byte_that_is_changed_is_found(untouched: list[bytes]) -> None:
    content = untouched[0]
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= random.randrange(1, 256)
        assert not _verify([bytes(changed), *untouched[1:]]), position


def test_every_single_byte_that_is_changed_in_the_last_file_is_found(untouched: list[bytes]) -> None:
    content = untouched[-1]
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= random.randrange(1, 256)
        assert not _verify([*untouched[:-1], bytes(changed)]), position


def test_every_single_byte_that_is_inserted_or_removed_is_found(untouched: list[bytes]) -> None:
    content = untouched[1]
    for position in range(len(content)):
        inserted = content[:position] + bytes([random.randrange(256)]) + content[position:]
        removed = content[:position] + content[position + 1 :]
        for changed in (inserted, removed):
            # A byte put beside its like changes nothing.
            assert changed == content or not _verify([untouched[0], changed, untouched[2]]), position


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_lines_that_are_removed_repeated_moved_or_exchanged_are_found(
    untouched: list[bytes], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, 2), "file")
    lines = _lines(untouched[number])
    kind = data.draw(st.sampled_from(["remove", "repeat", "move", "exchange", "insert"]), "kind")
    at = data.draw(st.integers(0, len(lines) - 1), "at")
    to = data.draw(st.integers(0, len(lines) - 1), "to")
    changed = list(lines)
    if kind == "remove":
        assume(at < len(lines) - 1 or number < 2)  # a tail that is cut off needs a head to be seen
        del changed[at]
    elif kind == "repeat":
        changed.insert(to, lines[at])
    elif kind == "move":
        changed.insert(to, changed.pop(at))
    elif kind == "exchange":
        changed[at], changed[to] = changed[to], changed[at]
    else:
        changed.insert(at, data.draw(st.sampled_from([*_lines(b"".join(untouched)), b"\n", b"{}\n"])))
    assume(changed != lines)
    contents = [*untouched[:number], b"".join(changed), *untouched[number + 1 :]]
    assert not _verify(contents)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_line_of_the_same_number_from_another_trail_is_found(
    untouched: list[bytes], data: st.DataObject
) -> None:
    lines = _lines(untouched[0])
    at = data.draw(st.integers(0, len(lines) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        trail = open_trail(path)
        for _ in range(RECORDS):
            trail.outcome(a_call(), result())
        trail.close()
        lines[at] = _lines(path.read_bytes())[at]
    assert not _verify([b"".join(lines), *untouched[1:]])


@given(cut=st.integers(1, 4000))
@settings(max_examples=100, deadline=None)
def test_a_tail_that_was_cut_off_is_found_with_a_head(untouched: list[bytes], cut: int) -> None:
    assume(cut < len(untouched[-1]))
    contents = [*untouched[:-1], untouched[-1][:-cut]]
    assert not _verify(contents, _head(untouched))


@given(st.permutations([0, 1, 2]))
def test_files_that_are_exchanged_are_found(untouched: list[bytes], order: list[int]) -> None:
    assume(order != [0, 1, 2])
    assert not _verify([untouched[number] for number in order])


@pytest.mark.parametrize("chosen", [[0, 2], [0, 0, 1, 2], [0, 1, 1, 2]])
def test_a_file_that_is_missing_or_repeated_in_between_is_found(
    untouched: list[bytes], chosen: list[int]
) -> None:
    assert not _verify([untouched[number] for number in chosen])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_head_of_any_record_is_found_and_no_other(untouched: list[bytes], data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(_lines(b"".join(untouched))))
    head = line[-67:-3].decode()
    assert _verify(untouched, head)
    assert not _verify(untouched, head[::-1])


class Brokers:
    """Several brokers on one trail, some of which die."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.living: list[Trail] = []
        self.running: list[tuple[Trail, Call]] = []

    def do(self, step: str, which: int) -> None:
        """Take one step with one of the living brokers."""
        if step == "start" or not self.living:
            self.living.append(open_trail(self.path, durability="os", max_bytes=65_536, keep=100))
            return
        trail = self.living[which % len(self.living)]
        if step == "attempt":
            call = a_call("x" * (which * 37))
            trail.attempt(call)
            self.running.append((trail, call))
        elif step == "outcome":
            self._end(which)
        elif step == "refuse":
            trail.outcome(a_call(), result(ResultCode.POLICY_DENIED))
        elif step == "rotate":
            trail.rotate()
        else:
            self._leave(trail, dies=step == "die")

    def _end(self, which: int) -> None:
        if self.running:
            trail, call = self.running.pop(which % len(self.running))
            trail.outcome(call, result())

    def _leave(self, trail: Trail, *, dies: bool) -> None:
        self.living.remove(trail)
        mine = [item for item in self.running if item[0] is trail]
        self.running = [item for item in self.running if item[0] is not trail]
        if dies:
            trail._chain.close()
            return
        for _, call in mine:
            trail.outcome(call, result())
        trail.close()


STEPS = ["start", "attempt", "attempt", "outcome", "refuse", "rotate", "die", "close"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 200)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_whatever_brokers_do_the_chain_is_whole_and_every_attempt_gets_its_outcome(
    steps: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        brokers = Brokers(Path(folder) / "audit.jsonl")
        for step, which in [("start", 0), *steps]:
            brokers.do(step, which)
        for trail in list(brokers.living):
            brokers._leave(trail, dies=True)
        open_trail(brokers.path).close()
        assert verified(brokers.path).sound
        found = records(brokers.path)
        attempts = [r["event_id"] for r in found if r["record_type"] == "attempt"]
        outcomes = [r["event_id"] for r in found if r["record_type"] == "outcome"]
        assert len(set(outcomes)) == len(outcomes)
        assert set(attempts) <= set(outcomes)
        assert found == [] or found[-1]["oldest_open"] is None
