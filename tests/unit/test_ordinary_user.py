"""The same runs and the same attacks as an ordinary user, where root runs the tests."""

import os
import shutil
import site
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
USER = 12345
MODULES = ("tests/unit/test_kernel.py", "tests/unit/test_execution.py", "tests/adversarial/test_layers.py")
BOUND_S = 150.0

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.timeout(BOUND_S + 10),
]


def _as_user(*command: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    # setpriv itself keeps capabilities until its exec, with which it could read what the user may not:
    # hence env
    identity = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "env"]
    return subprocess.run(
        [*identity, *command],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def _interpreter(environment: dict[str, str]) -> str:
    """Return an interpreter of this version that the user may run, and that finds this project."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if not Path(candidate).exists():
            continue
        try:
            tried = _as_user(candidate, "-c", "import msgspec, pytest, broker", environment=environment)
        except PermissionError:
            continue
        if tried.returncode == 0:
            return candidate
    pytest.skip("user 12345 may not read this interpreter or this folder")


def test_everything_holds_for_an_ordinary_user() -> None:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])}
    interpreter = _interpreter(environment)
    folder = tempfile.mkdtemp()
    try:
        os.chown(folder, USER, USER)
        ended = _as_user(
            interpreter,
            *("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"),
            *(f"--rootdir={ROOT}", f"--config-file={ROOT}/pyproject.toml"),
            *(str(ROOT / module) for module in MODULES),
            environment={**environment, "HOME": folder},
        )
    finally:
        shutil.rmtree(folder)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
