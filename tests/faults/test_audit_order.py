"""The attempt is on disk before its program is executed: read from a trace of what the real broker asked of the kernel."""

from pathlib import Path

import pytest

from tests.faults.bare_client import BareClient, frame
from tests.faults.traced_calls import Seen, executions, fault_in, seen, traced
from tests.support.place import POLICY, Place

SLOW = "delay_enter=100000"
"""A disk that takes a tenth of a second, so that who does not wait for it is far ahead."""
BROKEN = "error=EIO"
TRAIL = Path("/state/audit.jsonl")

ATTEMPT = r'10 write(7</state/audit.jsonl>, "{\"record_type\":\"attempt\",\"argv\":[\"echo\",\"w0\"]}\n"..., 90) = 90'
OTHERS = ATTEMPT.replace("w0", "w1")
SYNCED = "11 fdatasync(7</state/audit.jsonl>) = 0 (DELAYED)"
BEGUN = "11 fdatasync(7</state/audit.jsonl> <unfinished ...>"
DONE = "11 <... fdatasync resumed>)           = 0 (DELAYED)"
EXECUTED = '12 execve("/usr/bin/echo", ["echo", "w0"], 0x7f22 /* 3 vars */) = 0'
HALF_EXECUTED = EXECUTED.replace(") = 0", " <unfinished ...>")
RUNS = "12 <... execve resumed>)              = 0"
REFUSED = "12 <... execve resumed>)              = -1 EPERM (Operation not permitted)"


def run_traced(place: Place, rounds: list[list[str]], disk: str) -> tuple[list[Seen], list[str]]:
    """Run `echo WORD` for each word, those of a round at once; return the broker's calls and the codes."""
    log = place.folder / "trace.txt"
    codes = []
    with BareClient(place, under=traced(log, disk=disk)) as client:
        client.greet()
        for words in rounds:
            numbers = range(len(codes) + 1, len(codes) + 1 + len(words))
            runs = zip(numbers, words, strict=True)
            client.send(b"".join(frame("run", id=number, command=f"echo {word}") for number, word in runs))
            codes += [client.reply()["result"]["code"] for _ in words]
    return seen(log.read_text(errors="replace").splitlines()), codes


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """A place whose trail has the durability that the test asks for."""
    return Place(tmp_path, f'{POLICY}\n[audit]\ndurability = "{request.param}"\n')


ROUNDS = [["first"], [f"together{number}" for number in range(6)], ["last"]]
WORDS = [word for words in ROUNDS for word in words]


@pytest.mark.parametrize("place", ["sync"], indirect=True)
def test_an_attempt_is_on_disk_before_its_program_is_executed(place: Place) -> None:
    calls, codes = run_traced(place, ROUNDS, SLOW)
    assert codes == ["OK"] * len(WORDS)
    assert {word: fault_in(calls, place.trail, word) for word in WORDS} == dict.fromkeys(WORDS)


@pytest.mark.parametrize("place", ["os"], indirect=True)
def test_the_judge_finds_the_programs_that_do_not_wait_for_the_disk(place: Place) -> None:
    calls, codes = run_traced(place, ROUNDS, SLOW)
    assert codes == ["OK"] * len(WORDS)
    no_wait = "no fdatasync stands between the attempt and the execution"
    assert {word: fault_in(calls, place.trail, word) for word in WORDS} == dict.fromkeys(WORDS, no_wait)


@pytest.mark.parametrize("place", ["sync"], indirect=True)
def test_nothing_is_executed_when_the_disk_fails_under_the_attempt(place: Place) -> None:
    calls, codes = run_traced(place, ROUNDS, BROKEN)
    assert codes == ["AUDIT_UNAVAILABLE"] * len(WORDS)
    assert all(call.result != 0 for word in WORDS for call in executions(calls, word))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([ATTEMPT, SYNCED, EXECUTED], None),
        ([ATTEMPT, BEGUN, OTHERS, DONE, HALF_EXECUTED], None),
        ([ATTEMPT, BEGUN, HALF_EXECUTED, DONE, RUNS], None),
        ([ATTEMPT, BEGUN, HALF_EXECUTED, DONE, REFUSED], None),
        ([ATTEMPT, EXECUTED], "no fdatasync"),
        ([ATTEMPT, EXECUTED, SYNCED], "no fdatasync"),
        ([SYNCED, ATTEMPT, EXECUTED], "no fdatasync"),
        ([BEGUN, ATTEMPT, DONE, EXECUTED], "no fdatasync"),
        ([ATTEMPT, BEGUN, EXECUTED, DONE], "no fdatasync"),
        ([ATTEMPT, BEGUN, HALF_EXECUTED, RUNS, DONE], "no fdatasync"),
        ([ATTEMPT, BEGUN, EXECUTED], "no fdatasync"),
        ([ATTEMPT, SYNCED.replace("= 0", "= -1 EIO (Input/output error)"), EXECUTED], "no fdatasync"),
        ([ATTEMPT, SYNCED.replace("audit", "other"), EXECUTED], "no fdatasync"),
        ([ATTEMPT.replace("= 90", "= -1 ENOSPC (No space left on device)"), SYNCED, EXECUTED], "not written"),
        ([OTHERS, SYNCED, EXECUTED], "0 attempts"),
        ([ATTEMPT.replace("attempt", "outcome"), SYNCED, EXECUTED], "0 attempts"),
        ([ATTEMPT, SYNCED], "0 programs"),
        ([ATTEMPT, SYNCED, EXECUTED.replace("w0", "w1")], "0 programs"),
    ],
)
def test_the_judge_knows_each_wrong_order(lines: list[str], said: str | None) -> None:
    fault = fault_in(seen(lines), TRAIL, "w0")
    assert fault is None if said is None else said in str(fault)
