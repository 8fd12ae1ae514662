"""Folders in which others must not put anything in the place of what is ours: the trail, approvals, the HOME of commands.

Always true: what is made here has mode 0700 whatever the umask takes away or leaves; nothing that exists is changed.
"""

import contextlib
import os
import stat


def make(path: str) -> None:
    """Make the folder and those above it that are missing, each for its owner alone. Raises OSError."""
    above = os.path.dirname(path)
    if above != path and not os.path.isdir(above):
        make(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)  # os.makedirs gives its mode to the last folder only


def problem(path: str) -> str:
    """Return how others could rename what is in the folder, "" if they cannot. Raises OSError.

    As for the policy file, root's group and our own are no others. A sticky folder keeps each from what is another's
    (inode(7), S_ISVTX).
    """
    status = os.stat(path)
    mode, foreign = stat.S_IMODE(status.st_mode), status.st_gid not in (0, os.getegid())
    if mode & stat.S_ISVTX:
        return ""
    if mode & stat.S_IWOTH:
        return f"everybody may write in {path} and put another file in its place; chmod o-w {path}"
    if mode & stat.S_IWGRP and foreign:
        return (
            f"group {status.st_gid} may write in {path} and put another file in its place; chmod g-w {path}"
        )
    return ""
