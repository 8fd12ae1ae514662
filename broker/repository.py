"""Whether the git repository that a command would use lies in the jail, with all that its links and settings make git read.

Always true: each place is led to its end by the jail, within the command's budget; what is odd, too long or too deep is
refused; a file is read here, never obeyed. A verdict on this moment, as every one of the jail's. What git looks for while it
walks untracked folders (a repository of their own, whose HEAD it reads) is not seen: it prints nothing of that.

Sources: gitrepository-layout(5), git-config(1), git-worktree(1), reftable's format; gitformat-index(5) is in `tracked`.
"""

import os
import re
import stat

from broker.beneath import SpentError
from broker.jail import Jail, Located, OutsideError
from broker.refusal import PolicyDenied
from broker.tracked import Tracked, UnreadableError, tracked

TEXT_BYTES = 1 << 20
INDEX_BYTES = 32 << 20
_DEEPEST = 8
"""Repositories within repositories, included files and chains of alternates that are followed."""

_MOST_PARTS = 128
"""A folder that lies deeper is too deep."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
_NOT_READ = frozenset(("hooks", "lfs", "annex", "modules"))
"""Folders of a repository that git itself reads nothing in; a submodule's is looked at where it is used."""

_SETTING = re.compile(
    r"(?<![a-z0-9-])(path|worktree|ignorerevsfile|objectformat)[ \t]*=([^\n]*)", re.IGNORECASE
)
"""Wherever it stands, in a comment too: a key can be written in no other way (git-config(1), Syntax)."""

_INCLUDES = re.compile(r"\[\s*include", re.IGNORECASE)
_ODD = frozenset('"\\#;')
_GIT_FILE = "gitdir: "


def check(jail: Jail, located: Located, *, files: bool, objects: bool) -> None:
    """Look at each repository that a git started in `located` could take for its own. Raises PolicyDenied.

    `files`: the folders of the files that it tracks have to lie in the jail, and its submodules' repositories. `objects`:
    each single object is looked at too, which are thousands.
    """
    search = _Search(jail, located, files=files, objects=objects)
    try:
        folder = located.relative
        search.at(folder)
        while folder:
            folder = os.path.dirname(folder)
            search.at(folder)
    except PolicyDenied as refusal:
        raise PolicyDenied(f"the repository is not used: {search.what}: {refusal.reason}") from None
    except (OutsideError, SpentError, OSError, UnreadableError, ValueError) as error:
        said = f"the path {error}" if isinstance(error, OutsideError) else "it cannot be looked into"
        raise PolicyDenied(f"the repository is not used: {search.what}: {said}") from None
    if not search.found and ":" in jail.real:  # GIT_CEILING_DIRECTORIES is a list with `:`
        raise PolicyDenied(
            "there is no repository, and the jail's name has a `:`: git would look above the jail"
        )


class _Search:
    """One look at the repositories of a folder. `what` says for a reason where it is, `found` whether there was one."""

    def __init__(self, jail: Jail, located: Located, *, files: bool, objects: bool) -> None:
        self._jail = jail
        self._budget = located.budget
        self._files = files
        self._objects_too = objects
        self.what = "its folder"
        self.found = False

    def at(self, folder: str, depth: int = 0) -> None:
        """Look at the repository whose `.git` a folder holds, and at the folder as one without files."""
        self._bound(depth)
        place = os.path.join(folder, ".git")
        self.what = "its folder .git"
        mode = self._mode(place)
        if mode is not None and stat.S_ISREG(mode):
            text = self.text(place)
            if text.startswith(_GIT_FILE):
                self._repository(self.led(text[len(_GIT_FILE) :].rstrip("\r\n"), folder), folder, depth)
        elif mode is not None:
            self._repository(place, folder, depth)
        if self._is_git_folder(folder):
            self._repository(folder, folder, depth)

    def _is_git_folder(self, folder: str) -> bool:
        there = {
            name
            for name in ("HEAD", "refs", "objects", "commondir")
            if self._mode(os.path.join(folder, name)) is not None
        }
        return "HEAD" in there and ("commondir" in there or {"refs", "objects"} <= there)

    def _repository(self, git_folder: str, top: str, depth: int) -> None:
        self.found = True
        self.what = "its common folder"
        named = self.text(os.path.join(git_folder, "commondir")).rstrip("\r\n")
        common = self.led(named, git_folder) if named else git_folder
        for place in dict.fromkeys((git_folder, common)):
            self.what = "a link in .git"
            self._walk(place)
        self._objects(os.path.join(common, "objects"), depth)
        self._tables(os.path.join(common, "reftable"))
        settings = _Settings(self, git_folder, top)
        settings.read(os.path.join(common, "config"))
        settings.read(os.path.join(git_folder, "config.worktree"))
        settings.check()
        if self._files:
            self._tracked(git_folder, settings.top, settings.name_bytes, depth)

    def _walk(self, top: str) -> None:
        """Look at each link in a folder and below; what one leads to, if that is a folder, is walked too."""
        links = [top]
        while links:
            place = links.pop()
            try:
                fd = self._jail.open(place, _FOLDER, self._budget)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                self._walk_folder(fd, place, links, _NOT_READ if place == top else frozenset())
            finally:
                os.close(fd)

    def _walk_folder(self, fd: int, place: str, links: list[str], left_out: frozenset[str]) -> None:
        """Add each link in an open folder to `links`, and go further down: a folder that is no link is beneath."""
        if place.count("/") > _MOST_PARTS:
            raise UnreadableError
        self._budget.spend(1)
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_symlink():
                    links.append(os.path.join(place, entry.name))
                elif entry.is_dir(follow_symlinks=False) and not self._is_left_out(
                    place, entry.name, left_out
                ):
                    inner = os.open(entry.name, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                    try:
                        self._walk_folder(inner, os.path.join(place, entry.name), links, frozenset())
                    finally:
                        os.close(inner)

    def _is_left_out(self, place: str, name: str, left_out: frozenset[str]) -> bool:
        return name in left_out or (not self._objects_too and len(name) == 2 and place.endswith("objects"))

    def _objects(self, folder: str, depth: int) -> None:
        self._bound(depth)
        self.what = "objects of another repository (.git/objects/info/alternates)"
        for line in self.text(os.path.join(folder, "info", "alternates")).split("\n"):
            if line and not line.startswith("#"):
                if line.startswith('"'):
                    raise UnreadableError
                inner = self.led(line, folder)
                self._walk(inner)
                self._objects(inner, depth + 1)

    def _tables(self, folder: str) -> None:
        """Look at the tables that references are in, where they are kept in this newer way."""
        self.what = "a table of references"
        for line in self.text(os.path.join(folder, "tables.list")).split("\n"):
            if line:
                self.led(line, folder)

    def _tracked(self, git_folder: str, top: str, name_bytes: int, depth: int) -> None:
        self.what = "a folder of tracked files"
        raw = self._bytes(os.path.join(git_folder, "index"), INDEX_BYTES)
        found = tracked(raw, name_bytes, self._budget) if raw else Tracked(set(), [])
        for folder in found.folders:
            self._mode(os.path.join(top, os.fsdecode(folder)))
        for submodule in found.submodules:
            self.at(os.path.join(top, os.fsdecode(submodule)), depth + 1)

    def led(self, path: str, base: str) -> str:
        """Return the path from the root of what a file names. Raises PolicyDenied if that is outside."""
        return self._jail.check(path, Located(-1, base, self._budget))

    def _bound(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnreadableError

    def _mode(self, place: str) -> int | None:
        """Return the mode of what is there; None if nothing is. Raises OutsideError or OSError if it leads out."""
        try:
            fd = self._jail.open(place, os.O_PATH, self._budget)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)

    def text(self, place: str) -> str:
        """Return what a file holds, "" if it is missing."""
        text = os.fsdecode(self._bytes(place, TEXT_BYTES))
        if "\0" in text:
            raise UnreadableError
        return text

    def _bytes(self, place: str, most: int) -> bytes:
        """Return what a file holds, b"" if it is missing. Raises UnreadableError for a longer one, or no file."""
        try:
            fd = self._jail.open(place, os.O_RDONLY | os.O_NONBLOCK, self._budget)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableError
            raw = file.read(most + 1)
        if len(raw) > most:
            raise UnreadableError
        return raw


class _Settings:
    """The settings that name files: `top` is the folder of the tracked files, `name_bytes` the length of an object's name."""

    def __init__(self, search: _Search, git_folder: str, top: str) -> None:
        self._search, self._git_folder = search, git_folder
        self.top, self.name_bytes = top, 20
        self._ignored_revisions: list[str] = []

    def read(self, place: str, depth: int = 0) -> None:
        """Look at one file of settings and at those that it includes."""
        if depth > _DEEPEST:
            raise UnreadableError
        text = self._search.text(place)
        includes = _INCLUDES.search(text) is not None
        for setting in _SETTING.finditer(text):
            key = setting[1].lower()
            self._search.what = f"the setting {key}"
            if key == "worktree":
                self.top = self._search.led(_value(setting[2]), self._git_folder)
            elif key == "ignorerevsfile":
                self._ignored_revisions.append(_value(setting[2]))
            elif key == "objectformat":
                self.name_bytes = 32 if _value(setting[2]).lower() == "sha256" else 20
            elif includes:
                self.read(
                    self._search.led(_value(setting[2]), os.path.dirname(place)),
                    depth + 1,
                )

    def check(self) -> None:
        """Look at the files whose names are relative to the folder of the tracked files."""
        self._search.what = "the setting ignorerevsfile"
        for name in self._ignored_revisions:
            self._search.led(name, self.top)


def _value(written: str) -> str:
    """Return the value of a setting, if it is written plainly. Raises UnreadableError for one that git would transform."""
    text = written.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not text or text[0] in "~%:" or _ODD & set(text):
        raise UnreadableError
    return text
