"""Changes of mode, owner, times and attributes, made for a confined program by the broker, in its own places only.

Landlock does not look at these calls, so a program that may write in the jail could also change every other
file of its user. Its filter therefore asks instead of calling, and this module does what was asked.

Always true: the file is opened first, and changed through that descriptor only if the kernel says that it
lies in one of the places that this run may write; what was asked is read from the asker's memory once; no
file gets a set-id bit; the thread has no more rights than the program. A question that cannot be understood
is answered EPERM.
"""

import errno
import os
import stat
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from broker import kernel
from broker.asker import PATH_MAX, Asker, check_inside
from broker.kernel import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Question
from broker.syscalls import NUMBER

_XATTR_NAME_MAX: Final = 255  # linux/limits.h, as the one below
_XATTR_SIZE_MAX: Final = 65_536

_TIMESPECS: Final = struct.Struct("=4q")
_UTIMBUF: Final = struct.Struct("=2q")


def _signed(value: int) -> int:
    """Return what the kernel reads as an int."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


class Change(NamedTuple):
    """What a call means: on which file (`path` None: the descriptor itself), and what to do with it by
    its path.
    """

    dir_fd: int
    path: int | None
    flags: int
    make: Callable[[str], None]


def _mode_change(mode: int) -> Callable[[str], None]:
    def make(path: str) -> None:
        folder = stat.S_ISDIR(os.stat(path, follow_symlinks=True).st_mode)
        if mode & stat.S_ISUID or (mode & stat.S_ISGID and not folder):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        os.chmod(path, mode & 0o7777)

    return make


def _owner_change(uid: int, gid: int) -> Callable[[str], None]:
    return lambda path: os.chown(path, _signed(uid), _signed(gid))


def _times_change(times: bytes | None) -> Callable[[str], None]:
    return lambda path: kernel.set_times(path, times, follow=True)


def _timespecs(asker: Asker, address: int) -> bytes | None:
    return asker.read_exactly(address, _TIMESPECS.size) if address else None


def _timevals(asker: Asker, address: int) -> bytes | None:
    if not address:
        return None
    a_s, a_us, m_s, m_us = _TIMESPECS.unpack(asker.read_exactly(address, _TIMESPECS.size))
    if not (0 <= a_us < 1_000_000 and 0 <= m_us < 1_000_000):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return _TIMESPECS.pack(a_s, a_us * 1000, m_s, m_us * 1000)


def _utimbuf(asker: Asker, address: int) -> bytes | None:
    if not address:
        return None
    accessed_s, modified_s = _UTIMBUF.unpack(asker.read_exactly(address, _UTIMBUF.size))
    return _TIMESPECS.pack(accessed_s, 0, modified_s, 0)


def _attribute(asker: Asker, arguments: tuple[int, ...]) -> Callable[[str], None]:
    name = asker.text(arguments[1], _XATTR_NAME_MAX + 1)
    size, flags = arguments[3], _signed(arguments[4])
    if size > _XATTR_SIZE_MAX:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    value = asker.read_exactly(arguments[2], size) if size else b""

    def make(path: str) -> None:
        # an access list can give a group the right to run a set-id file, and keeps the bit
        if name.startswith(b"system.posix_acl") and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        os.setxattr(path, name, value, flags)

    return make


def _no_attribute(asker: Asker, arguments: tuple[int, ...]) -> Callable[[str], None]:
    name = asker.text(arguments[1], _XATTR_NAME_MAX + 1)
    return lambda path: os.removexattr(path, name)


_Understand = Callable[[Asker, tuple[int, ...]], Change]

_LINK: Final = AT_SYMLINK_NOFOLLOW
_UNDERSTOOD: Final[dict[str, _Understand]] = {
    "chmod": lambda _, a: Change(AT_FDCWD, a[0], 0, _mode_change(a[1])),
    "fchmod": lambda _, a: Change(_signed(a[0]), None, 0, _mode_change(a[1])),
    "fchmodat": lambda _, a: Change(_signed(a[0]), a[1], 0, _mode_change(a[2])),
    "fchmodat2": lambda _, a: Change(_signed(a[0]), a[1], a[3], _mode_change(a[2])),
    "chown": lambda _, a: Change(AT_FDCWD, a[0], 0, _owner_change(a[1], a[2])),
    "lchown": lambda _, a: Change(AT_FDCWD, a[0], _LINK, _owner_change(a[1], a[2])),
    "fchown": lambda _, a: Change(_signed(a[0]), None, 0, _owner_change(a[1], a[2])),
    "fchownat": lambda _, a: Change(_signed(a[0]), a[1], a[4], _owner_change(a[2], a[3])),
    "utime": lambda k, a: Change(AT_FDCWD, a[0], 0, _times_change(_utimbuf(k, a[1]))),
    "utimes": lambda k, a: Change(AT_FDCWD, a[0], 0, _times_change(_timevals(k, a[1]))),
    "futimesat": lambda k, a: Change(_signed(a[0]), a[1] or None, 0, _times_change(_timevals(k, a[2]))),
    "utimensat": lambda k, a: Change(_signed(a[0]), a[1] or None, a[3], _times_change(_timespecs(k, a[2]))),
    "setxattr": lambda k, a: Change(AT_FDCWD, a[0], 0, _attribute(k, a)),
    "lsetxattr": lambda k, a: Change(AT_FDCWD, a[0], _LINK, _attribute(k, a)),
    "fsetxattr": lambda k, a: Change(_signed(a[0]), None, 0, _attribute(k, a)),
    "removexattr": lambda k, a: Change(AT_FDCWD, a[0], 0, _no_attribute(k, a)),
    "lremovexattr": lambda k, a: Change(AT_FDCWD, a[0], _LINK, _no_attribute(k, a)),
    "fremovexattr": lambda k, a: Change(_signed(a[0]), None, 0, _no_attribute(k, a)),
}
"""The arguments of each call of `seccomp.METADATA_CALLS`, as its page in section 2 of the manual has them."""

_BY_NUMBER: Final = {NUMBER[name]: understand for name, understand in _UNDERSTOOD.items() if name in NUMBER}


def change(asker: Asker, question: Question, roots: tuple[str, ...]) -> None:
    """Do what `question` of `asker` means, if that lies in one of `roots` (real paths). Raises OSError."""
    try:
        _make(asker, question, roots)
    except (ValueError, KeyError, OverflowError):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None


def _make(asker: Asker, question: Question, roots: tuple[str, ...]) -> None:
    change = _BY_NUMBER[question.number](asker, question.arguments)
    path = b"" if change.path is None else asker.text(change.path, PATH_MAX)
    flags = change.flags | AT_EMPTY_PATH if change.path is None else change.flags
    target_fd = asker.open_in(change.dir_fd, path, flags, roots)
    try:
        own_path = f"/proc/self/fd/{target_fd}"
        check_inside(os.readlink(own_path), roots)
        change.make(own_path)
    finally:
        os.close(target_fd)
