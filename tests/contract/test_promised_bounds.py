"""The contract's promises about time, size and errors, and its table of result codes. Docstrings quote it."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.envelope import Envelope
from tests.support.place import Place
from tests.support.processes import unique_seconds, wait_until_nothing_left
from tests.support.sdk_client import SdkClient

STDOUT_BYTES = 20_000
STDERR_BYTES = 2_000


@pytest.fixture(scope="module")
def long_file(client: SdkClient) -> str:
    """The name of a file that is longer than either cap."""
    name = "long.txt"
    (client.place.jail / name).write_text("0123456789abcde\n" * 4_000)
    return name


def test_a_command_that_takes_too_long_is_killed(client: SdkClient) -> None:
    """Bounded. Wall-clock timeout with process kill; stdout/stderr are capped."""
    seconds = unique_seconds()
    answer = client.run(f"sleep {seconds}")
    assert (answer.ok, answer.code) == (False, "TIMEOUT")
    assert 500 <= answer.duration_ms < 5_000
    wait_until_nothing_left(seconds)


def test_standard_output_is_capped(client: SdkClient, long_file: str) -> None:
    """Bounded. Wall-clock timeout with process kill; stdout/stderr are capped."""
    answer = client.run(f"cat {long_file}")
    assert answer.code == "OUTPUT_TRUNCATED"
    assert STDOUT_BYTES // 2 < len(answer.stdout.encode()) <= STDOUT_BYTES
    assert f"stdout was cut at {STDOUT_BYTES} of " in answer.policy_reason
    assert "(limits.stdout_bytes); allowed by " in answer.policy_reason


def test_standard_error_is_capped(client: SdkClient, long_file: str) -> None:
    """Bounded. Wall-clock timeout with process kill; stdout/stderr are capped."""
    answer = client.run(f"sh tell_stderr.sh {long_file}")
    assert answer.code == "OUTPUT_TRUNCATED"
    assert STDERR_BYTES // 2 < len(answer.stderr.encode()) <= STDERR_BYTES
    assert answer.policy_reason.startswith(f"stderr was cut at {STDERR_BYTES} of ")
    assert "limits.stderr_bytes" in answer.policy_reason
    assert "stdout" not in answer.policy_reason


def test_a_character_is_never_cut_in_two_at_the_cap(client: SdkClient) -> None:
    """Bounded. Wall-clock timeout with process kill; stdout/stderr are capped."""
    (client.place.jail / "wide.txt").write_text("x" + "€" * 10_000, encoding="utf-8")
    answer = client.run("cat wide.txt")
    assert len(answer.stdout.encode()) <= STDOUT_BYTES
    assert set(answer.stdout) == {"x", "€"}


HOSTILE_CALLS: tuple[dict[str, object], ...] = (
    {},
    {"command": None},
    {"command": 7},
    {"command": ["ls"]},
    {"command": "ls", "cwd": 7},
    {"command": "ls", "shell": True},
    {"command": "'"},
    {"command": "\0"},
    {"command": "x" * 100_000},
    {"command": "ls", "cwd": "\0"},
    {"command": "ls", "cwd": "x" * 10_000},
)


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
def test_whatever_is_asked_the_answer_is_an_envelope_without_a_traceback(
    client: SdkClient, tool: str
) -> None:
    """Errors are data. No Python traceback ever reaches the client; every result is a CommandResult envelope with a
    typed ResultCode."""
    for arguments in HOSTILE_CALLS:
        answer = client.call(tool, arguments)
        assert not answer.ok, arguments
        assert answer.code in {"PARSE_ERROR", "POLICY_DENIED", "CWD_ESCAPE"}, arguments
        assert "Traceback" not in str(answer)
    assert "Traceback" not in client.stderr


def test_no_reason_shows_an_exception_or_a_file_of_the_server(client: SdkClient) -> None:
    """Errors are data. No Python traceback ever reaches the client; every result is a CommandResult envelope with a
    typed ResultCode."""
    for command in ("'", "not-installed-anywhere", "id", "cat ../x", ""):
        reason = client.run(command).policy_reason
        assert reason
        places = (client.place.policy, client.place.trail, client.place.folder)
        shows = ("Error:", "Exception", ".py", "site-packages", *map(str, places))
        assert not any(part in reason for part in shows), reason


def _finished(answer: Envelope) -> tuple[bool, str, int | None]:
    return answer.ok, answer.code, answer.exit_code


@pytest.mark.parametrize(("command", "status"), [("true", 0), ("false", 1), ("sh end_with.sh 77", 77)])
def test_ok_carries_the_exit_status_of_the_program(client: SdkClient, command: str, status: int) -> None:
    """OK Executed and returned (exit_code carries the result)."""
    assert _finished(client.run(command)) == (True, "OK", status)


def test_ok_carries_the_signal_of_a_program_that_died_by_one(client: SdkClient) -> None:
    """OK Executed and returned (exit_code carries the result)."""
    assert _finished(client.run("sh kill_itself.sh")) == (True, "OK", -9)


@pytest.mark.parametrize("command", ["id", "ls --color=always", "ls a|b", "", "  "])
def test_denials_of_every_kind_have_one_code(client: SdkClient, command: str) -> None:
    """POLICY_DENIED Denied by policy (list, arg rule, metacharacter, empty)."""
    assert _finished(client.run(command)) == (False, "POLICY_DENIED", None)


@pytest.mark.parametrize("command", ["echo 'open", 'echo "open', "echo \0", "echo " + "x " * 40_000])
def test_what_is_no_argv_is_a_parse_error(client: SdkClient, command: str) -> None:
    """PARSE_ERROR Command could not be parsed into an argv."""
    assert _finished(client.run(command)) == (False, "PARSE_ERROR", None)


def test_a_timeout_keeps_what_was_read_so_far(client: SdkClient) -> None:
    """TIMEOUT Wall-clock timeout; process killed."""
    answer = client.run("yes still here")
    assert answer.code == "TIMEOUT"
    assert answer.stdout.startswith("still here\n")


def test_output_over_the_cap_is_still_a_result(client: SdkClient, long_file: str) -> None:
    """OUTPUT_TRUNCATED Ran, but output hit the cap."""
    assert _finished(client.run(f"cat {long_file}")) == (True, "OUTPUT_TRUNCATED", 0)


def test_an_escape_of_the_working_folder_has_its_own_code(client: SdkClient) -> None:
    """CWD_ESCAPE cwd escaped the jail root."""
    assert _finished(client.run("ls", cwd="/")) == (False, "CWD_ESCAPE", None)


def test_a_listed_program_that_the_machine_lacks_is_an_executor_error(client: SdkClient) -> None:
    """EXECUTOR_ERROR Allowed command couldn't run (not found, permission, etc.)."""
    answer = client.run("not-installed-anywhere")
    assert _finished(answer) == (False, "EXECUTOR_ERROR", None)
    assert "not-installed-anywhere" in answer.policy_reason


def test_a_trail_that_is_gone_makes_the_audit_unavailable(tmp_path: Path) -> None:
    """AUDIT_UNAVAILABLE Fail-closed: the audit record couldn't be written; not run."""
    with SdkClient(Place(tmp_path)) as client:
        client.place.trail.unlink()
        answer = client.run("touch made.txt")
        assert _finished(answer) == (False, "AUDIT_UNAVAILABLE", None)
        assert not (client.place.jail / "made.txt").exists()


def test_a_broker_that_dies_is_an_internal_error_with_a_generic_reason(tmp_path: Path) -> None:
    """INTERNAL_ERROR Unexpected server error; generic message only."""
    with SdkClient(Place(tmp_path)) as client:
        os.kill(client.pid, signal.SIGKILL)
        for call in (client.run, client.explain):
            answer = call("ls")
            assert _finished(answer) == (False, "INTERNAL_ERROR", None)
            assert "ls" not in answer.policy_reason.split()
            assert "Error" not in answer.policy_reason
