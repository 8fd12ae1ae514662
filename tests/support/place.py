"""A place to run the command in: a jail with a small repository, and outside of it a policy, a trail and a home.

Always true: nothing of the place lies outside its own folder, and the environment that it hands out is complete: no
setting of the person who runs the tests reaches the command, but a secret does, so that a leak can be seen.
"""

import functools
import os
import secrets
import tempfile
from pathlib import Path

from tests.support import repository

POLICY = (Path(__file__).parent / "policy.toml").read_text(encoding="utf-8")
"""The policy of most tests. Tables that it lacks can be added after it, keys without a table before it."""

CANARY_NAME = "DEPLOY_PASSPHRASE"
"""A variable of the command's environment that no child may ever see."""

_SCRIPTS = Path(__file__).parent / "programs"


@functools.cache
def _repository() -> dict[str, bytes]:
    """Return the files of a small project and of its repository; made once, since git takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "src").mkdir()
        (root / "readme.txt").write_text("a small project\n")
        (root / "src" / "main.py").write_text("print('hello')\n")
        for script in _SCRIPTS.iterdir():
            (root / script.name).write_bytes(script.read_bytes())
        repository.begin(root)
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}


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
        for name, content in _repository().items():
            path = self.jail / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.jail / ".git" / "refs" / "tags").mkdir()
        (self.jail / "src" / "link_out").symlink_to(self.outside)

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
