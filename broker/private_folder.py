"""Places in which others must not put anything in the place of what is ours: policy, trail, approvals, the HOME of commands.

Always true: what is made here is for its owner alone, whatever the umask leaves (`main` sees to it that it takes nothing
from the owner); nothing that exists is changed. A place is looked at from `/` on, link by link, as the kernel would go: who
may rename one folder of the way may exchange all below it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_LINKS = 40
"""The kernel follows no more (path_resolution(7))."""
_FIRST_OF_PEOPLE = 1000
"""Users and groups below it are the system's own (SYS_UID_MAX of login.defs(5))."""
_OF_THE_SYSTEM = ("root", "sync", "shutdown", "halt", "operator", "syslog")
"""Accounts that nobody can log in to: Fedora has some in root's group, Ubuntu's log daemon may write in `/var/log`."""
_ACCESS_LIST = "system.posix_acl_access"


def make(path: str) -> None:
    """Make the folder and those above it that are missing, each for its owner alone. Raises OSError."""
    above = os.path.dirname(path)
    if above != path and not os.path.isdir(above):
        make(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)  # os.makedirs gives its mode to the last folder only


def nearest(path: str) -> str:
    """Return the folder, or the first one above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def problem(path: str, *, alone: bool = False) -> str:
    """Return how another user could change a file or folder, or put another in its place, and what to do; "" if none could.

    A folder where others may write is no problem if it is sticky, as each is kept there from what is another's (inode(7),
    S_ISVTX), unless `path` is to be a folder in which we are `alone`: others could take the names that we are going to use.
    Raises OSError.
    """
    for entry, status in _way(path):
        if fault := _fault(entry, status):
            return fault
    if stat.S_ISDIR(status.st_mode):
        who = _writer(entry, status)[0] if alone else ""
        return who and (
            f"{who} may write in {entry} and take names that are needed there; name a folder of your own, "
            f"such as one made with: mkdir -m 700 {os.path.join(entry, 'hardened-terminal-mcp')}"
        )
    if status.st_nlink > 1 and _is_shared(os.path.dirname(entry)) and not _links_are_protected():
        return f"another user may have given it the name {entry} (fs.protected_hardlinks is 0); keep it in a folder of your own"
    return ""


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the real path and the status of each folder and link on the way, and of what it leads to."""
    names = (path if os.path.isabs(path) else os.path.join(os.getcwd(), path)).split("/")[::-1]
    at, links = "/", 0
    yield at, os.lstat(at)
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        entry = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        status = os.lstat(entry)
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            at = entry
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(entry)
        names += target.split("/")[::-1]
        if target.startswith("/"):
            at = "/"
            yield at, os.lstat(at)


def _fault(path: str, status: os.stat_result) -> str:
    owned = status.st_uid in (0, os.geteuid())
    if stat.S_ISLNK(status.st_mode):
        # only who may write in its folder can exchange a link; in a sticky one its owner too
        if owned or not _is_shared(os.path.dirname(path)):
            return ""
        return f"user {status.st_uid}, neither root nor you, made the link {path}; name the place that it should lead to"
    folder = stat.S_ISDIR(status.st_mode)
    does = f"may write in {path} and put another file in its place" if folder else "may write it"
    if not owned and path == "/":
        return (
            f"/ is owned by user {status.st_uid}, neither root nor you, who could exchange everything; "
            "if that is how a user namespace shows root, start outside of it"
        )
    if not owned:
        whose = f"its folder {path} is owned" if folder else "owned"
        return f"{whose} by user {status.st_uid}, neither root nor you; take another place, or: chown {os.geteuid()} {path}"
    if folder and status.st_mode & stat.S_ISVTX:
        return ""
    who, right = _writer(path, status)
    return who and f"{who} {does}; take that away with: chmod {right}-w {path}"


def _writer(path: str, status: os.stat_result) -> tuple[str, str]:
    """Return who but root and the owner may write, and the letter that chmod has for them; empty if nobody."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody", "o"
    if not status.st_mode & stat.S_IWGRP:
        return "", ""
    if _has_access_list(path):
        return "a user in its access list (getfacl)", "g"
    return ("", "") if is_private(status.st_gid) else (f"group {status.st_gid}", "g")


def _has_access_list(path: str) -> bool:
    """Whether the group's right is shown for the mask of a list, the most that anybody in it may do (acl(5))."""
    try:
        return bool(os.getxattr(path, _ACCESS_LIST, follow_symlinks=False))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return False
        raise


def is_private(gid: int) -> bool:
    """Whether nobody but root and this user is in a group: root's, the one that a user has alone, one of the system's own.

    Our own group may be one of many users, such as `users`, who need not be listed as its members where it is their
    first one: so it is private only if it is called as we are and lists nobody else, or if nobody named it at all.
    """
    import grp  # only where a group may write: seldom
    import pwd

    try:
        group = grp.getgrgid(gid)
    except KeyError:  # as in a container that is told a number
        return gid in (0, os.getegid())
    own = ""
    with contextlib.suppress(KeyError):
        own = pwd.getpwuid(os.geteuid()).pw_name
    ours = gid == 0 or (gid == os.getegid() and group.gr_name == own)
    if not ours and gid >= _FIRST_OF_PEOPLE:
        return False
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    return all(_is_of_the_system(name) for name in members - ({own} if ours else set()))


def _is_of_the_system(name: str) -> bool:
    import pwd

    try:
        return name in _OF_THE_SYSTEM and pwd.getpwnam(name).pw_uid < _FIRST_OF_PEOPLE
    except KeyError:
        return False


def _is_shared(folder: str) -> bool:
    return bool(os.lstat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _links_are_protected() -> bool:
    """Whether nobody can give a second name to a file that they may not write (proc_sys_fs(5))."""
    try:
        with open("/proc/sys/fs/protected_hardlinks", "rb") as file:
            return file.read(1) == b"1"
    except OSError:
        return False
