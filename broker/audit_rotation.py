"""Rotation: the full file gets a name of its own, and the chain goes on in a new one at the trail's path.

Always true: a rotated file is named PATH.N with N the number of its first record in twelve digits, so that
names sort as the chain runs and none is ever used twice; the path leads to a whole trail at every moment
(link, then rename); the old file's last record is the event `rotated`, the new one's first is `continued`,
which names the old one's last hash. A file that others made or may write has a name at most: it is said, and
neither shown nor counted nor deleted.
"""

import contextlib
import os

from broker.audit_file import FLAGS, make_private, sync_folder, unfit, write_all
from broker.notice import warn

_DIGITS = 12
_told: set[str] = set()
"""Files of which was said that they are no part of the trail: once is enough."""


def rotated_name(path: str, first_seq: int) -> str:
    """Return the name of a rotated file."""
    return f"{path}.{first_seq:0{_DIGITS}d}"


def rotated_files(path: str) -> list[tuple[int, str]]:
    """Return number of the first record and path of each rotated file, oldest first. Raises OSError."""
    folder, base = os.path.split(path)
    own = _status(path)
    found = []
    for name in os.listdir(folder or "."):
        number = name.removeprefix(base + ".")
        if name != number and len(number) >= _DIGITS and number.isascii() and number.isdigit():
            beside = os.path.join(folder, name)
            if _is_part(beside, own):
                found.append((int(number), beside))
    return sorted(found)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_part(name: str, own: os.stat_result | None) -> bool:
    """Whether a file with the name of a rotated one is one, beside a trail's own file."""
    status = _status(name)
    # A broker that died between link and rename leaves the file at the path with a second name.
    if status is None or (own is not None and os.path.samestat(status, own)):
        return False
    problem = unfit(status, own and own.st_uid)
    if problem and name not in _told:
        _told.add(name)
        warn(f"audit log {name}: no part of the trail, and left out: {problem}")
    return not problem


def oldest_seq(path: str) -> int:
    """Return the number of the first record of the oldest rotated file, 0 without one. Raises OSError."""
    return next((first for first, _ in rotated_files(path)), 0)


def give_name(path: str, first_seq: int) -> None:
    """Give the file at `path` its rotated name too.

    Raises OSError, where a folder cannot hold two names for a file too.
    """
    name = rotated_name(path, first_seq)
    try:
        os.link(path, name, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(os.lstat(name), os.lstat(path)):
            raise


def make_next(path: str) -> int:
    """Make the file that will take over, beside the path, still empty; return its descriptor.

    The append lock is held. Raises OSError.
    """
    beside = path + ".new"
    with contextlib.suppress(FileNotFoundError):  # what a broker left that died right here
        os.unlink(beside)
    return make_private(beside, FLAGS)


def drop_next(path: str, fd: int) -> None:
    """Take back what `make_next` made."""
    os.close(fd)
    with contextlib.suppress(OSError):
        os.unlink(path + ".new")


def fill_next(fd: int, line: bytes) -> None:
    """Write the first record of the file that will take over, and bring it to disk. Raises OSError."""
    write_all(fd, line)
    os.fsync(fd)


def write_next(path: str, line: bytes) -> None:
    """Do both, and leave no file if that fails. The append lock is held. Raises OSError."""
    fd = make_next(path)
    try:
        fill_next(fd, line)
    except OSError:
        drop_next(path, fd)
        raise
    os.close(fd)


def take_over(path: str) -> None:
    """Put the file that `make_next` made in the path's place. Raises OSError."""
    os.rename(path + ".new", path)
    sync_folder(path)


def prune(path: str, keep: int) -> None:
    """Delete the oldest rotated files but `keep`. Raises OSError."""
    for _, name in rotated_files(path)[:-keep]:
        os.unlink(name)
