"""The place of one broker under test: a jail, its sibling `outside` with a canary, and what stands around them.

Always true: jail and outside can be made again what they were, whatever a program did to them; what the identity under test
would own, it owns.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.adversarial import cases, evidence
from tests.adversarial.identity import Identity

HOSTILE_PROGRAM = Path(__file__).parent / "programs" / "hostile.py"
_OWN_PLACES = {
    "jail",
    "outside",
    "template",
    "state",
    "config",
    "scratch",
    "standins",
    "policy.toml",
    "stderr.txt",
}


class Ground:
    """A folder of its own for one identity; `policy` is the text of its policy file."""

    def __init__(self, policy: str, identity: Identity) -> None:
        self.identity = identity
        self.base = Path(tempfile.mkdtemp(prefix="htm-cage-"))
        self.jail, self.outside = self.base / "jail", self.base / "outside"
        self.canary = evidence.new_canary()
        self.mark = "HTM-RAN-" + secrets.token_hex(8)
        self._lay_out(policy)

    def _lay_out(self, policy: str) -> None:
        self.base.chmod(0o755)
        for name in ("jail", "outside", "template", "state", "config", "scratch", "standins"):
            (self.base / name).mkdir(mode=0o755)
        cases.build_template(self.base / "template")
        (self.base / "policy.toml").write_text(policy)
        self._fill_outside()
        self._restore_jail()
        self._give(self.base / "state")
        self._fingerprints()

    def _fill_outside(self) -> None:
        cases.empty(self.outside)
        (self.outside / "secret.txt").write_text(self.canary + "\n")
        program = self.outside / "program"
        program.write_text(f'#!/bin/sh\necho {self.mark[:4]}""{self.mark[4:]}\n')
        program.chmod(0o755)
        (self.outside / "folder").mkdir()
        (self.outside / "folder" / "kept.txt").write_text("kept\n")
        self._fill_further()
        self._give(self.outside)

    def _fill_further(self) -> None:
        """For a cage that needs more outside than a secret, a program and a folder."""

    def _restore_jail(self) -> None:
        cases.empty(self.jail)
        shutil.copytree(self.base / "template", self.jail, symlinks=True, dirs_exist_ok=True)
        self._give(self.jail)

    def give_jail(self) -> None:
        """Let the identity own what a test put into the jail."""
        self._give(self.jail)

    def _give(self, folder: Path) -> None:
        """Let the identity own what it would own."""
        if self.identity.user is None:
            return
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self.identity.user, self.identity.user, follow_symlinks=False)

    def _fingerprints(self) -> None:
        self._outside_before = evidence.fingerprint(self.outside)
        self._jail_before = evidence.fingerprint(self.jail, contents=False)

    def add_standins(self, names: Iterable[str]) -> None:
        """Put a program that tries everything in the place of each of `names`."""
        text = HOSTILE_PROGRAM.read_text()
        text = text.replace("@MARK@", self.mark).replace("@OUTSIDE@", str(self.outside))
        for name in names:
            path = self.base / "standins" / name
            path.write_text(text)
            path.chmod(0o755)

    def prepare(self, lay_out: Callable[[], None]) -> None:
        """Change jail and outside by `lay_out`; `restore(changed=True)` takes it back."""
        lay_out()
        self._give(self.jail)
        self._give(self.outside)
        self._outside_before = evidence.fingerprint(self.outside)

    def restore(self, *, changed: bool = False) -> None:
        """Make jail and outside what they were."""
        if evidence.fingerprint(self.outside) != self._outside_before:
            self._fill_outside()
            changed = True
        for stray in set(os.listdir(self.base)) - _OWN_PLACES:
            shutil.rmtree(self.base / stray)
            changed = True
        now = evidence.fingerprint(self.jail, contents=False)
        if changed or now != self._jail_before:
            self._mend_jail(now)
            self._fingerprints()

    def _mend_jail(self, now: evidence.Fingerprint) -> None:
        """Make the jail what it was: what was changed in it, or all of it where that does not do."""
        try:
            for name in sorted(now.keys() - self._jail_before.keys()):
                if os.path.lexists(self.jail / name):  # it did not go with its folder
                    cases.remove(self.jail / name)
            for name, facts in sorted(self._jail_before.items()):
                if now.get(name) != facts:
                    self._mend(name)
            mended = self._lasting() == evidence.lasting(self._jail_before)
        except OSError:
            mended = False
        if not mended:
            self._restore_jail()

    def _lasting(self) -> evidence.Fingerprint:
        return evidence.lasting(evidence.fingerprint(self.jail, contents=False))

    def _mend(self, name: str) -> None:
        original, path = self.base / "template" / name, self.jail / name
        is_folder = original.is_dir() and not original.is_symlink()
        if os.path.lexists(path) and not (is_folder and path.is_dir() and not path.is_symlink()):
            cases.remove(path)
        if is_folder:
            path.mkdir(exist_ok=True)
            shutil.copystat(original, path)
        else:
            shutil.copy2(original, path, follow_symlinks=False)
        if self.identity.user is not None:
            os.chown(path, self.identity.user, self.identity.user, follow_symlinks=False)
