"""The contract holds with the broker elsewhere: a confined frontend here, policy, jail and trail beyond a real ssh server.

Every test of the contract that needs no more than a client is run again here, by its own code, with the client of this
module in the place of the usual one.
"""

import inspect
import os
import signal
from collections.abc import Iterator

import pytest

from tests.contract import (
    test_promised_audit,
    test_promised_bounds,
    test_promised_gate,
    test_promised_redaction,
    test_promised_tools,
)
from tests.contract.ssh_server import SshServer, why_not
from tests.support import processes, trail
from tests.support.command import COMMAND, run_cli
from tests.support.place import Place
from tests.support.raw_client import RawClient, envelope_in
from tests.support.sdk_client import SdkClient
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no ssh server: {why_not()}")

NOTHING_HERE = {"HTMCP_POLICY_FILE": None, "HTMCP_JAIL_ROOT": None, "HTMCP_AUDIT_LOG": None}
"""This side has no policy, no jail and no trail."""


class Beyond:
    """A place beyond a server, and the settings that lead there."""

    def __init__(self, place: Place, server: SshServer) -> None:
        self.place = place
        self.settings = NOTHING_HERE | {"HTMCP_BROKER": server.broker_command}


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beyond]:
    place = Place(tmp_path_factory.mktemp("beyond"))
    with SshServer(place) as server:
        yield Beyond(place, server)


@pytest.fixture(scope="module")
def client(beyond: Beyond) -> Iterator[SdkClient]:
    with SdkClient(beyond.place, **beyond.settings) as connected:
        yield connected


def _needs_a_client_alone(test: object) -> bool:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    named = [mark.args[0] if isinstance(mark.args[0], str) else ",".join(mark.args[0]) for mark in marks]
    given = {name.strip() for names in named for name in names.split(",")}
    return inspect.isfunction(test) and set(inspect.signature(test).parameters) - given == {"client"}


CONTRACT = {
    name: test
    for module in (
        test_promised_audit,
        test_promised_bounds,
        test_promised_gate,
        test_promised_redaction,
        test_promised_tools,
    )
    for name, test in vars(module).items()
    if name.startswith("test_") and _needs_a_client_alone(test)
}
globals().update(CONTRACT)


def test_the_contract_is_tried_from_afar() -> None:
    assert len(CONTRACT) > 50


def test_a_command_runs_in_the_jail_beyond(client: SdkClient) -> None:
    assert client.run("cat readme.txt").stdout == "a small project\n"
    assert client.run("pwd").stdout == f"{client.place.jail}\n"
    assert client.run("pwd", cwd="src").stdout == f"{client.place.jail}/src\n"


def test_each_way_to_be_refused_is_the_same_as_here(client: SdkClient) -> None:
    assert client.run("rm readme.txt").code == "POLICY_DENIED"
    assert client.run("echo a; echo b").code == "POLICY_DENIED"
    assert client.run("echo 'open").code == "PARSE_ERROR"
    assert client.run("ls", cwd="..").code == "CWD_ESCAPE"
    assert client.run("cat src/link_out/private.txt").code == "POLICY_DENIED"
    assert client.call("run_command", {"command": 7}).code == "PARSE_ERROR"


def test_a_dry_run_runs_nothing(client: SdkClient) -> None:
    verdict = client.explain("touch made.txt")
    assert (verdict.ok, verdict.exit_code) == (True, None)
    assert not (client.place.jail / "made.txt").exists()


def test_bounds_and_redaction_hold(client: SdkClient) -> None:
    assert client.run("yes").code == "TIMEOUT"
    assert client.run("head -c 50000 /dev/zero").code == "POLICY_DENIED"
    long = client.run("sh -c 'yes | head -c 100000'")
    assert (long.code, len(long.stdout)) == ("OUTPUT_TRUNCATED", 20_000)
    assert "hunter2hunter2" not in client.run("echo --password hunter2hunter2").stdout


def test_calls_at_once_are_answered_each_by_its_own(client: SdkClient) -> None:
    pending = [client.start("run_command", {"command": f"echo {number}"}) for number in range(20)]
    outputs = [call.result(timeout=30).structured_content["stdout"] for call in pending]
    assert outputs == [f"{number}\n" for number in range(20)]


def test_the_trail_is_written_beyond_and_holds_attempt_and_outcome(client: SdkClient) -> None:
    word = "a-word-of-its-own"
    client.run(f"echo {word}")
    kinds = [record["record_type"] for record in trail.about(client.place.trail, word)]
    assert kinds == ["attempt", "outcome"]


def test_the_command_line_hands_the_status_on(beyond: Beyond) -> None:
    assert run_cli(beyond.place, "run", "sh -c 'echo hi; exit 3'", **beyond.settings)[:2] == (3, "hi\n")
    assert run_cli(beyond.place, "run", "rm x", **beyond.settings).status == 126


def test_this_side_has_no_broker_and_its_frontend_is_confined(client: SdkClient) -> None:
    (frontend,) = [pid for pid in processes.children(client.pid) if "-I" in processes.command_line(pid)]
    given = processes.environment(frontend)
    assert {name for name in given if name.startswith("HTMCP_")} == {"HTMCP_BROKER_FD"}
    with open(f"/proc/{frontend}/status") as status:
        facts = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert int(facts["CapEff"], 16) == 0


def test_a_signal_to_this_side_ends_both(beyond: Beyond) -> None:
    marker = processes.unique_seconds()
    with RawClient(beyond.place, **beyond.settings) as client:
        client.initialize()
        client.start("run_command", {"command": f"sh -c 'setsid sleep {marker} & sleep {marker}'"})
        processes.wait_until_running(marker)
        here = processes.descendants(client.pid)
        os.kill(client.pid, signal.SIGTERM)
        client.ended()
        processes.wait_until_nothing_left(marker)
        assert not [pid for pid in here if processes.alive(pid)]


def test_the_death_of_ssh_is_an_answer_to_every_call_and_leaves_nothing_on_either_side(
    beyond: Beyond,
) -> None:
    marker = processes.unique_seconds()
    with RawClient(beyond.place, **beyond.settings) as client:
        client.initialize()
        ids = {client.start("run_command", {"command": f"sh -c 'sleep {marker}'"}) for _ in range(4)}
        eventually(lambda: len(processes.marked(marker)) >= 4, "all four run")
        (ssh,) = [pid for pid in processes.children(client.pid) if processes.command_line(pid)[:1] == ["ssh"]]
        os.kill(ssh, signal.SIGKILL)
        answers = [client.message() for _ in ids]
        assert {answer["id"] for answer in answers} == ids
        assert {envelope_in(answer).code for answer in answers} == {"INTERNAL_ERROR"}
        processes.wait_until_nothing_left(marker)
        assert (
            envelope_in(client.answer(client.start("run_command", {"command": "true"}))).code
            == "INTERNAL_ERROR"
        )
    eventually(lambda: _whole(beyond.place, marker), "every attempt has its outcome beyond")


def _whole(place: Place, word: str) -> bool:
    kinds = [record["record_type"] for record in trail.about(place.trail, word)]
    return kinds.count("attempt") == kinds.count("outcome") == 4


@pytest.mark.parametrize("command", ["", "'open", "no-such-program-anywhere --stdio"])
def test_a_way_to_the_broker_that_is_none_is_said_before_anything_starts(place: Place, command: str) -> None:
    ended = run_cli(place, "run", "echo hi", **NOTHING_HERE | {"HTMCP_BROKER": command or " "})
    assert ended.status == 78
    assert ended.stderr.startswith("hardened-terminal-mcp: HTMCP_BROKER: ")
    assert ended.stderr.count("\n") == 1


def test_a_server_that_is_named_as_its_own_broker_does_not_start_itself_without_end(place: Place) -> None:
    script = f"echo started >&2; test -z $HTMCP_BROKER || exec {COMMAND}"
    ended = run_cli(place, "run", "echo hi", **NOTHING_HERE | {"HTMCP_BROKER": f"sh -c '{script}'"})
    assert ended.status == 125
    assert ended.stderr.count("started") == 1


def test_a_way_that_ends_at_once_is_a_failure_and_no_hang(place: Place) -> None:
    ended = run_cli(place, "run", "echo hi", **NOTHING_HERE | {"HTMCP_BROKER": "true"})
    assert ended.status == 125
    assert ended.stdout == ""
