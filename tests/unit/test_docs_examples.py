"""What the documents show is tried: policies, commands with their output, and the way from nothing to a client."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, run_cli
from tests.support.documents import DOCUMENTS, README, ROOT, Block, blocks
from tests.support.place import Place

POLICIES = [block for path in DOCUMENTS for block in blocks(path, "toml")]
SHOWN = [block for path in DOCUMENTS for block in blocks(path, "console")]
assert POLICIES
assert SHOWN
DURATION = re.compile(r'"duration_ms": \d+')
SCRIPTS = str(Path(COMMAND).parent)


def in_a_shell(place: Place, line: str, **changes: str | None) -> tuple[int, str]:
    """Run a line as a reader would, in the jail. Returns its status, and all that it printed."""
    environment = place.environment(HTMCP_AUDIT_LOG=None, HTMCP_JAIL_ROOT=None, **changes)
    environment["PATH"] = f"{SCRIPTS}:{environment['PATH']}"
    environment.pop("XDG_CONFIG_HOME")
    environment.pop("XDG_STATE_HOME")
    ended = subprocess.run(
        ["sh", "-c", line],
        cwd=place.jail,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return ended.returncode, ended.stdout.decode()


@pytest.mark.parametrize("block", POLICIES, ids=str)
def test_every_policy_that_is_shown_can_be_used_and_passes_its_tests(place: Place, block: Block) -> None:
    place.policy.write_text(block.text)
    ended = run_cli(place, "check", "--json", str(place.policy))
    assert ended.status == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert not report["failed_tests"]
    expected = ("is not installed", "allows no program")  # a machine is not complete, and a part is no whole
    texts = [warned["text"] for warned in report["warnings"]]
    assert not [text for text in texts if not any(part in text for part in expected)]


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_every_call_that_is_shown_prints_what_is_shown(place: Place, block: Block) -> None:
    (place.folder / "home").mkdir()
    printed = ""
    for line in block.text.splitlines():
        if line.startswith("$ "):
            _, output = in_a_shell(place, line[2:], HTMCP_POLICY_FILE=str(ROOT / "policy.toml"))
            printed += f"{line}\n{output}"
    assert DURATION.sub("", printed) == DURATION.sub("", block.text)


def test_the_way_from_nothing_to_a_client_can_be_walked_as_it_stands(place: Place) -> None:
    home = place.folder / "home"
    home.mkdir()
    tried = 0
    for block in blocks(README):
        if (block.language, block.note) == ("toml", "append"):
            with (home / ".config/hardened-terminal-mcp/policy.toml").open("a") as policy:
                policy.write(block.text)
        if (block.language, block.note) == ("sh", ""):
            for line in block.text.splitlines():
                tried += 1
                status, output = in_a_shell(place, line, HTMCP_POLICY_FILE=None)
                assert status == 0, f"{line}\n{output}"
        if block.language == "console":
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    in_a_shell(place, line[2:], HTMCP_POLICY_FILE=None)
    assert tried > 8
    assert (
        in_a_shell(place, "hardened-terminal-mcp run 'mkdir -p build/reports'", HTMCP_POLICY_FILE=None)[0]
        == 0
    )
    assert (place.jail / "build" / "reports").is_dir()


def test_the_two_commands_are_those_that_start_and_test_this_repository() -> None:
    text = README.read_text(encoding="utf-8")
    assert '    uv run hardened-terminal-mcp run "ls -l"\n' in text
    assert "    uv run pytest\n" in text


def test_the_snippet_that_is_shown_has_the_form_that_init_prints(place: Place) -> None:
    (block,) = [block for block in blocks(README, "json") if block.note == "claude"]
    printed = json.loads(run_cli(place, "init", "--client", "claude", HTMCP_AUDIT_LOG=None).stdout)
    shown = json.loads(block.text)
    assert shown.keys() == printed.keys()
    assert shown["mcpServers"].keys() == printed["mcpServers"].keys()
    (shown_server,) = shown["mcpServers"].values()
    (printed_server,) = printed["mcpServers"].values()
    assert shown_server.keys() == printed_server.keys()
    assert shown_server["env"].keys() == printed_server["env"].keys()
