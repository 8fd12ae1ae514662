"""The contract's tool reference. Docstrings quote it."""

import json
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.command import COMMAND, run_cli
from tests.support.envelope import Envelope
from tests.support.place import Place
from tests.support.raw_client import RawClient
from tests.support.sdk_client import SdkClient
from tests.support.trail import about

FIELDS = {"ok", "code", "stdout", "stderr", "exit_code", "duration_ms", "policy_reason"}


def test_two_tools_stand_before_one_gate_and_one_executor(client: SdkClient) -> None:
    """policy.py decides (explain), executor.py runs (run), server.py wires both behind two FastMCP tools and maps every
    outcome onto one envelope."""
    assert set(client.tools()) == {"run_command", "explain_command"}
    for command in ("ls", "id", "ls |", "ls --color=always"):
        explained, ran = client.explain(command), client.run(command)
        assert (explained.code, explained.policy_reason) == (ran.code, ran.policy_reason)


def test_the_command_is_installed_under_its_name() -> None:
    """uv sync"""
    scripts = distribution("hardened-terminal-mcp").entry_points.select(group="console_scripts")
    assert scripts.names == {"hardened-terminal-mcp", "hardened-terminal-broker"}


def test_the_installed_command_serves_over_stdio(raw: RawClient) -> None:
    """uv run hardened-terminal-mcp        # serves over stdio"""
    assert COMMAND.endswith("hardened-terminal-mcp")
    assert raw.run("echo served").stdout == "served\n"


def test_every_test_is_run_by_one_command(pytestconfig: pytest.Config) -> None:
    """uv run pytest"""
    assert pytestconfig.getini("testpaths") == ["tests"]
    assert Path(__file__).is_relative_to(pytestconfig.rootpath / "tests")


def test_the_license_is_mit() -> None:
    """MIT"""
    assert distribution("hardened-terminal-mcp").metadata["License-Expression"] == "MIT"


@pytest.mark.parametrize("command", ["ls", "id", "'", "sleep 5", "not-installed-anywhere"])
def test_an_envelope_has_exactly_seven_fields(raw: RawClient, command: str) -> None:
    """Both tools return a CommandResult: { ok, code, stdout, stderr, exit_code, duration_ms, policy_reason }."""
    for tool in ("run_command", "explain_command"):
        answer = raw.answer(raw.start(tool, {"command": command}))["result"]
        assert set(answer["structuredContent"]) == FIELDS
        assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]


def test_the_fields_have_their_types(client: SdkClient) -> None:
    """Both tools return a CommandResult: { ok, code, stdout, stderr, exit_code, duration_ms, policy_reason }."""
    answer = client.run("sh tell_stderr.sh readme.txt")
    assert [type(value) for value in answer] == [bool, str, str, str, int, int, str]
    assert (answer.stdout, answer.stderr) == ("", "a small project\n")


def test_the_output_schema_names_the_seven_fields(client: SdkClient) -> None:
    """Both tools return a CommandResult: { ok, code, stdout, stderr, exit_code, duration_ms, policy_reason }."""
    for tool in client.tools().values():
        assert tool.output_schema is not None
        assert set(tool.output_schema["properties"]) == FIELDS
        assert set(tool.output_schema["required"]) == FIELDS


def test_run_command_judges_first_and_runs_what_is_allowed(client: SdkClient) -> None:
    """run_command(command, cwd=None) — evaluate against policy and, if allowed, run it sandboxed."""
    assert client.run("cat readme.txt").stdout == "a small project\n"
    assert client.run("touch ran.txt").exit_code == 0
    assert (client.place.jail / "ran.txt").exists()
    assert client.run("rm ran.txt").code == "POLICY_DENIED"
    assert (client.place.jail / "ran.txt").exists()


def test_run_command_takes_a_command_and_perhaps_a_working_folder(client: SdkClient) -> None:
    """run_command(command, cwd=None) — evaluate against policy and, if allowed, run it sandboxed."""
    schema = client.tools()["run_command"].input_schema
    assert set(schema["properties"]) == {"command", "cwd"}
    assert schema["required"] == ["command"]
    assert client.call("run_command", {"command": "pwd", "cwd": None}).stdout == f"{client.place.jail}\n"


def test_what_runs_is_sandboxed_by_the_kernel_too(client: SdkClient) -> None:
    """run_command(command, cwd=None) — evaluate against policy and, if allowed, run it sandboxed."""
    assert client.run("find . -maxdepth 0 -exec touch ran_by_find.txt +").exit_code != 0
    assert not (client.place.jail / "ran_by_find.txt").exists()


def test_a_working_folder_must_resolve_inside_the_jail(client: SdkClient) -> None:
    """cwd (if given) must resolve inside the jail root."""
    assert client.run("pwd", cwd="src/../src").stdout == f"{client.place.jail}/src\n"
    assert client.run("pwd", cwd="src/link_out").code == "CWD_ESCAPE"


def test_a_link_that_stays_inside_the_jail_is_followed(client: SdkClient) -> None:
    """cwd (if given) must resolve inside the jail root."""
    (client.place.jail / "link_in").symlink_to("src")
    assert client.run("ls", cwd="link_in").stdout == client.run("ls", cwd="src").stdout


def test_explain_command_returns_the_verdict_only(client: SdkClient) -> None:
    """explain_command(command) — dry run: return the verdict only, with empty output and exit_code=None."""
    answer = client.explain("cat readme.txt")
    assert answer == Envelope(True, "OK", "", "", None, answer.duration_ms, answer.policy_reason)
    assert answer.policy_reason
    assert client.explain("rm readme.txt")._replace(duration_ms=0, policy_reason="") == Envelope(
        False, "POLICY_DENIED", "", "", None, 0, ""
    )


def test_explain_command_takes_a_command_only(client: SdkClient) -> None:
    """explain_command(command) — dry run: return the verdict only, with empty output and exit_code=None."""
    assert set(client.tools()["explain_command"].input_schema["properties"]) == {"command"}
    assert client.call("explain_command", {"command": "ls", "cwd": "src"}).code == "PARSE_ERROR"


def test_explaining_never_executes(client: SdkClient) -> None:
    """Never executes."""
    assert client.explain("touch explained.txt").code == "OK"
    assert not (client.place.jail / "explained.txt").exists()
    assert [record["record_type"] for record in about(client.place.trail, "explained.txt")] == ["outcome"]


def test_a_changed_policy_changes_lists_and_argument_rules(place: Place) -> None:
    """Edit policy.toml to change the allow/deny lists and argument rules."""
    assert run_cli(place, "run", "id").status == 126
    place.policy.write_text('[commands]\nallow = ["id"]\n[rules.id]\nallow_options = ["-u"]\n')
    assert run_cli(place, "run", "id -u").status == 0
    assert run_cli(place, "run", "id -g").status == 126
    assert run_cli(place, "run", "ls").status == 126


def test_the_policy_that_ships_is_written_out_to_be_edited(place: Place) -> None:
    """Edit policy.toml to change the allow/deny lists and argument rules."""
    own = place.folder / "config" / "hardened-terminal-mcp" / "policy.toml"
    assert run_cli(place, "init", HTMCP_POLICY_FILE=None).status == 0
    assert run_cli(place, "run", "ls", cwd=place.outside, HTMCP_POLICY_FILE=None).status == 0
    own.write_text('[commands]\nallow = ["pwd"]\n')
    assert run_cli(place, "run", "ls", cwd=place.outside, HTMCP_POLICY_FILE=None).status == 126
