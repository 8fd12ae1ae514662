"""Git as the author of a test's repository would run it, with no setting of this machine."""

import os
import subprocess
from pathlib import Path

_BOUND_S = 30
_SETTINGS = {
    "safe.directory": "*",
    "user.name": "A Person",
    "user.email": "person@example.org",
    "init.defaultBranch": "main",
}
_OPTIONS = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]


def git(folder: Path, *arguments: str, **variables: str) -> str:
    """Run git in `folder`, with `variables` besides. Returns what it printed. Raises CalledProcessError."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **variables,
    }
    done = subprocess.run(
        ["git", *_OPTIONS, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        timeout=_BOUND_S,
        capture_output=True,
    )
    return done.stdout.decode()


def begin(folder: Path, message: str = "Begin the project", **variables: str) -> None:
    """Make `folder` a repository whose first commit holds all that is there."""
    git(folder, "init", "--quiet", "--template=")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message, **variables)
