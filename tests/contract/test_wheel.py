"""The built wheel in a clean environment: an empty wheel would pass every test of an editable install.

Nothing is downloaded: what uv has in its cache is used, and where that is not enough the tests are skipped and say so.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.place import Place

ROOT = Path(__file__).parents[2]
UV = os.environ.get("UV") or shutil.which("uv")
NOT_IN_THE_CACHE = ("network was disabled", "not found in the cache")
REQUESTS = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "wheel", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "run_command", "arguments": {"command": "cat readme.txt"}},
    },
]


def uv(*arguments: str | Path) -> None:
    """Run uv without network; skip the test if its cache lacks what is needed."""
    if UV is None:
        pytest.skip("uv is not installed")
    ended = subprocess.run([UV, *arguments], capture_output=True, timeout=25, check=False)
    said = ended.stderr.decode()
    if ended.returncode and any(sign in said for sign in NOT_IN_THE_CACHE):
        pytest.skip(f"uv's cache does not have all that is needed: {said.splitlines()[-1]}")
    assert ended.returncode == 0, said


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--offline", "--quiet", "--out-dir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The scripts' folder of an environment that holds the wheel and what it depends on, nothing else."""
    environment = tmp_path_factory.mktemp("clean") / "venv"
    uv("venv", "--offline", "--quiet", "--python", sys.executable, environment)
    (wheel,) = dist.glob("*.whl")
    uv("pip", "install", "--offline", "--quiet", "--python", environment / "bin" / "python", wheel)
    yield environment / "bin"
    shutil.rmtree(environment)


def ran(installed: Path, place: Place, *arguments: str, untrusted: bytes = b"") -> str:
    """Run the installed command in the jail, with nothing but a home, and return what it printed."""
    ended = subprocess.run(
        [installed / "hardened-terminal-mcp", *arguments],
        cwd=place.jail,
        env={"PATH": "/usr/bin:/bin", "HOME": str(place.folder / "home")},
        input=untrusted,
        capture_output=True,
        timeout=25,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b""
    return ended.stdout.decode()


def test_the_wheel_works_from_init_to_a_call_of_a_client(installed: Path, place: Place) -> None:
    assert "wrote" in ran(installed, place, "init", "--profile", "make")
    assert "readme.txt" in ran(installed, place, "run", "ls -l")
    assert ran(installed, place, "explain", "git log").startswith("allowed")
    answers = ran(
        installed, place, untrusted="\n".join(json.dumps(line) for line in REQUESTS).encode() + b"\n"
    )
    envelope = json.loads(answers.splitlines()[-1])["result"]["structuredContent"]
    assert (envelope["code"], envelope["stdout"]) == ("OK", "a small project\n")
    assert "cat readme.txt" in ran(installed, place, "audit", "show")


def test_the_wheel_holds_every_file_of_its_packages_and_no_test(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = ("broker", "frontend", "protocol")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *packages],
        cwd=ROOT,
        capture_output=True,
        timeout=25,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no clone: what belongs to it is not known")
    assert held == {*listed.stdout.decode().split(), "broker/policy.toml"}


def test_the_sdist_holds_the_documents_and_the_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    named = {
        "README.md",
        "LICENSE",
        "SECURITY.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "policy.toml",
        "server.json",
        "manifest.json",
        ".ci/run",
    }
    assert named <= held
    assert {"tests/contract/test_wheel.py", "docs/policy.md"} <= held
