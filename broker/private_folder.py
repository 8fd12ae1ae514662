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


def is_private(gid: int) -> bool:
    """Whether nobody but root and this user is in a group: root's, or the one that a user has alone.

    Our own group may be one of many users, such as `users`, who need not be listed as its members where it is their
    first one: so it is private only if it is called as we are and lists nobody else, or if nobody named it at all.
    """
    if gid == 0 or gid != os.getegid():
        return gid == 0
    import grp  # only where a group may write: seldom
    import pwd

    try:
        group = grp.getgrgid(gid)
    except KeyError:  # as in a container that is told a number
        return True
    try:
        own = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    if group.gr_name != own or not set(group.gr_mem) <= {own}:
        return False
    return all(user.pw_gid != gid or user.pw_name == own for user in pwd.getpwall())


def problem(path: str) -> str:
    """Return how others could rename what is in the folder, "" if they cannot. Raises OSError.

    As for the policy file, root's group and a private one are no others. A sticky folder keeps each from what is another's
    (inode(7), S_ISVTX).
    """
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_ISVTX:
        return ""
    if mode & stat.S_IWOTH:
        return f"everybody may write in {path} and put another file in its place; chmod o-w {path}"
    if mode & stat.S_IWGRP and not is_private(status.st_gid):
        return (
            f"group {status.st_gid} may write in {path} and put another file in its place; chmod g-w {path}"
        )
    return ""
