"""Opening a path beneath a folder that is held by descriptor, without a look at anything outside it.

Always true: the kernel opens each part beneath the descriptor (openat2 with RESOLVE_BENEATH), and what a link
names outside is only compared as text with the folder's own names. So nobody waits for a mount out there that
does not answer, none is made by a look, and what exists there cannot be told from what does not. The other side:
a name of the folder that leads through a link outside, and that is not among its names, is outside.

Whatever lies in the folder, a search is over when its budget is spent: links can be laid so that one short path
leads through a hundred thousand names, and the thread that follows them serves everybody.
"""

import errno
import os
import stat
from collections.abc import Sequence
from time import monotonic, thread_time
from typing import Final

from broker.kernel import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2

_BENEATH: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_TRIES: Final = 8
"""openat2(2): with `..` in the path, a rename elsewhere may answer EAGAIN; then it may be tried again."""
_LINKS: Final = 40  # path_resolution(7)

SECONDS = 0.25
"""The most processor time that the paths of one command may take together: the broker answers nobody else meanwhile."""

STEPS = 32_768
"""The most opens and names on the way, of all paths of one command."""

WAIT_S = 2.0
"""As `SECONDS`, with all that the machine did meanwhile, and with the disk's time: a busy machine makes no search too long."""

STEPS_ALONE = 512
"""As `STEPS`, for one path that is no command's: a few milliseconds of the warden's, which all runs share."""


class SpentError(OSError):
    """A budget is spent. To whom that is an error like others, it is the one for too many links (ELOOP)."""

    def __init__(self) -> None:
        super().__init__(errno.ELOOP, os.strerror(errno.ELOOP))


class Budget:
    """What a search in this thread may still cost, in steps and in time from now on. Once spent it stays spent."""

    __slots__ = ("_deadline", "_steps", "_work_until")

    def __init__(self, steps: int | None = None) -> None:
        self._steps = STEPS if steps is None else steps
        self._work_until = thread_time() + SECONDS
        self._deadline = monotonic() + WAIT_S

    def spend(self, steps: int) -> None:
        """Take `steps` off; 0 looks at the time alone. Raises SpentError if that is more than there was."""
        self._steps -= steps
        if self._steps < 0 or thread_time() > self._work_until or monotonic() > self._deadline:
            raise SpentError


def components(path: str) -> list[str]:
    """Return the names that a path is made of."""
    return [part for part in path.split("/") if part not in ("", ".")]


def inside(path: Sequence[str], names: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the components below a folder of an absolute path, judged by the folder's names; None if outside."""
    for name in names:
        if list(path[: len(name)]) == list(name):
            return list(path[len(name) :])
    return None


def open_beneath(
    folder_fd: int, relative: str, flags: int, names: Sequence[Sequence[str]], budget: Budget | None = None
) -> int:
    """Open a path beneath a folder; the caller closes. Raises OSError: EXDEV says that the path leads out.

    `names` are the components of the folder's absolute paths, its real one first: a link that leaves the folder is
    followed if it comes back by one of them. SpentError says that `budget` does not reach; without one, the path has
    `STEPS_ALONE`.
    """
    if budget is None:
        budget = Budget(STEPS_ALONE)
    for _ in range(_TRIES):
        budget.spend(1)
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
        walk = _Walk(folder_fd, names, budget)
        place = walk.through(components(relative), last=not flags & os.O_NOFOLLOW)
    except SpentError:
        raise
    except OSError:  # on the way back from outside, missing or not is nobody's business
        place = None
    if place is None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return openat2(folder_fd, "/".join(place) or ".", flags, _BENEATH)


class _Walk:
    """Takes the links out of one path. What lies above the folder is known by the folder's real name alone.

    Holds the place that it is at by a descriptor, so that a step costs the same at any depth. `..` never opens
    anything: where a folder lies now need not be where it was found.
    """

    def __init__(self, folder_fd: int, names: Sequence[Sequence[str]], budget: Budget) -> None:
        self._folder_fd = folder_fd
        self._names = names
        self._budget = budget
        self._links = 0
        self._above = 0  # how many folders above the root the walk is at
        self._place: list[str] = []
        self._fd = -1  # open on `_place`; -1 where nobody has stepped on from it, and then it is a folder

    def through(self, waiting: list[str], *, last: bool) -> list[str] | None:
        """Return the components without links; None if they lead out. `last`: follow a link at the end, too."""
        try:
            return self._through(waiting[::-1], last=last)
        finally:
            self._hold(-1)

    def _through(self, waiting: list[str], *, last: bool) -> list[str] | None:
        while waiting:
            self._budget.spend(1)
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
        if self._fd >= 0:
            if not stat.S_ISDIR(os.fstat(self._fd).st_mode):  # a file has no `..`
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self._hold(-1)
        if self._place:
            self._place.pop()
        else:
            self._above = min(self._above + 1, len(self._names[0]))

    def _step(self, part: str, waiting: list[str], *, follow: bool) -> bool:
        """Go one name further down; a link's target is put in front of what is `waiting`."""
        fd = _open_without_links(self._here(), part, os.O_NOFOLLOW)
        try:
            target = os.readlink("", dir_fd=fd) if follow else ""
        except OSError as error:  # no link: readlink(2) has EINVAL, and ENOENT for an empty name
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                os.close(fd)
                raise
            target = ""
        if not target:
            self._hold(fd)
            self._place.append(part)
            return True
        os.close(fd)
        self._links += 1
        if self._links > _LINKS:
            return False
        parts: list[str] | None = components(target)
        if target.startswith("/"):
            parts, self._place = inside(components(target), self._names), []
            self._hold(-1)
        waiting += reversed(parts or [])
        return parts is not None

    def _here(self) -> int:
        """Return a descriptor of the place that the walk is at, which stays the walk's."""
        if not self._place:
            return self._folder_fd
        if self._fd < 0:
            self._budget.spend(len(self._place))
            self._fd = _open_without_links(self._folder_fd, "/".join(self._place), os.O_DIRECTORY)
        return self._fd

    def _hold(self, fd: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd


def _open_without_links(folder_fd: int, relative: str, flags: int) -> int:
    return openat2(folder_fd, relative, os.O_PATH | flags, _BENEATH | RESOLVE_NO_SYMLINKS)
