"""Opening a path beneath a folder that is held by descriptor, without a look at anything outside it.

Always true: the kernel opens each part beneath the descriptor (openat2 with RESOLVE_BENEATH), and what a link
names outside is only compared as text with the folder's own names. So nobody waits for a mount out there that
does not answer, none is made by a look, and what exists there cannot be told from what does not. The other side:
a name of the folder that leads through a link outside, and that is not among its names, is outside.
"""

import errno
import os
from collections.abc import Sequence
from typing import Final

from broker.kernel import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2

_BENEATH: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_TRIES: Final = 8
"""openat2(2): with `..` in the path, a rename elsewhere may answer EAGAIN; then it may be tried again."""
_LINKS: Final = 40  # path_resolution(7)


def components(path: str) -> list[str]:
    """Return the names that a path is made of."""
    return [part for part in path.split("/") if part not in ("", ".")]


def inside(path: Sequence[str], names: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the components below a folder of an absolute path, judged by the folder's names; None if outside."""
    for name in names:
        if list(path[: len(name)]) == list(name):
            return list(path[len(name) :])
    return None


def open_beneath(folder_fd: int, relative: str, flags: int, names: Sequence[Sequence[str]]) -> int:
    """Open a path beneath a folder; the caller closes. Raises OSError: EXDEV says that the path leads out.

    `names` are the components of the folder's absolute paths, its real one first: a link that leaves the folder is
    followed if it comes back by one of them.
    """
    for _ in range(_TRIES):
        try:
            return openat2(folder_fd, relative or ".", flags, _BENEATH)
        except OSError as error:
            if error.errno == errno.EXDEV:
                break
            if error.errno != errno.EAGAIN:
                raise
    else:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    try:
        place = _Walk(folder_fd, names).through(components(relative), last=not flags & os.O_NOFOLLOW)
    except OSError:  # on the way back from outside, missing or not is nobody's business
        place = None
    if place is None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return openat2(folder_fd, "/".join(place) or ".", flags, _BENEATH)


class _Walk:
    """Takes the links out of one path. What lies above the folder is known by the folder's real name alone."""

    def __init__(self, folder_fd: int, names: Sequence[Sequence[str]]) -> None:
        self._folder_fd = folder_fd
        self._names = names
        self._links = 0
        self._above = 0  # how many folders above the root the walk is at
        self._place: list[str] = []

    def through(self, waiting: list[str], *, last: bool) -> list[str] | None:
        """Return the components without links; None if they lead out. `last`: follow a link at the end, too."""
        waiting = waiting[::-1]
        while waiting:
            part = waiting.pop()
            if part == "..":
                self._climb()
            elif self._above:
                if part != self._names[0][-self._above]:
                    return None
                self._above -= 1
            elif not self._step(part, waiting, follow=last or bool(waiting)):
                return None
        return None if self._above else self._place

    def _climb(self) -> None:
        os.close(self._open("/".join(self._place), os.O_DIRECTORY))  # a file has no `..`
        if self._place:
            self._place.pop()
        else:
            self._above = min(self._above + 1, len(self._names[0]))

    def _step(self, part: str, waiting: list[str], *, follow: bool) -> bool:
        """Go one name further down; a link's target is put in front of what is `waiting`."""
        fd = self._open("/".join((*self._place, part)), os.O_NOFOLLOW)
        try:
            target = os.readlink("", dir_fd=fd) if follow else ""
        except OSError as error:  # no link: readlink(2) has EINVAL, and ENOENT for an empty name
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            target = ""
        finally:
            os.close(fd)
        if not target:
            self._place.append(part)
            return True
        self._links += 1
        if self._links > _LINKS:
            return False
        parts: list[str] | None = components(target)
        if target.startswith("/"):
            parts, self._place = inside(components(target), self._names), []
        waiting += reversed(parts or [])
        return parts is not None

    def _open(self, relative: str, flags: int) -> int:
        return openat2(self._folder_fd, relative or ".", os.O_PATH | flags, _BENEATH | RESOLVE_NO_SYMLINKS)
