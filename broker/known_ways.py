"""Opening a path without a step into a mount where nothing can be that is looked for: such a mount may never answer.

Always true: where the kernel's cache knows all of the path, no file system is asked; else names and links are gone
through one by one, and a mount is entered only on the way to a place that is known. The other side: a path that
leads through another mount, even if back again, is found in the cache or not at all.
"""

import errno
import os
from collections.abc import Callable, Iterable
from typing import Final

from broker import kernel
from broker.beneath import components
from broker.kernel import AT_FDCWD, RESOLVE_CACHED, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV

NOT_CACHED: Final = (errno.EAGAIN, errno.EINVAL)
"""What RESOLVE_CACHED answers where the cache does not tell, and on kernels that do not know it (openat2(2))."""
_STEPS: Final = 512
"""The most names and links of one path."""
_LINKS: Final = 40  # path_resolution(7)


def ways_to(places: Iterable[str]) -> frozenset[str]:
    """Return the folders on the way to each of the absolute paths `places`, and the places themselves."""
    ways: set[str] = set()
    for place in places:
        names = components(place)
        ways.update("/".join(names[:count]) for count in range(1, len(names) + 1))
    return frozenset(ways)


def open_known(path: str, ways: Callable[[], frozenset[str]]) -> int:
    """Open an absolute path, links followed, as an O_PATH descriptor; the caller closes. `ways` is asked if they are needed.

    Raises OSError: EACCES if it leads through a mount that is not on `ways`, ELOOP if it takes too many steps.
    """
    try:
        return kernel.openat2(AT_FDCWD, path, os.O_PATH, RESOLVE_NO_MAGICLINKS | RESOLVE_CACHED)
    except OSError as error:
        if error.errno not in NOT_CACHED:
            raise
    walk = _Walk(ways())
    try:
        return walk.to(path)
    finally:
        walk.close()


def on_known_mount(path: str, ways: frozenset[str]) -> bool:
    """Return whether the file `path`, absolute and without links, is on the root's mount or one that is on `ways`.

    An empty path is no file's, and as good.
    """
    names = components(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        points = [components(_unescaped(line.split(" ", 5)[4])) for line in mounts]
    point = max((point for point in points if names[: len(point)] == point), key=len, default=[])
    return not point or "/".join(point) in ways


def _unescaped(name: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(escape, character)
    return name


class _Walk:
    """Holds the folders from the root to where it is."""

    def __init__(self, ways: frozenset[str]) -> None:
        self._ways = ways
        self._names: list[str] = []
        self._fds = [os.open("/", os.O_PATH | os.O_CLOEXEC)]

    def to(self, path: str) -> int:
        waiting = components(path)[::-1]
        links = steps = 0
        while waiting:
            target = self._step(waiting.pop())
            steps += 1
            links += target is not None
            if links > _LINKS or steps > _STEPS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target is None:
                continue
            if target.startswith("/"):
                self._climb(0)
            waiting += reversed(components(target))
        return os.dup(self._fds[-1])

    def close(self) -> None:
        self._climb(0)
        os.close(self._fds.pop())

    def _step(self, name: str) -> str | None:
        """Go one name further. Returns the target if it is a link's, and stays then."""
        if name == "..":
            self._climb(max(0, len(self._names) - 1))
            return None
        fd = self._open(name)
        try:
            target = os.readlink("", dir_fd=fd)
        except OSError as error:  # no link: readlink(2) has EINVAL, and ENOENT for an empty name
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                os.close(fd)
                raise
            self._names.append(name)
            self._fds.append(fd)
            return None
        os.close(fd)
        return target

    def _open(self, name: str) -> int:
        how = RESOLVE_NO_MAGICLINKS
        if "/".join((*self._names, name)) not in self._ways:
            how |= RESOLVE_NO_XDEV
        try:
            return kernel.openat2(self._fds[-1], name, os.O_PATH | os.O_NOFOLLOW, how)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
            raise

    def _climb(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._fds.pop())
