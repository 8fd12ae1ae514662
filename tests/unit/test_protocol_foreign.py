"""A frontend in another language, written from docs/protocol.md alone, works."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fake_broker import FakeBroker

FRONTEND = Path(__file__).parents[1] / "foreign_frontend" / "frontend.js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run(broker: FakeBroker, *commands: str) -> subprocess.CompletedProcess[str]:
    fd = broker.frontend.fileno()
    environment = {"PATH": os.defpath, "HTMCP_BROKER_FD": str(fd)}
    return subprocess.run(
        [NODE, FRONTEND, *commands],
        env=environment,
        pass_fds=[fd],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_frontend_in_another_language_runs_commands_and_reads_their_envelopes():
    with FakeBroker(in_flight=2) as broker:
        ended = run(broker, "echo grüße", "big 300000", "echo 3", "echo 4")
        assert broker.most_unanswered <= 2
    envelopes = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [envelope["stdout"] for envelope in envelopes] == ["grüße\n", "x" * 300_000, "3\n", "4\n"]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_frontend_in_another_language_learns_of_a_refusal_and_of_the_end():
    with FakeBroker() as broker:
        assert run(broker, "deny").returncode == 1
    with FakeBroker() as broker:
        assert run(broker, "die").returncode == 2
