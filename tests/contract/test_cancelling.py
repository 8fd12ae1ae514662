"""Cancellation, progress and a client that goes away: what runs is killed, and the trail has its outcome."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.place import Place
from tests.support.processes import (
    alive,
    descendants,
    unique_seconds,
    wait_until_nothing_left,
    wait_until_running,
)
from tests.support.raw_client import RawClient, envelope_in
from tests.support.sdk_client import Reports, SdkClient, envelope_of
from tests.support.trail import about
from tests.support.waiting import eventually


def _types(place: Place, word: str) -> list[str]:
    return [record["record_type"] for record in about(place.trail, word)]


def test_a_cancelled_call_is_killed_recorded_and_never_answered(raw: RawClient) -> None:
    seconds = unique_seconds()
    call = raw.start("run_command", {"command": f"sh wait.sh {seconds}"})
    wait_until_running(seconds)
    raw.send({"method": "notifications/cancelled", "params": {"requestId": call, "reason": "enough"}})
    wait_until_nothing_left(seconds)
    eventually(
        lambda: _types(raw.place, seconds) == ["attempt", "outcome"], "the outcome of a cancelled call"
    )
    assert raw.run("echo next").stdout == "next\n"


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
def test_a_call_that_is_cancelled_in_the_same_write_never_runs_and_is_recorded_once(
    raw: RawClient, tool: str
) -> None:
    mark = unique_seconds()
    params = {"name": tool, "arguments": {"command": f"touch made-{mark}"}}
    call = {"jsonrpc": "2.0", "id": "both", "method": "tools/call", "params": params}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "both"}}
    raw.send_bytes(json.dumps(call).encode() + b"\n" + json.dumps(cancel).encode() + b"\n")
    assert raw.run("echo next").stdout == "next\n"
    (record,) = about(raw.place.trail, mark)
    assert (record["record_type"], record["tool"], record["code"]) == ("outcome", tool, "PARSE_ERROR")
    assert "cancelled" in record["policy_reason"]
    assert not (raw.place.jail / f"made-{mark}").exists()


def test_cancelling_what_is_unknown_or_done_changes_nothing(raw: RawClient) -> None:
    done = raw.start("run_command", {"command": "true"})
    raw.answer(done)
    others: tuple[object, ...] = (done, 10**9, "text", None, [], {})
    for request_id in others:
        raw.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    raw.send({"method": "notifications/cancelled"})
    assert raw.run("echo next").stdout == "next\n"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdks_client_can_cancel_in_either_era(tmp_path: Path, mode: str) -> None:
    seconds = unique_seconds()
    with SdkClient(Place(tmp_path), mode=mode) as client:
        call = client.start("run_command", {"command": f"sh ignore_signals.sh {seconds}"})
        wait_until_running(seconds)
        call.cancel()
        wait_until_nothing_left(seconds)
        assert client.run("echo next").stdout == "next\n"
        eventually(lambda: _types(client.place, seconds) == ["attempt", "outcome"], "the outcome")


def test_cancelling_a_call_leaves_the_others_alone(client: SdkClient) -> None:
    stays, goes = unique_seconds(), unique_seconds()
    keep = client.start("run_command", {"command": f"sh echo_after.sh 0.5 {stays}"})
    cancel = client.start("run_command", {"command": f"sh wait.sh {goes}"})
    wait_until_running(goes)
    cancel.cancel()
    wait_until_nothing_left(goes)
    assert envelope_of(keep.result(timeout=10)).stdout == f"{stays}\n"


def test_progress_comes_to_a_client_with_a_token_and_rises(client: SdkClient) -> None:
    reports: Reports = []
    call = client.start("run_command", {"command": "sh echo_after.sh 1.6 done"}, reports=reports)
    assert envelope_of(call.result(timeout=15)).stdout == "done\n"
    done = [report[0] for report in reports]
    assert done
    assert done == sorted(set(done))
    assert max(done) > 0.5


def test_progress_names_the_clients_token_and_stops_before_the_answer(raw: RawClient) -> None:
    call = raw.start("run_command", {"command": "sh echo_after.sh 1.6 done"}, progressToken="a token")
    messages = [raw.message()]
    while "id" not in messages[-1]:
        messages.append(raw.message())
    assert messages.pop()["id"] == call
    assert {message["method"] for message in messages} == {"notifications/progress"}
    assert {message["params"]["progressToken"] for message in messages} == {"a token"}
    assert raw.run("echo next").stdout == "next\n"


def test_no_progress_comes_without_a_token(raw: RawClient) -> None:
    call = raw.start("run_command", {"command": "sh echo_after.sh 1.3 done"})
    assert raw.message()["id"] == call


def test_answers_go_out_before_the_end_when_the_client_stops_sending(place: Place) -> None:
    with RawClient(place) as raw:
        raw.initialize()
        call = raw.start("run_command", {"command": "sh echo_after.sh 0.3 last"})
        raw.close_input()
        assert envelope_in(raw.answer(call)).stdout == "last\n"
        assert raw.rest() == b""
        assert raw.ended() == 0


def test_calls_that_are_all_cancelled_at_once_are_in_the_trail_though_the_input_ends_too(
    place: Place,
) -> None:
    with RawClient(place) as raw:
        raw.initialize()
        for number in range(300):
            call = raw.start("run_command", {"command": f"echo call-{number}-"})
            raw.send({"method": "notifications/cancelled", "params": {"requestId": call}})
        raw.close_input()
        raw.rest()
        assert raw.ended() == 0
    for number in range(300):
        assert _types(place, f"call-{number}-") in (["outcome"], ["attempt", "outcome"])


def test_a_last_line_without_its_end_counts(place: Place) -> None:
    with RawClient(place) as raw:
        raw.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        raw.close_input()
        assert raw.message()["id"] == 1
        assert raw.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_server_is_ended_by_a_signal(place: Place, number: signal.Signals) -> None:
    seconds = unique_seconds()
    with RawClient(place) as raw:
        raw.initialize()
        raw.start("run_command", {"command": f"sh ignore_signals.sh {seconds}"})
        wait_until_running(seconds)
        started = descendants(raw.pid)
        os.kill(raw.pid, number)
        wait_until_nothing_left(seconds)
        assert raw.ended() == (-number if number == signal.SIGKILL else 0)
        raw.close_input()
        raw.rest()
        eventually(lambda: not any(map(alive, started)), "no descendant of the server")
    assert "Traceback" not in raw.stderr


def test_nothing_is_left_when_the_frontend_is_killed(place: Place) -> None:
    seconds = unique_seconds()
    with RawClient(place) as raw:
        raw.initialize()
        raw.start("run_command", {"command": f"sh leave_daemons.sh {seconds}"})
        raw.message()
        raw.start("run_command", {"command": f"sh ignore_signals.sh {seconds}"})
        wait_until_running(seconds)
        started = descendants(raw.pid)
        os.kill(raw.frontend_pid(), signal.SIGKILL)
        wait_until_nothing_left(seconds)
        raw.ended()
        eventually(lambda: not any(map(alive, started)), "no descendant of the server")
    assert _types(place, f"ignore_signals.sh {seconds}") == ["attempt", "outcome"]


def test_a_client_that_vanishes_ends_everything(place: Place) -> None:
    seconds = unique_seconds()
    with RawClient(place) as raw:
        raw.initialize()
        raw.start("run_command", {"command": f"sh wait.sh {seconds}"})
        wait_until_running(seconds)
        raw.vanish()
        wait_until_nothing_left(seconds)
        assert raw.ended() == 0
    assert _types(place, seconds) == ["attempt", "outcome"]
