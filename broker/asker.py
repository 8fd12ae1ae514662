"""The program that asks: what its question's pointers and descriptors mean, read from its memory and from /proc.

Always true: every method may wait, as long as others of the asker's threads hold its memory map: for threads
aside, never for one that others need. What was found is given back only if the asker still waited for its answer
then, so that its number was its own. Paths are compared as text before anything is opened; no file system but
those of the known places is asked. Memory that is a file of another mount is read if it is there, and not
fetched: a request that such a mount has taken and never answers cannot even be killed. Between that look and the
reading a program of several threads can put such a file in the place of other memory.
"""

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker import kernel
from broker.beneath import components, inside, open_beneath
from broker.kernel import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Question
from broker.known_ways import NOT_CACHED, on_known_mount

PATH_MAX: Final = 4096  # linux/limits.h
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PAGE_IS_THERE: Final = 3 << 62
"""linux: Documentation/admin-guide/mm/pagemap.rst: present, or in swap."""
_MAPS_BYTES: Final = 1024 * 1024
"""So much of a program's /proc/PID/maps is looked through for the mapping that is meant: some 10,000 of them."""
_OWN_FDS: Final = ("/proc/self/fd/", "/dev/fd/", "/proc/thread-self/fd/")
"""How libraries name an open file: these lead to the asker's descriptors, not to ours."""


class Asker:
    """The thread that asked `question` at `listener_fd`. `ways`: the folders on the way to known places."""

    def __init__(self, listener_fd: int, question: Question, ways: Callable[[], frozenset[str]]) -> None:
        self._listener_fd = listener_fd
        self._question = question
        self._ways = ways
        self._place = f"/proc/{question.pid}"

    def read_exactly(self, address: int, size: int) -> bytes:
        """Return `size` bytes of memory. Raises OSError."""
        self._check_there(address, size)
        data = self._piece("mem", address, size)
        kernel.seccomp_waits(self._listener_fd, self._question)
        if len(data) < size:
            raise _no_memory()
        return data

    def text(self, address: int, limit: int) -> bytes:
        """Return the string at `address`. Raises OSError."""
        text = b""
        while len(text) < limit:
            begin = address + len(text)
            size = min(_PAGE - begin % _PAGE, limit - len(text))  # what comes after its end need not be there
            piece, end, _ = self.read_exactly(begin, size).partition(b"\0")
            text += piece
            if end:
                return text
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def _piece(self, name: str, offset: int, size: int) -> bytes:
        fd = os.open(f"{self._place}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    def _check_there(self, address: int, size: int) -> None:
        """Refuse memory that only a mount could give which is on no known way. Raises OSError."""
        first = address // _PAGE
        count = (address + size - 1) // _PAGE - first + 1
        pages = memoryview(self._piece("pagemap", first * 8, count * 8)).cast("Q")
        untouched = [number * _PAGE for number, page in enumerate(pages, first) if not page & _PAGE_IS_THERE]
        files = set(self._mapped_at(untouched)) - {""} if untouched else ()
        if not all(on_known_mount(path, self._ways()) for path in files):
            raise _no_memory()

    def _mapped_at(self, addresses: list[int]) -> Iterator[str]:
        """Yield for each of `addresses` the path of the file that is mapped there, empty if it is no file's. Raises OSError."""
        # read once, and searched: there can be many, and while Python goes through them no other call gets on
        with open(f"{self._place}/maps", "rb") as file:
            mappings = file.read(_MAPS_BYTES).split(b"\n")[:-1]
        for address in addresses:
            place = bisect_right(mappings, address, key=_begin)
            if not place:
                raise _no_memory()
            bounds, _, _, _, inode, path = (*mappings[place - 1].split(None, 5), b"")[:6]
            if address >= int(bounds.partition(b"-")[2], 16):
                raise _no_memory()
            yield os.fsdecode(path) if inode != b"0" else ""

    def meant(self, dir_fd: int, path: bytes) -> str:
        """Return the absolute path that `path` is for the asker, relative to `dir_fd`. Raises OSError."""
        own_fd = _own_fd(path)
        if own_fd is not None:
            return self._name_of(own_fd)
        name = os.fsdecode(path)
        return name if name.startswith("/") else os.path.join(self._name_of(dir_fd), name)

    def open_in(self, dir_fd: int, path: bytes, flags: int, roots: Iterable[str]) -> int:
        """Open what the asker means, if it lies in one of `roots` (real paths), as an O_PATH descriptor of ours.

        The kernel's cache may open what lies outside: the caller has to look where it is. Raises OSError.
        """
        if not path and not flags & AT_EMPTY_PATH:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        own_fd = _own_fd(path) if path else dir_fd
        if own_fd is not None:
            check_inside(self._name_of(own_fd), roots)
            return self._open_own(own_fd)
        meant = self.meant(dir_fd, path)
        how = os.O_PATH | (os.O_NOFOLLOW if flags & AT_SYMLINK_NOFOLLOW else 0)
        try:
            return kernel.openat2(AT_FDCWD, meant, how, kernel.RESOLVE_NO_MAGICLINKS | kernel.RESOLVE_CACHED)
        except OSError as error:
            if error.errno not in NOT_CACHED:
                raise
        return _open_in(meant, how, roots)

    def _name_of(self, fd: int) -> str:
        """Return the path of an open file, or of the working directory: readlink(2) in /proc, which asks no file system."""
        name = os.readlink(f"{self._place}/{_own(fd)}")
        kernel.seccomp_waits(self._listener_fd, self._question)
        if not name.startswith("/"):  # a pipe, a socket
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return name

    def _open_own(self, fd: int) -> int:
        opened = os.open(f"{self._place}/{_own(fd)}", os.O_PATH | os.O_CLOEXEC)
        try:
            kernel.seccomp_waits(self._listener_fd, self._question)
        except OSError:
            os.close(opened)
            raise
        return opened


def _begin(mapping: bytes) -> int:
    return int(mapping.partition(b"-")[0], 16)


def _no_memory() -> OSError:
    return OSError(errno.EFAULT, os.strerror(errno.EFAULT))


def check_inside(real: str, roots: Iterable[str]) -> None:
    """Refuse a file whose path, as the kernel knows it now, is in none of `roots`. Raises OSError."""
    if not any(real == root or real.startswith(f"{root}/") for root in roots):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _own(fd: int) -> str:
    return "cwd" if fd == AT_FDCWD else f"fd/{fd}"


def _own_fd(path: bytes) -> int | None:
    name = os.fsdecode(path)
    for prefix in _OWN_FDS:
        number = name.removeprefix(prefix)
        if number != name and number.isdecimal():
            return int(number)
    return None


def _open_in(path: str, how: int, roots: Iterable[str]) -> int:
    for root in roots:
        name = components(root)
        relative = inside(components(path), [name])
        if relative is not None:
            return _open_beneath(root, "/".join(relative), how, name)
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


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
