"""git on a hostile repository: whatever its configuration, attributes, hooks and links say, no program starts, and nothing
outside is read. Twice: under the policy that ships, and with the gate open, where only the kernel is in the way.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from broker import policy_profiles
from protocol.messages import CommandResult
from tests.adversarial import policies
from tests.adversarial.cage import Cage
from tests.adversarial.hostile_repository import TRAPS, UNREADABLE
from tests.adversarial.identity import Identity
from tests.support.repository import begin, git

COMMANDS = (
    "git status",
    "git log -p --stat",
    "git log --show-signature -1",
    "git diff",
    "git diff --cached",
    "git show HEAD",
    "git blame a.txt",
    "git grep alpha",
    "git branch --all -vv",
    "git ls-files",
    "git shortlog HEAD",
)
"""What is run in every hostile repository. With the gate open, what writes, fetches or signs is tried as well."""

MORE_COMMANDS = (
    "git add README.md",
    "git commit --all -m more",
    "git checkout feature",
    "git stash push",
    "git fetch origin",
    "git pull",
    "git submodule update --init",
    "git diff --ext-diff --textconv",
    "git -p log",
    "git trap",
    "git cat-file --filters HEAD:a.txt",
    "git archive HEAD",
    "git verify-commit HEAD",
    "git difftool --no-prompt --extcmd=./trap.sh",
    "git bisect run ./trap.sh",
    "git credential fill",
    "git gc",
    "git config --list --show-origin",
    "git var GIT_EDITOR",
)


WRITING_COMMANDS = (
    "git add --all",
    "git commit -q -m more",
    "git branch new feature",
    "git branch -v",
    "git tag -a v1 -m text",
    "git tag v2 HEAD",
    "git merge feature",
    "git merge --abort",
    "git cherry-pick feature",
    "git cherry-pick --continue",
    "git cherry-pick --abort",
    "git revert HEAD",
    "git revert --abort",
    "git stash push -u",
    "git stash list -p",
    "git stash show -p",
    "git stash pop",
    "git checkout feature",
)
"""What the profile git-write lets git change: nothing of it may start anything but git."""


class Hostile(Cage):
    """A cage with a repository outside, whose every text is the canary."""

    def _fill_further(self) -> None:
        made = self.base / "scratch" / "repository.git"
        if not made.exists():
            self._make(made)
        shutil.copytree(made, self.outside / "repository.git")

    def _make(self, repository: Path) -> None:
        work = self.base / "scratch" / "work"
        work.mkdir()
        (work / "a.txt").write_text(self.canary + "\n")
        begin(work, self.canary)
        git(work, "clone", "--quiet", "--bare", "--template=", ".", str(repository))
        (repository / "refs" / "heads" / "main").write_text(git(work, "rev-parse", "HEAD"))


def _set_trap(cage: Cage, name: str) -> None:
    def lay_out() -> None:
        script = cage.jail / "trap.sh"
        script.write_text(
            f'#!/bin/sh\necho {cage.mark[:4]}""{cage.mark[4:]}\necho x > {cage.outside}/pwned\n'
        )
        script.chmod(0o755)
        TRAPS[name](cage.jail, cage.outside)

    cage.prepare(lay_out)


@pytest.fixture(scope="module")
def shipped(identity: Identity) -> Iterator[Cage]:
    with Hostile(policies.SHIPPED, identity) as cage:
        yield cage


@pytest.fixture(scope="module")
def open_gate(least_identity: Identity) -> Iterator[Cage]:
    with Hostile(policies.KERNEL_ALONE, least_identity) as cage:
        yield cage


@pytest.fixture(scope="module")
def writing(least_identity: Identity) -> Iterator[Cage]:
    policy = policy_profiles.with_profiles(policies.SHIPPED.encode(), ["git-write"]).raw.decode()
    with Hostile(policy, least_identity) as cage:
        yield cage


def _tried(cage: Cage, name: str, commands: Iterable[str], *programs: str) -> list[CommandResult]:
    """Run the commands in a repository with that trap; each leaves no trace. Returns what was said to each."""
    _set_trap(cage, name)
    results = []
    try:
        for command in commands:
            seen = cage.run(command, programs=("git", *programs))
            assert not seen.failed, (command, seen)
            assert not seen.traces, (command, seen)
            results.append(seen.result)
    finally:
        cage.restore(changed=True)
    return results


@pytest.mark.parametrize("name", TRAPS)
def test_a_hostile_repository_springs_no_trap_under_the_shipped_policy(shipped: Cage, name: str) -> None:
    _tried(shipped, name, COMMANDS)


@pytest.mark.parametrize("name", TRAPS)
def test_a_hostile_repository_springs_no_trap_where_git_may_write(writing: Cage, name: str) -> None:
    results = _tried(writing, name, WRITING_COMMANDS, "/usr/lib/git-core/git")
    assert "POLICY_DENIED" not in {result.code for result in results}, results


@pytest.mark.parametrize("name", TRAPS)
def test_a_hostile_repository_springs_no_trap_with_the_gate_open(open_gate: Cage, name: str) -> None:
    _tried(open_gate, name, (*COMMANDS, *MORE_COMMANDS))


@pytest.mark.parametrize("name", [name for name in TRAPS if name not in UNREADABLE])
def test_everyday_git_works_in_a_hostile_repository_under_the_shipped_policy(
    shipped: Cage, name: str
) -> None:
    everyday = ("git log --oneline", "git status --short", "git ls-files", "git diff")
    for result in _tried(shipped, name, everyday):
        assert (result.code, result.exit_code) == ("OK", 0), result


def test_everyday_git_works_in_a_repository_with_a_submodule(shipped: Cage) -> None:
    def lay_out() -> None:
        inner = shipped.jail / "inner"
        inner.mkdir()
        (inner / "file.txt").write_text("before\n")
        begin(inner)
        git(shipped.jail, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
        (inner / "file.txt").write_text("after\n")

    shipped.prepare(lay_out)
    try:
        for command in (
            "git status --short",
            "git diff",
            "git diff --cached --stat",
            "git ls-files",
            "git log -p",
        ):
            seen = shipped.run(command, programs=("git",))
            assert (seen.result.code, seen.result.exit_code) == ("OK", 0), (command, seen)
            assert not seen.traces, (command, seen)
    finally:
        shipped.restore(changed=True)


@pytest.mark.parametrize("command", ["git status", "git diff", "git log", "git branch"])
def test_a_bare_repository_within_the_repository_springs_no_trap(
    shipped: Cage, open_gate: Cage, command: str
) -> None:
    for cage in (shipped, open_gate):
        _set_trap(cage, "core.fsmonitor")
        nested = cage.jail / "vendor" / "x.git"
        shutil.copytree(cage.jail / ".git", nested)
        text = "[core]\nbare = false\nworktree = ..\nfsmonitor = ../../trap.sh\npager = ../../trap.sh\n"
        (nested / "config").write_text(text)
        cage.prepare(lambda: None)
        try:
            seen = cage.run(command, "vendor/x.git", programs=("git",))
            assert not seen.failed, seen
            assert not seen.traces, seen
        finally:
            cage.restore(changed=True)


_TRAP = "./trap.sh"
_VARIABLES = {
    "BASH_ENV": _TRAP,
    "ENV": _TRAP,
    "EDITOR": _TRAP,
    "GIT_ASKPASS": _TRAP,
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": _TRAP,
    "GIT_EXTERNAL_DIFF": _TRAP,
    "GIT_PAGER": _TRAP,
    "GIT_SSH_COMMAND": _TRAP,
    "INPUTRC": ".inputrc",
    "LESSOPEN": "|./trap.sh %s",
    "MANPAGER": _TRAP,
    "NODE_OPTIONS": "--require=./trap.js",
    "PAGER": _TRAP,
    "PERL5OPT": "-Mtrap",
    "PYTHONPATH": ".",
    "PYTHONSTARTUP": "trap.py",
    "RIPGREP_CONFIG_PATH": ".ripgreprc",
    "RUBYOPT": "-rtrap",
}
"""Variables of whoever started the broker, or of its client, that make a program start another or read what they name."""

_STARTERS = (
    "git log",
    "git diff",
    "rg alpha",
    "less a.txt",
    "man ls",
    "bash -i",
    "sh -i",
    "python3 -i",
    "node -e 1",
    "perl -e 1",
)


@pytest.fixture(scope="module")
def tempted(least_identity: Identity) -> Iterator[Cage]:
    made = Cage(policies.KERNEL_ALONE, least_identity)
    made.variables = _VARIABLES | {
        "GIT_TRACE": str(made.outside / "pwned"),
        "GIT_DIR": str(made.outside / "repository.git"),
    }
    with made as cage:
        yield cage


def _tempt(cage: Cage) -> None:
    _set_trap(cage, "settings in the jail as if it were a home")
    marked = f"HTM-{cage.mark[4:]}"
    split = f'"{marked[:4]}" + "{marked[4:]}"'
    (cage.jail / "trap.py").write_text(f"print({split})\n")
    (cage.jail / "sitecustomize.py").write_text(f"print({split})\n")
    (cage.jail / "trap.js").write_text(f"console.log({split})\n")
    (cage.jail / "trap.pm").write_text(f"print({split.replace('+', '.')}); 1;\n")
    (cage.jail / ".ripgreprc").write_text("--pre=./trap.sh\n")
    (cage.jail / ".inputrc").write_text('"\\C-m": "./trap.sh\\n"\n')
    (cage.jail / ".npmrc").write_text("script-shell=./trap.sh\n")
    for name in (".bashrc", ".profile", ".lessfilter"):
        shutil.copy(cage.jail / "trap.sh", cage.jail / name)
    cage.prepare(lambda: None)


@pytest.mark.parametrize("command", _STARTERS)
def test_neither_a_variable_nor_a_file_in_the_jail_makes_a_program_start_another(
    tempted: Cage, command: str
) -> None:
    _tempt(tempted)
    try:
        seen = tempted.run(command, programs=(command.split(maxsplit=1)[0],))
        assert not seen.failed, seen
        assert not seen.traces, seen
    finally:
        tempted.restore(changed=True)


def test_no_variable_of_the_broker_reaches_a_command(tempted: Cage) -> None:
    seen = tempted.run("env", programs=("env",))
    names = {line.partition("=")[0] for line in seen.result.stdout.splitlines()}
    assert {"PATH", "HOME", "LANG"} <= names <= {"PATH", "HOME", "LANG", "PWD", "TMPDIR"}
    assert (
        os.listdir(next(line for line in seen.result.stdout.splitlines() if line.startswith("HOME="))[5:])
        == []
    )
