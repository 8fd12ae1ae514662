"""The command line as a second frontend on the same broker: what it prints, and its exit status."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.command import COMMAND, EX_CONFIG, assert_refused, run_cli
from tests.support.made_secrets import github_token
from tests.support.place import POLICY, Place
from tests.support.processes import (
    alive,
    descendants,
    unique_seconds,
    wait_until_nothing_left,
    wait_until_running,
)
from tests.support.trail import about, calls, records
from tests.support.waiting import eventually

REFUSED = 126
TIMEOUT = 124
OURS = 125
USAGE = 2


def test_run_prints_the_commands_output_and_ends_with_its_status(place: Place) -> None:
    assert run_cli(place, "run", "cat readme.txt") == (0, "a small project\n", "")
    assert run_cli(place, "run", "sh tell_stderr.sh readme.txt") == (0, "", "a small project\n")
    assert run_cli(place, "run", "sh end_with.sh 77").status == 77


def test_run_prints_bytes_that_are_no_text_as_replacements(place: Place) -> None:
    (place.jail / "binary").write_bytes(b"a\xffb\n")
    assert run_cli(place, "run", "cat binary").stdout == "a\ufffdb\n"


def test_a_command_that_died_by_a_signal_ends_with_128_and_its_number(place: Place) -> None:
    assert run_cli(place, "run", "sh kill_itself.sh").status == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "command", ["rm readme.txt", "ls | ls", "ls --color=always", "", "cat ../outside/private.txt"]
)
def test_a_refused_command_ends_with_126_and_says_why(place: Place, command: str) -> None:
    ended = run_cli(place, "run", command)
    assert (ended.status, ended.stdout) == (REFUSED, "")
    assert ended.stderr.strip()
    assert "Traceback" not in ended.stderr


def test_a_command_that_took_too_long_ends_with_124_and_what_it_printed(place: Place) -> None:
    ended = run_cli(place, "run", "yes still")
    assert ended.status == TIMEOUT
    assert ended.stdout.startswith("still\n")
    assert ended.stderr.strip()


@pytest.mark.parametrize(
    ("command", "cwd"), [("not-installed-anywhere", "."), ("'", "."), ("ls", ".."), ("ls", "missing")]
)
def test_any_other_failure_ends_with_125_or_126_and_a_reason(place: Place, command: str, cwd: str) -> None:
    ended = run_cli(place, "run", "--cwd", cwd, command)
    assert ended.status in ({OURS} if command == "not-installed-anywhere" else {OURS, REFUSED})
    assert ended.stdout == ""
    assert ended.stderr.strip()


def test_output_over_the_cap_ends_with_the_commands_status(place: Place) -> None:
    (place.jail / "long.txt").write_text("x" * 50_000)
    ended = run_cli(place, "run", "cat long.txt")
    assert ended.status == 0
    assert 0 < len(ended.stdout) <= 20_001


def test_json_prints_the_envelope(place: Place) -> None:
    ended = run_cli(place, "run", "--json", "cat readme.txt")
    assert ended.status == 0
    assert ended.stdout.count("\n") == 1
    assert (ended.envelope.code, ended.envelope.stdout, ended.envelope.exit_code) == (
        "OK",
        "a small project\n",
        0,
    )


@pytest.mark.parametrize(
    ("command", "code", "status"), [("rm x", "POLICY_DENIED", REFUSED), ("yes", "TIMEOUT", TIMEOUT)]
)
def test_json_keeps_the_exit_status(place: Place, command: str, code: str, status: int) -> None:
    ended = run_cli(place, "run", "--json", command)
    assert (ended.status, ended.envelope.code) == (status, code)


def test_cwd_is_a_folder_inside_the_jail(place: Place) -> None:
    assert run_cli(place, "run", "--cwd", "src", "pwd").stdout == f"{place.jail}/src\n"
    assert run_cli(place, "run", "--cwd", str(place.jail / "src"), "pwd").stdout == f"{place.jail}/src\n"


def test_explain_says_yes_or_no_and_never_runs(place: Place) -> None:
    assert run_cli(place, "explain", "touch explained.txt").status == 0
    refused = run_cli(place, "explain", "rm readme.txt")
    assert refused.status == REFUSED
    assert "rm" in refused.stdout + refused.stderr
    assert not (place.jail / "explained.txt").exists()
    assert (place.jail / "readme.txt").exists()


def test_explain_prints_the_envelope_as_json(place: Place) -> None:
    answer = run_cli(place, "explain", "--json", "ls").envelope
    assert (answer.ok, answer.code, answer.stdout, answer.exit_code) == (True, "OK", "", None)


def test_run_and_explain_are_audited(place: Place) -> None:
    run_cli(place, "run", "echo by-hand")
    run_cli(place, "explain", "echo by-hand")
    found = about(place.trail, "by-hand")
    assert [(record["tool"], record["record_type"]) for record in found] == [
        ("run_command", "attempt"),
        ("run_command", "outcome"),
        ("explain_command", "outcome"),
    ]


def test_run_does_not_read_what_comes_on_its_input(place: Place) -> None:
    assert run_cli(place, "run", "cat", untrusted=b"from the terminal\n") == (0, "", "")


def test_run_redacts_what_it_prints(place: Place) -> None:
    secret = github_token()
    (place.jail / "token.txt").write_text(secret)
    ended = run_cli(place, "run", "sh -c 'cat token.txt; cat token.txt >&2'")
    assert secret not in ended.stdout + ended.stderr
    assert "[REDACTED:github_token]" in ended.stdout
    assert "[REDACTED:github_token]" in ended.stderr


@contextlib.contextmanager
def started(place: Place, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run with pipes for what it prints, and no input; whatever fails in the block, it does not outlive it."""
    with subprocess.Popen(
        [COMMAND, "run", command],
        env=place.environment(),
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_run_that_is_interrupted_leaves_nothing_behind(place: Place, number: signal.Signals) -> None:
    seconds = unique_seconds()
    with started(place, f"sh ignore_signals.sh {seconds}") as process:
        wait_until_running(seconds)
        living = descendants(process.pid)
        process.send_signal(number)
        _, untrusted_stderr = process.communicate(timeout=10)
    killed = number is signal.SIGKILL
    assert process.returncode == (-number if killed else 128 + number)
    assert untrusted_stderr.startswith(
        b"hardened-terminal-mcp: INTERNAL_ERROR: the broker is gone" if killed else b""
    )
    assert b"Traceback" not in untrusted_stderr
    wait_until_nothing_left(seconds)
    eventually(lambda: not any(map(alive, living)), "no descendant of the command")


def test_a_reader_that_goes_away_ends_a_run_without_a_traceback(place: Place) -> None:
    (place.jail / "long.txt").write_text("x\n" * 9_000)
    with started(place, "cat long.txt") as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()
        process.wait(timeout=10)


def test_version_and_help_need_no_configuration(place: Place) -> None:
    missing = str(place.folder / "missing")
    shown = run_cli(place, "--version", HTMCP_POLICY_FILE=missing)
    assert shown == (0, f"hardened-terminal-mcp {version('hardened-terminal-mcp')}\n", "")
    for arguments in (
        ("--help",),
        ("run", "--help"),
        ("explain", "--help"),
        ("init", "--help"),
        ("trust", "--help"),
    ):
        ended = run_cli(place, *arguments, HTMCP_POLICY_FILE=missing)
        assert (ended.status, ended.stderr) == (0, ""), arguments
        assert "usage" in ended.stdout.lower()
        assert ("is shown when it has ended" in ended.stdout) == (arguments[0] == "run")


@pytest.mark.parametrize(
    "arguments", [("unheard-of",), ("run",), ("run", "ls", "-l"), ("run", "--unheard-of", "ls"), ("--json",)]
)
def test_a_command_line_that_cannot_be_read_ends_with_2(place: Place, arguments: tuple[str, ...]) -> None:
    ended = run_cli(place, *arguments)
    assert (ended.status, ended.stdout) == (USAGE, "")
    assert "usage" in ended.stderr.lower()
    assert "Traceback" not in ended.stderr
    assert not calls(place.trail)


@pytest.mark.parametrize("command", ["-x", "--", "--version"])
def test_a_command_that_looks_like_an_option_is_never_run_as_one(place: Place, command: str) -> None:
    ended = run_cli(place, "run", "--", command)
    assert ended.status in {REFUSED, USAGE}
    assert "Traceback" not in ended.stderr


def test_init_writes_a_policy_that_works_at_once(place: Place) -> None:
    own = place.folder / "config" / "hardened-terminal-mcp" / "policy.toml"
    ended = run_cli(place, "init", HTMCP_POLICY_FILE=None)
    assert ended.status == 0
    assert str(own) in ended.stdout
    assert own.stat().st_mode & 0o022 == 0
    assert (
        run_cli(place, "run", "git log --oneline -1", cwd=place.outside, HTMCP_POLICY_FILE=None).status == 0
    )


def test_init_never_overwrites_a_policy(place: Place) -> None:
    own = place.folder / "config" / "hardened-terminal-mcp" / "policy.toml"
    own.parent.mkdir(parents=True)
    own.write_text(POLICY)
    ended = run_cli(place, "init", HTMCP_POLICY_FILE=None)
    assert ended.status != 0
    assert str(own) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert own.read_text() == POLICY


def _brought_along(place: Place) -> Path:
    policy = place.jail / "policy.toml"
    policy.write_text('[commands]\nallow = ["touch"]\n[rules.touch]\nwrites = true\n')
    return policy


@pytest.mark.parametrize(
    "arguments", [(), ("serve",), ("run", "touch hello.txt"), ("explain", "touch hello.txt")]
)
def test_a_policy_that_a_cloned_repository_brings_is_refused(
    place: Place, arguments: tuple[str, ...]
) -> None:
    policy = _brought_along(place)
    ended = run_cli(place, *arguments, cwd=place.jail, HTMCP_POLICY_FILE=None, HTMCP_JAIL_ROOT=None)
    assert_refused(ended, f"trust {policy}", "HTMCP_POLICY_FILE")
    assert not (place.jail / "hello.txt").exists()


@pytest.mark.parametrize("root", ["/usr/share", "src", ".."])
def test_a_policy_that_a_cloned_repository_brings_is_refused_whatever_jail_it_names(
    place: Place, root: str
) -> None:
    policy = _brought_along(place)
    policy.write_text(policy.read_text() + f'[jail]\nroot = "{root}"\n')
    ended = run_cli(
        place, "run", "touch hello.txt", cwd=place.jail, HTMCP_POLICY_FILE=None, HTMCP_JAIL_ROOT=None
    )
    assert_refused(ended, f"trust {policy}", "HTMCP_POLICY_FILE")


def test_a_policy_that_is_a_link_in_the_jail_is_refused_too(place: Place) -> None:
    policy = _brought_along(place)
    policy.rename(place.outside / "elsewhere.toml")
    policy.symlink_to(place.outside / "elsewhere.toml")
    ended = run_cli(place, "run", "touch hello.txt", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert_refused(ended, "trust")


def test_the_users_own_policy_does_not_replace_one_that_was_refused(place: Place) -> None:
    _brought_along(place)
    assert run_cli(place, "init", HTMCP_POLICY_FILE=None).status == 0
    ended = run_cli(place, "run", "ls", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert ended.status == EX_CONFIG


def test_trust_approves_these_bytes_at_this_place_only(place: Place) -> None:
    policy = _brought_along(place)
    approved = run_cli(place, "trust", str(policy))
    assert approved.status == 0
    assert str(policy) in approved.stdout
    assert run_cli(place, "run", "touch a.txt", cwd=place.jail, HTMCP_POLICY_FILE=None).status == 0
    moved = place.jail / "src" / "policy.toml"
    moved.write_bytes(policy.read_bytes())
    assert run_cli(place, "run", "touch b.txt", cwd=moved.parent, HTMCP_POLICY_FILE=None).status == EX_CONFIG
    policy.write_text(policy.read_text() + "# changed\n")
    assert run_cli(place, "run", "touch c.txt", cwd=place.jail, HTMCP_POLICY_FILE=None).status == EX_CONFIG


def test_trust_of_a_missing_file_is_refused(place: Place) -> None:
    assert_refused(run_cli(place, "trust", str(place.jail / "missing.toml")), "missing.toml")


def test_the_record_of_json_agrees_with_the_trail(place: Place) -> None:
    answer = json.loads(run_cli(place, "run", "--json", "sh end_with.sh 9").stdout)
    outcome = calls(place.trail)[-1]
    assert (outcome["code"], outcome["exit_code"]) == (answer["code"], answer["exit_code"])


def test_the_trail_says_which_jail_and_policy_the_calls_of_a_session_had(place: Place) -> None:
    run_cli(place, "run", "pwd")
    start, *others = records(place.trail)
    assert (start["event"], start["detail"]) == ("start", f"jail {place.jail}, policy {place.policy}")
    assert {record["session"] for record in others} == {start["session"]}


def _is_script(path: str) -> bool:
    return os.path.isfile(path) and Path(path).read_bytes().startswith(b"#!")


@pytest.mark.skipif(not _is_script("/usr/bin/which"), reason="`which` is no script here")
def test_a_record_names_the_program_as_it_was_called_also_where_that_is_a_script(place: Place) -> None:
    rule = '\n[rules.which]\noperands = ["text"]\n'
    place.policy.write_text(POLICY.replace('"cat", ', '"cat", "which", ') + rule)
    assert run_cli(place, "run", "which ls").stdout.endswith("/ls\n")
    assert run_cli(place, "run", "--cwd", "src/../src", "which 'l s'").status == 1
    run_cli(place, "run", "--cwd", "..", "which ls")
    shown = [(record["argv"], record["cwd"]) for record in calls(place.trail)]
    at_root, below, refused = (["which", "ls"], "."), (["which", "l s"], "src"), (["which", "ls"], "..")
    assert shown == [at_root, at_root, below, below, refused]


@pytest.mark.parametrize(
    "answer",
    [
        "echo Welcome to this host; exec cat",
        "yes",
        "echo Welcome",
        "echo",
        "printf abc",
        "exec cat",
        "exec cat /dev/zero",
        "printf \\\\000\\\\000\\\\000\\\\000; exec cat >/dev/null",
    ],
)
def test_a_login_script_that_speaks_first_is_told_and_not_waited_for(place: Place, answer: str) -> None:
    ended = run_cli(place, "run", "true", HTMCP_BROKER=f"sh -c '{answer}'")
    assert ended.status == 125
    assert "what answers is no broker; it said " in ended.stderr


@pytest.mark.parametrize(
    "command", [("run", "true"), ("doctor",), ("check",), ("init", "--client", "claude")]
)
def test_a_folder_that_is_gone_is_no_internal_error(place: Place, command: tuple[str, ...]) -> None:
    gone = place.folder / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "$@"'
    ended = subprocess.run(
        ["/bin/sh", "-c", script, "sh", COMMAND, *command],
        cwd=gone,
        env=place.environment(HTMCP_JAIL_ROOT=None, HTMCP_POLICY_FILE="policy.toml"),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert b"internal error" not in ended.stderr
    assert ended.returncode == EX_CONFIG, ended


def test_a_reason_at_a_terminal_names_a_command_and_to_a_program_a_models_text(place: Place) -> None:
    names = [f"program-{number}" for number in range(21)]
    place.policy.write_text(f"[commands]\nallow = {names}\n")
    reason = "'nope' is not on the allow list ([commands] allow); {} what may be called"
    explained = run_cli(place, "explain", "nope")
    assert explained.stdout == f"refused: POLICY_DENIED: {reason.format('check --describe names')}\n"
    assert reason.format("check --describe names") in run_cli(place, "run", "nope").stderr
    told = json.loads(run_cli(place, "run", "--json", "nope").stdout)["policy_reason"]
    assert told == reason.format("the tool's description names")
