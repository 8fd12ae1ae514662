"""The programs of a policy: looked up once, along the policy's own path, and pinned.

What always holds:
- what runs is the file that was looked up: a call verifies device, inode, size and times before it starts it;
- no file or folder on the way to a program, links followed, can be written by anybody but root and the user of
  the broker, and none lies in the jail: the jail's content must not choose what runs;
- names are looked for in listings of the path's folders, each read once: a policy with a thousand names that
  the machine lacks costs no more than one with ten;
- a name that cannot be used is no error at start-up: its reason is kept for the call.

It must not ask the environment of whoever started the broker, and it must not start anything.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from broker import shebang
from broker.jail import Jail
from broker.refusal import ExecutorError, StartupError

_LINKS = 40
"""As path_resolution(7): more links than this on one way are a loop."""

_NESTED_SCRIPTS = 4
"""As execve(2): an interpreter may be a script itself, but not for ever."""

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnfitError(Exception):
    """A program cannot be used. The message says why."""


class Identity(NamedTuple):
    """Which file it is, and that it was not written since (times in nanoseconds)."""

    device: int
    inode: int
    size: int
    ctime_ns: int
    mtime_ns: int


class Program(msgspec.Struct, frozen=True):
    """A program that may be started.

    `name`: as the policy lists it. `found`: where the search ended. `real`: the same file, links resolved.
    `path`: the file to execute, `real` or a script's interpreter: the one object whose address a seccomp filter
    may compare. `argv0`: None where it is the name as typed; for a script what the kernel would put there.
    `prefix`: arguments before the caller's own. `pinned`: all files that take part, the program itself first;
    each must be executable and readable for whoever starts this program by its name.
    """

    name: str
    found: str
    real: str
    path: bytes
    argv0: str | None
    prefix: tuple[str, ...]
    pinned: tuple[tuple[str, Identity], ...]

    @property
    def identity(self) -> Identity:
        """The identity of `real`."""
        return self.pinned[0][1]

    @property
    def executables(self) -> tuple[str, ...]:
        """The real paths of the program, its interpreters and env, as far as they take part."""
        return tuple(path for path, _ in self.pinned)

    def argv(self, typed: str, arguments: Sequence[str]) -> tuple[str, ...]:
        """Return the complete argv: for a script as the kernel would build it (execve(2))."""
        return (self.argv0 or typed, *self.prefix, *arguments)

    def verify(self) -> None:
        """Raise ExecutorError if any of the files is not what was looked up."""
        for path, identity in self.pinned:
            try:
                now = _identity(os.stat(path, follow_symlinks=False))
            except OSError:
                now = None
            if now != identity:
                raise ExecutorError(
                    f"{self.name}: its file was changed since it was looked up; reload the policy"
                )


MANY = 200
"""From so many names on, folders are listed once instead of looked into for each name."""


class Programs:
    """The programs of one policy, each found and pinned, or with the reason why it cannot be used."""

    def __init__(
        self, path: tuple[str, ...], jail: Jail, names: Iterable[str], *, lazily: bool = False
    ) -> None:
        """Look up `names` along `path`; `lazily`, for a broker that makes one call, each when it is asked for.

        Raises StartupError if a folder of `path` is not absolute.
        """
        for folder in path:
            if not folder.startswith("/"):
                raise StartupError(f"environment.path: {folder!r}: an absolute path was expected")
        self._path = path
        self._names = frozenset(names)
        listed = len(self._names) > MANY
        self._listings = [(folder, _listing(folder) if listed else None) for folder in path]
        self._folders = _Folders(jail.identity)
        self._known: dict[str, Program | str] = {}
        if not lazily:
            for name in self._names:
                self._look_up(name)

    def get(self, name: str) -> Program:
        """Return a program. Raises ExecutorError with the reason why it cannot be used."""
        known = self._look_up(name)
        if isinstance(known, Program):
            return known
        raise ExecutorError(f"{name}: {known}")

    def problem(self, name: str) -> str | None:
        """Return why a program cannot be used, None if it can."""
        known = self._look_up(name)
        return known if isinstance(known, str) else None

    def _look_up(self, name: str) -> Program | str:
        known = self._known.get(name)
        if known is None:
            known = self._pin(name) if name in self._names else "is no program of this policy"
            self._known[name] = known
        return known

    def _pin(self, name: str) -> Program | str:
        try:
            return self._program(name, self._find(name), 0)
        except (UnfitError, shebang.ShebangError) as error:
            return str(error)
        except OSError as error:
            return f"cannot be looked at ({error.strerror})"

    def _find(self, name: str) -> str:
        """Return where `name` is: itself if it is an absolute path, else the first executable file along the path."""
        if "/" in name:
            if not name.startswith("/") or os.path.normpath(name) != name:
                raise UnfitError("a name with a slash must be an absolute path without `.`, `..` or `//`")
            if not _is_executable(name):
                raise UnfitError("is no executable file on this machine")
            return name
        for folder, names in self._listings:
            if (names is None or name in names) and _is_executable(f"{folder}/{name}"):
                return f"{folder}/{name}"
        raise UnfitError(f"is not installed on this machine (looked for along {':'.join(self._path)})")

    def _program(self, name: str, found: str, nested: int) -> Program:
        real = self._folders.real_file(found)
        pinned: tuple[tuple[str, Identity], ...] = ((real, _identity(os.stat(real))),)
        interpreter = shebang.read(real)
        if interpreter is None:
            return Program(name, found, real, os.fsencode(real), None, (), pinned)
        if nested >= _NESTED_SCRIPTS:
            raise UnfitError("its interpreter is a script of a script of a script")
        inner = self._program(name, self._find(interpreter.program), nested + 1)
        if interpreter.through:
            env = self._folders.real_file(interpreter.through)
            pinned += ((env, _identity(os.stat(env))),)
        return Program(
            name=name,
            found=found,
            real=real,
            path=inner.path,
            argv0=inner.argv0 or interpreter.program,
            prefix=(*inner.prefix, *interpreter.arguments, found),
            pinned=pinned + inner.pinned,
        )


class _Folders:
    """Resolves links by hand, so that each folder that takes part is checked, and checked once."""

    def __init__(self, jail: tuple[int, int]) -> None:
        self._jail = jail
        self._owners = (0, os.geteuid())
        self._known: dict[str, str | UnfitError] = {}
        self._links = 0

    def real_file(self, path: str) -> str:
        """Return the real path of a file. Raises UnfitError if somebody else could put another there."""
        self._links = 0
        real = self._real(path)
        status = os.lstat(real)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitError(f"{real} is no file")
        self._check_owner(real, status)
        return real

    def _real(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return self._entry(self._real_folder(folder or "/"), name)

    def _entry(self, folder: str, name: str) -> str:
        """Return the real path of `name` in a real folder."""
        if name in ("", "."):
            return folder
        if name == "..":
            return os.path.dirname(folder)
        path = folder.rstrip("/") + "/" + name
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return path
        self._links += 1
        if self._links > _LINKS:
            raise UnfitError("goes through too many links")
        return self._real(os.path.join(folder, os.readlink(path)))

    def _real_folder(self, path: str) -> str:
        known = self._known.get(path)
        if known is None:
            try:
                known = "/" if path == "/" else self._real(path)
                self._check_folder(known)
            except UnfitError as error:
                known = error
            self._known[path] = known
        if isinstance(known, UnfitError):
            raise known
        return known

    def _check_folder(self, path: str) -> None:
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == self._jail:
            raise UnfitError(
                "lies in the jail, whose content must not choose what runs; of a .venv, README.md tells another way"
            )
        if not stat.S_ISDIR(status.st_mode):
            raise UnfitError(f"{path} is no folder")
        self._check_owner(path, status)

    def _check_owner(self, path: str, status: os.stat_result) -> None:
        if status.st_uid not in self._owners:
            raise UnfitError(f"{path} belongs to user {status.st_uid}, who could put another program there")
        if status.st_mode & _WRITABLE_BY_OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            remedy = "keep programs elsewhere" if mode & stat.S_ISVTX else "chmod go-w takes that right away"
            raise UnfitError(f"{path} can be written by others (mode {mode:04o}); {remedy}")


def _listing(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # a folder of the path that is missing, or that we may not read, holds nothing for us
        return frozenset()


def _is_executable(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns)
