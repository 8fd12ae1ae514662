"""As whom the broker runs: as whoever runs the tests, and, if that is root, as an ordinary user as well.

Always true: an ordinary user needs an interpreter that others may read. Where the tests' own is hidden in root's home, the
system's of the same version takes its place, with the same packages.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import broker

ORDINARY_USER = 12345
PROJECT = Path(broker.__file__).resolve().parent.parent
_TRIAL = "import broker.kernel, msgspec, re2"


class Identity(NamedTuple):
    """A name for the test's id, and the user to become; None to stay who we are."""

    name: str
    user: int | None


HERE = Identity("root" if os.geteuid() == 0 else "user", None)
IDENTITIES = [HERE, Identity("ordinary", ORDINARY_USER)] if os.geteuid() == 0 else [HERE]


class NoInterpreterError(Exception):
    """No interpreter can be had for an identity. The message says why."""


def interpreter_for(identity: Identity) -> str:
    """Return the interpreter that `identity` can start the broker with. Raises NoInterpreterError."""
    if identity.user is None:
        return sys.executable
    return _readable_interpreter(identity.user)


@functools.cache
def _readable_interpreter(user: int) -> str:
    if _works(sys.executable, user):
        return sys.executable
    system = "/usr/bin/python3"
    if not _same_version(system):
        raise NoInterpreterError(
            f"user {user} may not read {sys.executable}, and {system} is another version"
        )
    made = _virtual_environment(system)
    if not _works(made, user):
        raise NoInterpreterError(f"user {user} may not read the project at {PROJECT} or its packages")
    return made


def _works(interpreter: str, user: int) -> bool:
    argv = [interpreter, "-I", "-c", _TRIAL]
    try:
        return (
            subprocess.run(
                argv,
                user=user,
                group=user,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                timeout=30,
                check=False,
            ).returncode
            == 0
        )
    except PermissionError:
        return False


def _same_version(interpreter: str) -> bool:
    if not os.path.exists(interpreter):
        return False
    ask = "import sys; print(sys.version_info[:2], sys.abiflags)"
    argv = [interpreter, "-I", "-c", ask]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    return shown.strip() == f"{sys.version_info[:2]} {sys.abiflags}".strip()


def _virtual_environment(interpreter: str) -> str:
    folder = Path(tempfile.mkdtemp(prefix="htm-interpreter-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    subprocess.run([interpreter, "-I", "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    places = [str(PROJECT), *(place for place in sys.path if place.endswith("-packages"))]
    (packages / "tests.pth").write_text("\n".join(places) + "\n")
    return str(folder / "bin" / "python")
