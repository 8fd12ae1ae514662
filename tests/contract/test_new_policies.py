"""A policy that init writes is its owner's alone from its first moment on."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND
from tests.support.place import Place


@pytest.mark.parametrize("arguments", [["--output", "{new}"], ["--output", "{new}", "--profile", "make"]])
def test_nobody_else_can_open_a_policy_before_it_has_its_mode(
    place: Place, tmp_path: Path, arguments: list[str]
) -> None:
    trace, new = tmp_path / "trace", tmp_path / "new.toml"
    if "--profile" in arguments:
        new.write_text('[commands]\nallow = ["ls"]\n')
        new.chmod(0o600)
    words = ["strace", "-f", "-e", "trace=openat", "-o", str(trace), COMMAND, "init"]
    before = os.umask(0)
    try:
        subprocess.run(
            [*words, *(word.format(new=new) for word in arguments)],
            env=place.environment(HTMCP_POLICY_FILE=None),
            cwd=place.folder,
            check=True,
            capture_output=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    finally:
        os.umask(before)
    made = re.findall(rf'"{re.escape(str(new))}[^"]*", [A-Z_|]*O_CREAT[A-Z_|]*, (\d+)', trace.read_text())
    assert made == ["0600"]
    assert new.stat().st_mode & 0o777 == 0o600
