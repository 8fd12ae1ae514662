"""Repositories that were made to be looked at: each trap is one way in which git starts a program or reads elsewhere.

Sources: git-config(1), gitattributes(5), githooks(5), gitrepository-layout(5), gitmodules(5), and public advisories on agents
that trust git by its name. A trap starts `./trap.sh`, or leads to the repository, the secret or the folder outside.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.repository import git

Trap = Callable[[Path, Path], None]
TRAPS: dict[str, Trap] = {}
UNREADABLE: set[str] = set()
"""Traps that git cannot get past: what it must read lies outside, or is only what a program would make of it."""


def trap(name: str, *, fatal: bool = False) -> Callable[[Trap], Trap]:
    """Register what makes a jail's repository hostile."""

    def register(function: Trap) -> Trap:
        TRAPS[name] = function
        if fatal:
            UNREADABLE.add(name)
        return function

    return register


def _configure(text: str) -> Trap:
    def configure(jail: Path, outside: Path) -> None:
        with (jail / ".git" / "config").open("a") as file:
            file.write(text.replace("{OUT}", str(outside)).replace("{JAIL}", str(jail)))

    return configure


_CONFIGURED = {
    "core.fsmonitor": "[core]\nfsmonitor = ./trap.sh\n",
    "the built-in fsmonitor": "[core]\nfsmonitor = true\n",
    "core.pager": "[core]\npager = ./trap.sh\n[pager]\nlog = ./trap.sh\nstatus = ./trap.sh\ndiff = ./trap.sh\nshow = ./trap.sh\n",
    "core.editor": "[core]\neditor = ./trap.sh\n[sequence]\neditor = ./trap.sh\n",
    "core.sshCommand": '[core]\nsshCommand = ./trap.sh\naskPass = ./trap.sh\n[remote "origin"]\nurl = ssh://host.invalid/x\n',
    "core.gitProxy": '[core]\ngitProxy = ./trap.sh\n[remote "origin"]\nurl = git://host.invalid/x\n',
    "core.alternateRefsCommand": "[core]\nalternateRefsCommand = ./trap.sh\n",
    "core.hooksPath": "[core]\nhooksPath = {JAIL}/hooks\n",
    "diff.external": "[diff]\nexternal = ./trap.sh\n",
    "a difftool": '[diff]\ntool = x\n[difftool "x"]\ncmd = ./trap.sh\n',
    "interactive.diffFilter": "[interactive]\ndiffFilter = ./trap.sh\n[color]\nui = always\n",
    "gpg.program": "[gpg]\nprogram = ./trap.sh\n[commit]\ngpgSign = true\n[log]\nshowSignature = true\n",
    "gpg.ssh.program": '[gpg]\nformat = ssh\n[gpg "ssh"]\nprogram = ./trap.sh\ndefaultKeyCommand = ./trap.sh\n'
    "[commit]\ngpgSign = true\n",
    "aliases": '[alias]\ntrap = "!./trap.sh"\nstatus = "!./trap.sh"\nlog = "!./trap.sh"\ndiff = "!./trap.sh"\n',
    "a credential helper": '[credential]\nhelper = "!./trap.sh"\n',
    "a helper for a remote": '[remote "origin"]\nurl = "ext::./trap.sh"\n[protocol "ext"]\nallow = always\n',
    "a remote's uploadpack": '[remote "origin"]\nurl = {OUT}/repository.git\nuploadpack = ./trap.sh\n',
    "a remote outside": '[remote "origin"]\nurl = {OUT}/repository.git\nfetch = +refs/heads/*:refs/remotes/origin/*\n',
    "uploadpack.packObjectsHook": "[uploadpack]\npackObjectsHook = ./trap.sh\n",
    "gc.recentObjectsHook": "[gc]\nrecentObjectsHook = ./trap.sh\nauto = 1\n",
    "a browser": '[help]\nformat = web\nbrowser = x\n[browser "x"]\ncmd = ./trap.sh\n',
    "a man viewer": '[man]\nviewer = x\n[man "x"]\ncmd = ./trap.sh\n',
    "include.path": "[include]\npath = {OUT}/secret.txt\n",
    "a relative include": "[include]\npath = ../../outside/secret.txt\n",
    "includeIf": '[includeIf "gitdir:**"]\npath = {OUT}/secret.txt\n[includeIf "onbranch:**"]\npath = {OUT}/secret.txt\n',
    "an include of accounts": "[include]\npath = /etc/passwd\n",
    "files that settings name": "[core]\nexcludesFile = {OUT}/secret.txt\nattributesFile = {OUT}/secret.txt\n"
    "[mailmap]\nfile = {OUT}/secret.txt\n[diff]\norderFile = {OUT}/secret.txt\n[commit]\ntemplate = {OUT}/secret.txt\n",
    "blame.ignoreRevsFile": "[blame]\nignoreRevsFile = {OUT}/secret.txt\n",
    "a trace": "[trace2]\nnormalTarget = {OUT}/pwned\neventTarget = {OUT}/pwned\n",
    "worktree configuration": "[extensions]\nworktreeConfig = true\n",
}
for _name, _text in _CONFIGURED.items():
    TRAPS[_name] = _configure(_text)
for _name in (
    "include.path",
    "an include of accounts",
    "a relative include",
    "includeIf",
    "files that settings name",
    "blame.ignoreRevsFile",
):
    UNREADABLE.add(_name)


@trap("core.worktree outside", fatal=True)
def _worktree_outside(jail: Path, outside: Path) -> None:
    _configure("[core]\nworktree = {OUT}\n")(jail, outside)


@trap("hooks")
def _hooks(jail: Path, outside: Path) -> None:
    names = (
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "pre-auto-gc",
        "reference-transaction",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "pre-merge-commit",
        "post-merge",
        "post-rewrite",
        "fsmonitor-watchman",
    )
    for folder in (jail / ".git" / "hooks", jail / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(jail / "trap.sh", folder / name)


@trap("drivers that attributes name", fatal=True)
def _drivers(jail: Path, outside: Path) -> None:
    (jail / ".gitattributes").write_text("* diff=x filter=x merge=x\n")
    _configure(
        '[diff "x"]\ncommand = ./trap.sh\ntextconv = ./trap.sh\ncachetextconv = true\n'
        '[filter "x"]\nclean = ./trap.sh\nsmudge = ./trap.sh\nrequired = true\n[merge "x"]\ndriver = ./trap.sh\n'
    )(jail, outside)


@trap("a filter process that attributes name", fatal=True)
def _filter_process(jail: Path, outside: Path) -> None:
    (jail / ".gitattributes").write_text("* filter=x\n")
    _configure('[filter "x"]\nprocess = ./trap.sh\nrequired = true\n')(jail, outside)
    (jail / "a.txt").write_text("changed, so that it must be filtered\n")


@trap("a textconv alone")
def _textconv(jail: Path, outside: Path) -> None:
    (jail / ".gitattributes").write_text("*.md diff=x\n*.txt diff=x\n")
    _configure('[diff "x"]\ntextconv = ./trap.sh\nbinary = true\n')(jail, outside)


@trap("a signed commit and a program for signatures")
def _signed(jail: Path, outside: Path) -> None:
    raw = git(jail, "cat-file", "commit", "HEAD")
    head, _, message = raw.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEzBAABCAAdFiEE\n -----END PGP SIGNATURE-----"
    (jail / "commit").write_text(f"{head}\n{signature}\n\n{message}")
    made = git(jail, "hash-object", "-t", "commit", "-w", "--literally", "commit").strip()
    (jail / "commit").unlink()
    git(jail, "update-ref", "HEAD", made)
    _configure(
        '[gpg]\nprogram = ./trap.sh\n[gpg "openpgp"]\nprogram = ./trap.sh\n[log]\nshowSignature = true\n'
    )(jail, outside)


@trap("a missing object that a remote's helper promises", fatal=True)
def _promised(jail: Path, outside: Path) -> None:
    blob = git(jail, "rev-parse", "HEAD:b.txt").strip()
    (jail / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    _configure(
        "[core]\nrepositoryFormatVersion = 1\nsshCommand = ./trap.sh\n[extensions]\npartialClone = origin\n"
        '[remote "origin"]\nurl = "ext::./trap.sh"\npromisor = true\n[protocol "ext"]\nallow = always\n'
    )(jail, outside)


def _without_repository(jail: Path) -> Path:
    shutil.rmtree(jail / ".git")
    return jail / ".git"


@trap("a .git file that points outside", fatal=True)
def _git_file(jail: Path, outside: Path) -> None:
    _without_repository(jail).write_text(f"gitdir: {outside}/repository.git\n")


@trap("a .git link that points outside", fatal=True)
def _git_link(jail: Path, outside: Path) -> None:
    _without_repository(jail).symlink_to("../outside/repository.git")


@trap("a common folder outside", fatal=True)
def _commondir(jail: Path, outside: Path) -> None:
    (jail / ".git" / "commondir").write_text(f"{outside}/repository.git\n")


@trap("objects outside by alternates")
def _alternates(jail: Path, outside: Path) -> None:
    (jail / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (jail / ".git" / "objects" / "info" / "alternates").write_text(f"{outside}/repository.git/objects\n")
    _copy_refs(jail, outside)


@trap("objects outside by a link", fatal=True)
def _objects_link(jail: Path, outside: Path) -> None:
    shutil.rmtree(jail / ".git" / "objects")
    (jail / ".git" / "objects").symlink_to("../../outside/repository.git/objects")
    _copy_refs(jail, outside)


def _copy_refs(jail: Path, outside: Path) -> None:
    head = (outside / "repository.git" / "refs" / "heads" / "main").read_text()
    (jail / ".git" / "refs" / "heads" / "outside").write_text(head)


@trap("references and lists that are links to outside", fatal=True)
def _links(jail: Path, outside: Path) -> None:
    for name in (
        ".git/refs/heads/link",
        ".git/packed-refs",
        ".git/info/exclude",
        ".git/info/attributes",
        ".git/info/grafts",
    ):
        (jail / name).parent.mkdir(exist_ok=True)
        (jail / name).unlink(missing_ok=True)
        (jail / name).symlink_to(outside / "secret.txt")
    for name in (".gitignore", ".gitattributes", ".mailmap", "src/.gitignore"):
        (jail / name).symlink_to(outside / "secret.txt")


@trap("a configuration that is a link to outside", fatal=True)
def _config_link(jail: Path, outside: Path) -> None:
    (jail / ".git" / "config").unlink()
    (jail / ".git" / "config").symlink_to(outside / "secret.txt")


@trap("an index that is a link to outside", fatal=True)
def _index_link(jail: Path, outside: Path) -> None:
    (jail / ".git" / "index").unlink()
    (jail / ".git" / "index").symlink_to(outside / "secret.txt")


@trap("a submodule outside, with a program for its update")
def _submodule(jail: Path, outside: Path) -> None:
    (jail / ".gitmodules").write_text(
        f'[submodule "x"]\npath = x\nurl = {outside}/repository.git\nupdate = !./trap.sh\n'
    )
    (jail / "x").mkdir()
    (jail / "x" / ".git").write_text(f"gitdir: {outside}/repository.git\n")
    head = (outside / "repository.git" / "refs" / "heads" / "main").read_text().strip()
    git(jail, "update-index", "--add", "--cacheinfo", f"160000,{head},x")
    _configure(
        '[submodule "x"]\nactive = true\nurl = {OUT}/repository.git\nupdate = !./trap.sh\n[status]\nsubmoduleSummary = true\n'
    )(jail, outside)


@trap("a submodule in the jail with a hostile configuration")
def _hostile_submodule(jail: Path, outside: Path) -> None:
    inner = jail / "inner"
    shutil.copytree(jail / ".git", inner / ".git")
    (inner / "a.txt").write_text("changed\n")
    with (inner / ".git" / "config").open("a") as file:
        file.write("[core]\nfsmonitor = ../trap.sh\n[diff]\nexternal = ../trap.sh\n")
    head = git(inner, "rev-parse", "HEAD").strip()
    git(jail, "update-index", "--add", "--cacheinfo", f"160000,{head},inner")


@trap("a worktree that is registered outside")
def _worktree(jail: Path, outside: Path) -> None:
    folder = jail / ".git" / "worktrees" / "x"
    folder.mkdir(parents=True)
    (folder / "gitdir").write_text(f"{outside}/folder/.git\n")
    (folder / "commondir").write_text("../..\n")
    (folder / "HEAD").write_text("ref: refs/heads/feature\n")


@trap("settings in the jail as if it were a home")
def _home(jail: Path, outside: Path) -> None:
    text = '[core]\nfsmonitor = ./trap.sh\npager = ./trap.sh\n[alias]\ntrap = "!./trap.sh"\n[diff]\nexternal = ./trap.sh\n'
    (jail / ".gitconfig").write_text(text)
    (jail / ".config" / "git").mkdir(parents=True)
    (jail / ".config" / "git" / "config").write_text(text)
