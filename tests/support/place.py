"""A place to run the command in: a jail with a small repository, and outside of it a policy, a trail and a home.

Always true: nothing of the place lies outside its own folder, and the environment that it hands out is complete: no
setting of the person who runs the tests reaches the command, but a secret does, so that a leak can be seen.
"""

import os
import secrets
import subprocess
from pathlib import Path

POLICY = (Path(__file__).parent / "policy.toml").read_text(encoding="utf-8")
"""The policy of most tests. Tables that it lacks can be added after it, keys without a table before it."""

CANARY_NAME = "DEPLOY_PASSPHRASE"
"""A variable of the command's environment that no child may ever see."""

_GIT = (
    "git",
    "-c",
    "user.name=A Person",
    "-c",
    "user.email=person@example.org",
    "-c",
    "init.defaultBranch=main",
)
_SCRIPTS = Path(__file__).parent / "programs"


class Place:
    """Paths and environment of one installation beneath `folder`."""

    def __init__(self, folder: Path, policy: str = POLICY) -> None:
        self.folder = folder
        self.jail = folder / "jail"
        self.policy = folder / "policy.toml"
        self.trail = folder / "trail" / "audit.jsonl"
        self.outside = folder / "outside"
        self.canary = secrets.token_hex(16)
        self.trail.parent.mkdir()
        self.outside.mkdir()
        (self.outside / "private.txt").write_text("nobody may read this\n")
        self.policy.write_text(policy, encoding="utf-8")
        self._fill_jail()

    def _fill_jail(self) -> None:
        (self.jail / "src").mkdir(parents=True)
        (self.jail / "readme.txt").write_text("a small project\n")
        (self.jail / "src" / "main.py").write_text("print('hello')\n")
        for script in _SCRIPTS.iterdir():
            (self.jail / script.name).write_bytes(script.read_bytes())
        self._git("init", "--quiet")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "Begin the project")
        (self.jail / "src" / "link_out").symlink_to(self.outside)

    def _git(self, *arguments: str) -> None:
        nowhere = {"PATH": os.environ["PATH"], "HOME": str(self.outside), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run([*_GIT, *arguments], cwd=self.jail, env=nowhere, check=True, timeout=30)

    def environment(self, **changes: str | None) -> dict[str, str]:
        """Return the command's environment, with `changes`; None takes a variable away."""
        variables: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "HTMCP_POLICY_FILE": str(self.policy),
            "HTMCP_JAIL_ROOT": str(self.jail),
            "HTMCP_AUDIT_LOG": str(self.trail),
            CANARY_NAME: self.canary,
        }
        variables.update(changes)
        return {name: value for name, value in variables.items() if value is not None}
