"""Everyday commands give what the same argv gives without us, byte for byte: run through the real broker and bare."""

import json
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.terminal import Terminal
from protocol.client import BrokerClient
from tests.support.repository import begin, git
from tests.unit.test_verdicts_on_corpora import DATA, REFUSED_EVERYDAY, lay_out

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
BOUND_S = 30.0
MOVING = {"date", "df", "du", "env", "printenv", "shuf", "stat", "uptime"}
"""Of these the exit status is compared: what they print is the time, the user, the machine, or when a file was read."""

IN_FRONT = {"diff": ("diff --no-dereference ", "diff ")}
"""What a program prints of the options that the policy puts in front of the caller's, and what it is without them."""

DATED = {"GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z"}


def rows() -> list[Row]:
    everyday = [json.loads(line) for line in (DATA / "benign.jsonl").read_text().splitlines()]
    return [
        row
        for row in everyday
        if row["expected"] == "allow" and row["tier"] in ("core", "extended") and "argv" in row
    ]


def installed(row: Row) -> bool:
    return (
        row["id"] not in REFUSED_EVERYDAY
        and shutil.which(row["program"], path="/usr/local/bin:/usr/bin:/bin") is not None
    )


def append(jail: Path, name: str, line: str) -> None:
    with (jail / name).open("a") as file:
        file.write(line + "\n")


def commit(jail: Path, name: str, line: str, message: str) -> None:
    append(jail, name, line)
    git(jail, "commit", "-q", "-am", message, **DATED)


def repository(folder: Path) -> Path:
    fixture = json.loads((DATA / "benign_fixture.json").read_text())
    jail = lay_out(folder / "jail", fixture["files"])
    begin(jail, **DATED)
    git(jail, "tag", "v1.0")
    git(jail, "branch", "feature")
    commit(jail, "src/app/utils.py", "# loaded once", "Fix config loading")
    git(jail, "tag", "-a", "v1.1", "-m", "release 1.1", **DATED)
    commit(jail, "docs/guide.md", "Notes on types.", "Add guide type notes")
    append(jail, "README.md", "One more line.")
    append(jail, "docs/index.rst", "Another line.")
    git(jail, "add", "docs/index.rst")
    (jail / "scratch.txt").write_text("scratch\n")
    return jail


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, BrokerClient]]:
    folder = tmp_path_factory.mktemp("everyday")
    jail = repository(folder)
    ours, theirs = socket.socketpair()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "HTMCP_POLICY_FILE": str(ROOT / "policy.toml"),
        "HTMCP_JAIL_ROOT": str(jail),
        "HTMCP_AUDIT_LOG": str(folder / "audit.jsonl"),
    }
    argv = [str(Path(sys.executable).parent / "hardened-terminal-broker"), "--fd", str(theirs.fileno())]
    with subprocess.Popen(argv, env=environment, pass_fds=[theirs.fileno()]) as broker:
        theirs.close()
        with BrokerClient(ours) as client:
            yield jail, client
        broker.wait(BOUND_S)


def bare(jail: Path, row: Row, words: list[str]) -> tuple[int, str, str]:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    cwd = jail / row["cwd"] if row.get("cwd") else jail
    ended = subprocess.run(  # noqa: PLW1510 - the status is compared
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND_S
    )
    return ended.returncode, readable(ended.stdout), readable(ended.stderr)


def readable(output: bytes) -> str:
    """Return what a person reads of it: a result holds no control sequence (`[output] control_sequences`)."""
    terminal = Terminal()
    shown = terminal.feed(output.decode("utf-8", "replace").encode()) + terminal.close()
    return shown.decode()


@pytest.mark.parametrize("row", [row for row in rows() if installed(row)], ids=lambda row: str(row["id"]))
def test_an_everyday_command_gives_what_it_gives_without_us(
    place: tuple[Path, BrokerClient], row: Row
) -> None:
    jail, client = place
    command = row["command"].replace("{JAIL}", str(jail))
    words = [word.replace("{JAIL}", str(jail)) for word in row["argv"]]
    result = client.run(command, row.get("cwd"))
    assert result.code in ("OK", "OUTPUT_TRUNCATED"), (shlex.join(words), result.policy_reason)
    status, stdout, stderr = bare(jail, row, words)
    assert result.exit_code == status, (shlex.join(words), result.stderr, stderr)
    if row["program"] not in MOVING:
        assert result.stdout.replace(*IN_FRONT.get(row["program"], ("", ""))) == stdout
