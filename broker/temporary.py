"""A private temporary folder for one call, and its removal whatever the program left in it.

Always true: nothing outside the folder is touched: no link is followed, every step is taken from a
descriptor of the folder above; depth and number of entries are no danger, as no recursion is used. It is
removed after everything in the call's domain was killed, so nobody changes it meanwhile. What cannot be
removed is left, and its path is returned to be said.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

from broker.refusal import StartupError

BASES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the folder made there is private and has a random name
_PREFIX: Final = "htmcp-"
_FOLDER_MODE: Final = 0o700
_FRESH_S: Final = 60.0  # a folder that is being made is not locked yet
_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def base_outside(jail: str) -> str:
    """Return the first usable folder for temporary folders that the jail does not hold. Raises
    StartupError.
    """
    for base in BASES:
        real = os.path.realpath(base)
        if os.path.isdir(real) and not f"{real}/".startswith(f"{jail}/"):
            return real
    raise StartupError(
        f"no place for temporary folders outside the jail: {', '.join(BASES)} lie in it or are missing"
    )


class Folder:
    """A new folder in `base` that only this user may enter, locked while this broker uses it. `path` is
    real.
    """

    def __init__(self, base: str) -> None:
        """Make it. Raises OSError."""
        self.path = f"{base}/{_PREFIX}{os.urandom(16).hex()}"
        os.mkdir(self.path, _FOLDER_MODE)
        self._fd = os.open(self.path, os.O_RDONLY | _FOLDER)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def close(self) -> None:
        """Let go of it; if it is still there, a later broker will remove it."""
        os.close(self._fd)


def remove_abandoned(base: str) -> list[str]:
    """Remove the folders in `base` that brokers of this user left when they were killed. Returns those that stayed."""
    paths = [f"{base}/{name}" for name in os.listdir(base) if name.startswith(_PREFIX)]
    return [path for path in paths if _is_abandoned(path) and not remove(path)]


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = _open_folder(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_abandoned(path: str) -> bool:
    try:
        status = os.lstat(path)  # before it is opened, which may change it
        if status.st_uid != os.geteuid() or time.time() - status.st_ctime <= _FRESH_S:
            return False
        with _opened(path) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # gone, or somebody's: locked
        return False
    return True


def remove(path: str) -> bool:
    """Remove the folder and all in it. Returns whether nothing is left."""
    try:
        with _opened(path) as top_fd:
            _empty(top_fd)
            os.rmdir(path)
    except OSError:
        return not os.path.lexists(path)
    return True


def _empty(top_fd: int) -> None:
    """Take one level off each folder at a time: what lies deeper is moved up to the top, and is next."""
    fresh, moved = os.urandom(8).hex(), 0
    while names := os.listdir(top_fd):
        for name in names:
            if not _unlinked(top_fd, name):
                moved = _dissolve(top_fd, name, fresh, moved)


def _dissolve(top_fd: int, name: str, fresh: str, moved: int) -> int:
    """Move the folders within `name` to the top under new names, remove the rest and `name` itself."""
    folder_fd = _open_folder(name, top_fd)
    try:
        for inner in os.listdir(folder_fd):
            if not _unlinked(folder_fd, inner):
                os.close(_open_folder(inner, folder_fd))  # a folder that may not be written cannot be moved
                moved += 1
                os.rename(inner, f"{fresh}{moved}", src_dir_fd=folder_fd, dst_dir_fd=top_fd)
    finally:
        os.close(folder_fd)
    os.rmdir(name, dir_fd=top_fd)
    return moved


def _unlinked(folder_fd: int, name: str) -> bool:
    """Remove what is no folder, or an empty one. Returns whether that was so."""
    try:
        os.unlink(name, dir_fd=folder_fd)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=folder_fd)
        except OSError:  # not empty
            return False
    return True


def _open_folder(name: str, folder_fd: int | None = None) -> int:
    """Open a folder for reading; a program may have taken that right away."""
    place_fd = os.open(name, os.O_PATH | _FOLDER, dir_fd=folder_fd)
    try:
        if os.fstat(place_fd).st_mode & _FOLDER_MODE != _FOLDER_MODE:
            os.chmod(f"/proc/self/fd/{place_fd}", _FOLDER_MODE)
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=place_fd)
    finally:
        os.close(place_fd)
