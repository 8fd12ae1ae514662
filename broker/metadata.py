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
from broker.beneath import components, inside, open_beneath
from broker.kernel import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Question
from broker.syscalls import NUMBER

_PATH_MAX: Final = 4096  # linux/limits.h, as the two below
_XATTR_NAME_MAX: Final = 255
_XATTR_SIZE_MAX: Final = 65_536
_OWN_FDS: Final = ("/proc/self/fd/", "/dev/fd/", "/proc/thread-self/fd/")
"""How libraries name an open file: these lead to the asker's descriptors, not to ours."""

_NOT_CACHED: Final = (errno.EAGAIN, errno.EINVAL)
"""What RESOLVE_CACHED answers where the cache does not tell, and on kernels that do not know it (openat2(2))."""

_TIMESPECS: Final = struct.Struct("=4q")
_UTIMBUF: Final = struct.Struct("=2q")


def _signed(value: int) -> int:
    """Return what the kernel reads as an int."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _own(fd: int) -> str:
    return "cwd" if fd == AT_FDCWD else f"fd/{fd}"


def _how(flags: int) -> int:
    return os.O_PATH | (os.O_NOFOLLOW if flags & AT_SYMLINK_NOFOLLOW else 0)


def _open_beneath(root: str, relative: str, how: int, name: list[str]) -> int:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root_fd, relative, how, [name])
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None
        raise
    finally:
        os.close(root_fd)


class Asker:
    """The program that asked: its memory, its descriptors and its working directory."""

    def __init__(self, listener_fd: int, question: Question) -> None:
        self._listener_fd = listener_fd
        self._question = question
        self._place = f"/proc/{question.pid}"

    def read(self, address: int, size: int) -> bytes:
        """Return up to `size` bytes of memory. Raises OSError."""
        memory_fd = os.open(f"{self._place}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(memory_fd, size, address)
        finally:
            os.close(memory_fd)
        kernel.seccomp_waits(self._listener_fd, self._question)
        return data

    def read_exactly(self, address: int, size: int) -> bytes:
        """Return `size` bytes of memory. Raises OSError."""
        data = self.read(address, size)
        if len(data) < size:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    def text(self, address: int, limit: int) -> bytes:
        """Return the string at `address`. Raises OSError."""
        text, end, _ = self.read(address, limit).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return text

    def open(self, dir_fd: int, path: bytes, flags: int, *, resolve: int) -> int:
        """Open what the asker means, as an O_PATH descriptor of ours, by openat2's `resolve`. Raises OSError."""
        if not path:
            if not flags & AT_EMPTY_PATH:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            return self._open_own(dir_fd)
        name = os.fsdecode(path)
        for prefix in _OWN_FDS:
            if name.startswith(prefix) and name[len(prefix) :].isdecimal():
                return self._open_own(int(name[len(prefix) :]))
        base_fd = self._open_own(dir_fd)
        try:
            return kernel.openat2(base_fd, path, _how(flags), kernel.RESOLVE_NO_MAGICLINKS | resolve)
        finally:
            os.close(base_fd)

    def open_in(self, dir_fd: int, path: bytes, flags: int, roots: tuple[str, ...]) -> int:
        """Open what the asker means as `open` does, if that lies in one of `roots`: outside them only the kernel's
        cache is asked, so that a mount that does not answer cannot keep the thread from others. Raises OSError.
        """
        try:
            return self.open(dir_fd, path, flags, resolve=kernel.RESOLVE_CACHED)
        except OSError as error:
            if error.errno not in _NOT_CACHED:
                raise
        meant = os.path.join(os.readlink(f"{self._place}/{_own(dir_fd)}"), os.fsdecode(path))
        kernel.seccomp_waits(self._listener_fd, self._question)
        for root in roots:
            name = components(root)
            relative = inside(components(meant), [name])
            if relative is not None:
                return _open_beneath(root, "/".join(relative), _how(flags), name)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def _open_own(self, fd: int) -> int:
        opened = os.open(f"{self._place}/{_own(fd)}", os.O_PATH | os.O_CLOEXEC)
        try:
            kernel.seccomp_waits(self._listener_fd, self._question)
        except OSError:
            os.close(opened)
            raise
        return opened


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


def change(listener_fd: int, question: Question, roots: tuple[str, ...]) -> None:
    """Do what `question` asks for, if that lies in one of `roots` (real paths). Raises OSError."""
    try:
        _make(listener_fd, question, roots)
    except (ValueError, KeyError, OverflowError):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None


def _make(listener_fd: int, question: Question, roots: tuple[str, ...]) -> None:
    asker = Asker(listener_fd, question)
    change = _BY_NUMBER[question.number](asker, question.arguments)
    path = b"" if change.path is None else asker.text(change.path, _PATH_MAX)
    flags = change.flags | AT_EMPTY_PATH if change.path is None else change.flags
    target_fd = asker.open_in(change.dir_fd, path, flags, roots)
    try:
        own_path = f"/proc/self/fd/{target_fd}"
        _check_inside(os.readlink(own_path), roots)
        change.make(own_path)
    finally:
        os.close(target_fd)


def _check_inside(real: str, roots: tuple[str, ...]) -> None:
    """Refuse a file whose path, as the kernel knows it now, is not in a place that the run may write."""
    if not any(real == root or real.startswith(f"{root}/") for root in roots):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def identity_at(listener_fd: int, question: Question, address: int, *, patient: bool) -> tuple[int, int]:
    """Return device and inode of the file that the asker's path at `address` leads to. Raises OSError.

    Unless `patient`, BlockingIOError says that only a file system can tell, which may take its time.
    """
    asker = Asker(listener_fd, question)
    path = asker.text(address, _PATH_MAX)
    try:
        fd = asker.open(AT_FDCWD, path, 0, resolve=0 if patient else kernel.RESOLVE_CACHED)
    except OSError as error:
        if not patient and error.errno in _NOT_CACHED:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        raise
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return status.st_dev, status.st_ino
