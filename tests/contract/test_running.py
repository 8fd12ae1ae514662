"""Programs that misbehave: they are bounded in time and memory, nothing of them is left, and the next call works."""

import time
from collections.abc import Iterator

import pytest

from tests.support.place import POLICY, Place
from tests.support.processes import marked, peak_memory_bytes, unique_seconds, wait_until_nothing_left
from tests.support.sdk_client import SdkClient, envelope_of
from tests.support.trail import calls
from tests.support.waiting import eventually

TIMEOUT_MS = 700
LATE_MS = 250
TRIES = 3
"""A machine may pause for longer than that; not each time."""
BROKER_BYTES = 64 * 1024 * 1024
HASTY_POLICY = POLICY + f"[rules.sh.limits]\ntimeout_s = {TIMEOUT_MS / 1000}\n"

CALLS = 64
CONCURRENT = 8


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """A client on a server that gives a shell less than a second."""
    with SdkClient(Place(tmp_path_factory.mktemp("hasty"), HASTY_POLICY)) as connected:
        yield connected


@pytest.fixture(autouse=True)
def goes_on(hasty: SdkClient) -> Iterator[None]:
    """After each test: the broker is small and the next call works."""
    yield
    assert hasty.run("echo next").stdout == "next\n"
    assert peak_memory_bytes(hasty.pid) < BROKER_BYTES


ENDLESS = {
    "prints without end": "sh -c 'exec yes {}'",
    "prints without end on standard error": "sh flood_stderr.sh {}",
    "prints a line without end": "sh endless_line.sh {}",
    "prints zero bytes without end": "sh -c 'cat /dev/zero' {}",
    "ignores every signal": "sh ignore_signals.sh {}",
    "closes its output and goes on": "sh close_output.sh {}",
    "leaves daemons behind and goes on": "sh -c '. ./leave_daemons.sh; sleep 60' {} {}",
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_program_that_does_not_end_is_killed_in_time_with_all_that_it_started(
    hasty: SdkClient, case: str
) -> None:
    late_ms = LATE_MS + 1
    for _ in range(TRIES):
        seconds = unique_seconds()
        answer = hasty.run(ENDLESS[case].format(seconds, seconds))
        assert answer.code == "TIMEOUT", answer
        late_ms = answer.duration_ms - TIMEOUT_MS
        assert late_ms >= 0
        wait_until_nothing_left(seconds)
        if late_ms <= LATE_MS:
            break
    assert late_ms <= LATE_MS


def test_a_flood_is_kept_up_to_the_cap_and_counted_beyond(hasty: SdkClient) -> None:
    answer = hasty.run("sh -c 'exec yes flood'")
    assert len(answer.stdout) <= 20_000
    assert answer.stdout.startswith("flood\nflood\n")
    outcome = calls(hasty.place.trail)[-1]
    assert outcome["stdout_bytes"] > 1_000_000


def test_a_daemon_neither_delays_the_answer_nor_outlives_it(hasty: SdkClient) -> None:
    seconds = unique_seconds()
    answer = hasty.run(f"sh leave_daemons.sh {seconds}")
    assert (answer.code, answer.exit_code, answer.stdout) == ("OK", 0, "left\n")
    wait_until_nothing_left(seconds)


@pytest.mark.parametrize("command", ["cat", "cat -", "head -n 1", "sh", "sh -c 'cat; echo after'", "grep x"])
def test_a_program_that_reads_its_input_finds_the_end(hasty: SdkClient, command: str) -> None:
    answer = hasty.run(command)
    assert answer.code == "OK"
    assert answer.duration_ms < TIMEOUT_MS
    assert answer.stdout == ("after\n" if "after" in command else "")


def test_a_program_has_no_terminal_and_no_descriptor_but_three(hasty: SdkClient) -> None:
    assert hasty.run("sh descriptors.sh").stdout == "no terminal\n"


def test_many_calls_at_once_are_all_answered_in_parallel_up_to_the_limit(client: SdkClient) -> None:
    seconds = "0.25" + unique_seconds().removeprefix("300.")
    begun = time.monotonic()
    futures = [
        client.start("run_command", {"command": f"sh echo_after.sh {seconds} {n}"}) for n in range(CALLS)
    ]
    seen: list[int] = []

    def all_answered() -> bool:
        seen.append(len(marked(seconds)))
        return all(future.done() for future in futures)

    eventually(all_answered, f"{CALLS} answers", bound_s=30)
    elapsed_s = time.monotonic() - begun
    assert [envelope_of(future.result()).stdout for future in futures] == [f"{n}\n" for n in range(CALLS)]
    assert elapsed_s >= CALLS / CONCURRENT * 0.25
    assert CONCURRENT <= max(seen) <= 2 * CONCURRENT, "a shell and a sleep for each"
    wait_until_nothing_left(seconds)


def test_the_trail_of_many_calls_at_once_is_complete(client: SdkClient) -> None:
    before = len(calls(client.place.trail))
    futures = [client.start("run_command", {"command": f"echo {n} of-many"}) for n in range(CALLS)]
    assert all(envelope_of(future.result(timeout=30)).code == "OK" for future in futures)
    events: dict[str, list[str]] = {}
    for record in calls(client.place.trail)[before:]:
        events.setdefault(record["event_id"], []).append(record["record_type"])
    assert list(events.values()) == [["attempt", "outcome"]] * CALLS


def test_denials_are_answered_while_every_place_is_taken(client: SdkClient) -> None:
    seconds = unique_seconds()
    waiting = [client.start("run_command", {"command": f"sh wait.sh {seconds}"}) for _ in range(CONCURRENT)]
    eventually(lambda: len(marked(seconds)) == CONCURRENT, "every place taken")
    assert client.run("id").code == "POLICY_DENIED"
    assert client.explain("ls").code == "OK"
    for future in waiting:
        future.cancel()
    wait_until_nothing_left(seconds)
    assert client.run("echo free").stdout == "free\n"
