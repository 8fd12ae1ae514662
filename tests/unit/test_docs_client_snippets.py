"""What `init --client` prints starts a server, with exactly the command and the variables that it names."""

import json
import subprocess

import pytest

from tests.support.command import run_cli
from tests.support.place import Place

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "snippet", "version": "1"},
}
REQUESTS = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "run_command", "arguments": {"command": "cat readme.txt"}},
    },
]


@pytest.mark.parametrize(("client", "key"), [("claude", "mcpServers"), ("vscode", "servers")])
def test_a_snippet_starts_a_server_that_runs_a_command(place: Place, client: str, key: str) -> None:
    assert run_cli(place, "init", HTMCP_POLICY_FILE=None).status == 0
    printed = run_cli(place, "init", "--client", client, cwd=place.jail, HTMCP_POLICY_FILE=None)
    (server,) = json.loads(printed.stdout)[key].values()
    assert server.get("type") == ("stdio" if client == "vscode" else None)
    assert server["command"].startswith("/")
    ended = subprocess.run(
        [server["command"], *server["args"]],
        input="".join(json.dumps(request) + "\n" for request in REQUESTS).encode(),
        env={"PATH": "/usr/bin:/bin", "HOME": str(place.folder / "home"), **server["env"]},
        cwd="/",
        capture_output=True,
        timeout=30,
        check=True,
    )
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert answer["result"]["structuredContent"]["stdout"] == "a small project\n"
    assert ended.stderr == b""


def test_cursor_reads_what_claude_reads(place: Place) -> None:
    printed = [run_cli(place, "init", "--client", client).stdout for client in ("claude", "cursor")]
    assert printed[0] == printed[1]


def test_a_snippet_for_a_policy_that_is_not_there_says_so(place: Place) -> None:
    printed = run_cli(place, "init", "--client", "claude", HTMCP_POLICY_FILE=None)
    assert printed.status == 0
    assert "does not exist yet" in printed.stderr
    json.loads(printed.stdout)
