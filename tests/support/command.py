"""The installed commands, as a user starts them."""

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from tests.support.envelope import Envelope
from tests.support.place import Place

COMMAND = str(Path(sysconfig.get_path("scripts")) / "hardened-terminal-mcp")
"""The console script of the interpreter that runs the tests."""

BOUND_S = 30.0

EX_CONFIG = 78
"""The exit status of a start that was refused (sysexits.h)."""


class Ended(NamedTuple):
    """How a command ended: its exit status and what it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def envelope(self) -> Envelope:
        """The envelope that `--json` printed."""
        return Envelope.of(json.loads(self.stdout))


def assert_refused(ended: Ended, *parts: str) -> None:
    """The start was refused: one line on stderr that holds every one of `parts`, nothing on stdout, EX_CONFIG."""
    assert (ended.status, ended.stdout) == (EX_CONFIG, ""), ended
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.endswith("\n")
    assert "Traceback" not in ended.stderr
    assert all(part in ended.stderr for part in parts), ended.stderr


def run_cli(
    place: Place, *arguments: str, cwd: Path | None = None, untrusted: bytes = b"", **changes: str | None
) -> Ended:
    """Run `hardened-terminal-mcp` with `arguments` and return its end.

    It starts in `cwd` (default: the place's folder, outside the jail) with the place's environment and `changes`, and
    reads `untrusted` from its input. Raises subprocess.TimeoutExpired after `BOUND_S`.
    """
    ended = subprocess.run(
        [COMMAND, *arguments],
        input=untrusted,
        capture_output=True,
        cwd=cwd or place.folder,
        env=place.environment(**changes),
        timeout=BOUND_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
