"""The repository that git would use: in the jail with all that it makes git read, or git does not run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.beneath import Budget
from broker.policy import Policy
from broker.tracked import UnreadableError, tracked
from tests.support.gate import DEFAULT_POLICY, permitted, policy_over, refusal
from tests.support.repository import begin, git

Change = Callable[[Path], None]
CANARY = "HTM-CANARY-7f3a"


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    """A jail that is a repository, beside a folder that holds one too, a file of settings and a secret."""
    for name in ("jail", "outside"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "a.txt").write_text("one\n" if name == "jail" else CANARY)
        begin(tmp_path / name)
    (tmp_path / "outside" / "settings").write_text("[user]\nname = x\n")
    return tmp_path / "jail"


@pytest.fixture
def policy(jail: Path) -> Policy:
    return policy_over(jail, DEFAULT_POLICY.read_bytes())


def begin_with_a_file(folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    begin(folder)


def write(place: str, text: str) -> Change:
    """Return a change that adds `text` to a file of the repository."""

    def change(jail: Path) -> None:
        path = jail / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text.replace("{OUT}", str(jail.parent / "outside")).replace("{JAIL}", str(jail)))

    return change


def link(place: str, target: str) -> Change:
    """Return a change that puts a link in the place of a file or folder of the repository."""

    def change(jail: Path) -> None:
        path = jail / place
        if path.exists():
            path.rename(jail / f"{path.name}.before")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target.replace("{OUT}", str(jail.parent / "outside")))

    return change


def instead_of_git_folder(text: str) -> Change:
    """Return a change that makes `.git` a file."""

    def change(jail: Path) -> None:
        (jail / ".git").rename(jail / "elsewhere")
        write(".git", text)(jail)

    return change


LEADS_OUT = {
    "a file .git": instead_of_git_folder("gitdir: {OUT}/.git\n"),
    "a relative file .git": instead_of_git_folder("gitdir: ../outside/.git\n"),
    "a file .git with a NUL": instead_of_git_folder("gitdir: {OUT}/.git\0/../elsewhere\n"),
    "a link .git": link(".git", "../outside/.git"),
    "commondir": write(".git/commondir", "../../outside/.git\n"),
    "alternates": write(".git/objects/info/alternates", "{OUT}/.git/objects\n"),
    "relative alternates": write(".git/objects/info/alternates", "../../../outside/.git/objects\n"),
    "the second of the alternates": write(
        ".git/objects/info/alternates", "# x\n\npack\n{OUT}/.git/objects\n"
    ),
    "quoted alternates": write(".git/objects/info/alternates", '"{OUT}/.git/\\157bjects"\n'),
    "a linked folder of objects": link(".git/objects", "../../outside/.git/objects"),
    "a linked part of the objects": link(".git/objects/00", "../../../outside/.git/objects/00"),
    "linked settings": link(".git/config", "{OUT}/settings"),
    "a linked index": link(".git/index", "../../outside/.git/index"),
    "a linked list of patterns": link(".git/info/exclude", "../../../outside/settings"),
    "a linked branch": link(".git/refs/heads/x/y", "{OUT}/settings"),
    "a table of references": write(".git/reftable/tables.list", "0x01-0x02.ref\n../../../outside/settings\n"),
    "core.worktree": write(".git/config", "[core]\nworktree = {OUT}\n"),
    "core.worktree on the line of its section": write(".git/config", "[core] WorkTree=../../outside\n"),
    "a quoted core.worktree": write(".git/config", '[core]\nworktree = "{OUT}"\n'),
    "an escaped core.worktree": write(".git/config", '[core]\nworktree = ..\\"/../outside\n'),
    "a continued core.worktree": write(".git/config", "[core]\nworktree = .\\\n./../outside\n"),
    "core.worktree of this worktree": write(".git/config.worktree", "[core]\nworktree = {OUT}\n"),
    "include.path": write(".git/config", "[include]\npath = {OUT}/settings\n"),
    "includeIf": write(".git/config", '[includeIf "gitdir:**"]\n\tpath = ../../outside/settings\n'),
    "a home": write(".git/config", "[include]\npath = ~/settings\n"),
    "an include of an include": lambda jail: (
        write("more", "[include]\npath = ../outside/settings\n")(jail),
        write(".git/config", "[include]\npath = ../more\n")(jail),
    )[0],
    "an include of itself": write(".git/config", "[include]\npath = config\n"),
    "blame.ignoreRevsFile": write(".git/config", "[blame]\nignoreRevsFile = ../outside/settings\n"),
    "settings that are no file": lambda jail: (
        (jail / ".git" / "config").rename(jail / "config"),
        (jail / ".git" / "config").mkdir(),
        None,
    )[2],
}
"""What makes git read outside, or cannot be told from it."""


@pytest.mark.parametrize("name", LEADS_OUT)
def test_git_does_not_run_in_a_repository_that_leads_out_of_the_jail(
    jail: Path, policy: Policy, name: str
) -> None:
    permitted(policy, "git log")
    LEADS_OUT[name](jail)
    for command, cwd in (("git log", None), ("git blame a.txt", "src"), ("git -C src show", None)):
        reason = refusal(policy, command, cwd)
        assert "the repository is not used" in reason
        assert str(jail.parent / "outside") not in reason


def test_where_the_kernel_confines_nothing_each_single_object_is_looked_at(jail: Path) -> None:
    policy = policy_over(jail, DEFAULT_POLICY.read_text() + '[containment]\nmode = "off"\n')
    permitted(policy, "git log")
    link(".git/objects/00/1122", "../../../../outside/settings")(jail)
    assert "a link in .git" in refusal(policy, "git log")


def add_worktree(jail: Path) -> None:
    git(jail, "worktree", "add", "--quiet", "second")


def add_submodule(jail: Path) -> None:
    (jail / "inner").mkdir()
    (jail / "inner" / "x").write_text("x\n")
    begin(jail / "inner")
    git(jail, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    (jail / "inner" / ".git").rename(jail / ".git" / "modules-inner")
    write("inner/.git", "gitdir: ../.git/modules-inner\n")(jail)
    write(".git/modules-inner/config", "[core]\nworktree = ../../inner\n")(jail)


STAYS_INSIDE = {
    "nothing": lambda jail: None,
    "a worktree": add_worktree,
    "a submodule": add_submodule,
    "a file .git": instead_of_git_folder("gitdir: elsewhere\n"),
    "an absolute file .git": instead_of_git_folder("gitdir: {JAIL}/elsewhere\n"),
    "alternates": write(".git/objects/info/alternates", "pack\n{JAIL}/spare\n"),
    "tables of references": write(".git/reftable/tables.list", "0x01-0x02.ref\n"),
    "an include": write(".git/config", "[include]\npath = ../settings\n"),
    "a list of revisions": write(".git/config", "[blame]\nignoreRevsFile = .git-blame-ignore-revs\n"),
    "a path that is no include": write(".git/config", '[difftool "x"]\npath = /usr/bin/x\n'),
    "settings of the same beginning": write(".git/config", "[extensions]\nworktreeConfig = true\n"),
    "a hook that is a link": link(".git/hooks/pre-commit", "/usr/bin/true"),
    "a file HEAD": write("HEAD", "text"),
    "an index of version 4": lambda jail: [git(jail, "update-index", "--index-version", "4"), None][1],
}


@pytest.mark.parametrize("name", STAYS_INSIDE)
def test_git_runs_in_a_repository_whose_parts_lie_in_the_jail(jail: Path, policy: Policy, name: str) -> None:
    STAYS_INSIDE[name](jail)
    for folder in (
        None,
        "src",
        *(["second"] if name == "a worktree" else ["inner"] if "sub" in name else []),
    ):
        for command in ("git log", "git grep one", "git status", "git diff"):
            assert permitted(policy, command, folder).reason.startswith("allowed by [rules.git")


@pytest.mark.parametrize("version", ["2", "4"])
def test_git_reads_no_tracked_file_through_a_folder_that_has_become_a_link_to_outside(
    jail: Path, policy: Policy, version: str
) -> None:
    git(jail, "update-index", "--index-version", version)
    permitted(policy, "git grep CANARY")
    link("src", "../outside/src")(jail)
    assert CANARY in git(jail, "grep", "CANARY")
    for command in ("git grep CANARY", "git diff", "git status", "git ls-files -m"):
        assert "a folder of tracked files" in refusal(policy, command)
    permitted(policy, "git log")


def test_git_looks_into_no_submodule_whose_repository_lies_outside(jail: Path, policy: Policy) -> None:
    add_submodule(jail)
    permitted(policy, "git diff --submodule=log")
    (jail / "inner" / ".git").write_text("gitdir: ../../outside/.git\n")
    assert "the repository is not used" in refusal(policy, "git diff --submodule=log")


def test_a_split_index_and_one_that_is_cut_are_refused(jail: Path, policy: Policy) -> None:
    index = jail / ".git" / "index"
    whole = index.read_bytes()
    for raw in (whole[:-21], whole[:40], b"DIRC" + whole[8:], whole[:4] + b"\0\0\0\x05" + whole[8:]):
        index.write_bytes(raw)
        refusal(policy, "git status")
        with pytest.raises(UnreadableError):
            tracked(raw, 20, Budget())
    index.write_bytes(whole)
    git(jail, "update-index", "--split-index")
    refusal(policy, "git status")


def test_what_an_index_of_every_version_tracks_is_what_git_says(jail: Path) -> None:
    for name in ("a/b/c/long name.txt", "a/b/d", "a/bb/e", "é/f"):
        write(name, name)(jail)
    git(jail, "add", ".")
    write("later", "x")(jail)
    git(jail, "add", "--intent-to-add", "later")
    folders = {name.rpartition("/")[0] for name in git(jail, "ls-files", "-z").split("\0") if name}
    for version in ("2", "3", "4"):
        git(jail, "update-index", "--index-version", version)
        found = tracked((jail / ".git" / "index").read_bytes(), 20, Budget())
        assert {folder.decode() for folder in found.folders} == folders


def test_git_looks_for_no_repository_above_the_jail(tmp_path: Path) -> None:
    (tmp_path / "jail" / "src").mkdir(parents=True)
    (tmp_path / "a.txt").write_text(CANARY)
    begin(tmp_path)
    granted = permitted(
        policy_over(tmp_path / "jail", DEFAULT_POLICY.read_bytes()), "git rev-parse --show-toplevel", "src"
    )
    assert granted.environment["GIT_CEILING_DIRECTORIES"] == str(tmp_path.resolve())


def test_git_does_not_run_where_nothing_can_keep_it_from_looking_above_the_jail(tmp_path: Path) -> None:
    jail = tmp_path / "with:colon"
    jail.mkdir()
    policy = policy_over(jail, DEFAULT_POLICY.read_bytes())
    refusal(policy, "git log")
    begin_with_a_file(jail)
    permitted(policy, "git log")


def test_a_repository_of_links_and_folders_without_end_is_refused_in_time(jail: Path, policy: Policy) -> None:
    (jail / ".git" / "refs" / "loop").symlink_to("..")
    assert "the repository is not used" in refusal(policy, "git log")
