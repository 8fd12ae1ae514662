"""The one directory that commands work in, held by descriptor.

What always holds:
- a directory or file counts as inside because the kernel opened it beneath the jail's descriptor (openat2
  with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS), never because two strings look alike;
- nothing outside is looked at, once it is open: an absolute path is inside if it begins with a name that the root
  had at the start, and is then opened beneath the descriptor like any other;
- text that climbs above the root is refused even if it would come back: that tells what lies outside;
- a failure that is not understood refuses;
- all looks for one command have one budget of steps and time, whatever lies in the jail: what needs more is refused;
- no reason names a path, so none names one outside the jail.

A check is a verdict on this moment. Links may change afterwards: then a command's rights in the kernel hold.
A hard link is a name like any other: a file that has a name in the jail is in the jail.
"""

import errno
import os
import stat
from types import TracebackType

from broker.beneath import Budget, SpentError, components, inside, open_beneath
from broker.kernel import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, openat2
from broker.refusal import CwdEscape, PolicyDenied, StartupError
from protocol.messages import PATH_CHARACTERS

_BENEATH = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_WAITED_FOR = (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK)
_UPWARDS = "leads out of the jail by `..`; only paths beneath the jail's root are allowed"
_ABSOLUTE = "is absolute and outside the jail; use a relative path"
_LINK = "leads out of the jail through a link; only what lies beneath the jail's root is allowed"
_SPENT = (
    "is part of too long a search: what all paths of a command lead through is bounded, in number and time; "
    "name fewer files, or by shorter ways"
)
_WHY = {
    errno.EXDEV: _LINK,
    errno.ELOOP: "goes through too many links, or through one that the kernel makes up; name the file itself",
    errno.EACCES: "goes through a folder that may not be searched",
    errno.ENAMETOOLONG: "is longer than a path may be",
}


class OutsideError(Exception):
    """A path does not lie beneath the jail, or nobody can tell. The message continues "the path …"."""


class Located:
    """A working directory beneath the jail.

    `fd` is an O_PATH descriptor for fchdir(2), closed by `close`. `relative` is the path from the root, with
    links resolved: "" for the root itself. `budget` is what the command's paths may still cost, this one off.
    """

    __slots__ = ("budget", "fd", "relative")

    def __init__(self, fd: int, relative: str, budget: Budget) -> None:
        self.fd = fd
        self.relative = relative
        self.budget = budget

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> "Located":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Jail:
    """The jail: `root` as given, made absolute; `real` with links resolved; `fd`, an O_PATH descriptor."""

    __slots__ = ("_known_as", "fd", "identity", "real", "root")

    def __init__(self, root: str) -> None:
        """Open `root`. Raises StartupError if it is missing, no directory, `/`, or cannot be read."""
        try:
            self.fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise StartupError(f"jail {root!r}: {_startup_reason(error)}") from None
        try:
            self.root = os.path.abspath(root)
            self.real = os.path.realpath(root)
            self.identity = _identity(os.fstat(self.fd))
            self._check_root()
            self._known_as = [components(name) for name in (self.real, self.root, *self._logical(root))]
        except BaseException:
            os.close(self.fd)
            raise

    def _check_root(self) -> None:
        problem = ""
        try:
            if self.identity == _identity(os.stat("/")):
                problem = "is the whole file system; name a directory with one project"
            elif not os.access(".", os.R_OK | os.X_OK, dir_fd=self.fd):
                problem = "cannot be read"
            elif _identity(os.stat(self.real)) != self.identity:
                problem = "changed while it was opened"
            else:
                os.close(openat2(self.fd, ".", os.O_PATH, _BENEATH))
        except OSError as error:
            problem = (
                f"cannot be opened beneath a descriptor: {error.strerror} (Linux 5.6 or later is needed)"
            )
        if problem:
            raise StartupError(f"jail {self.root!r}: {problem}")

    def _logical(self, root: str) -> list[str]:
        """Return the names that a shell knows the root by, which went there through a link (PWD in environ(7))."""
        shell = os.environ.get("PWD", "")
        names = (shell, os.path.normpath(os.path.join(shell, root)))
        return [name for name in names if os.path.isabs(name) and self._is_root(name)]

    def _is_root(self, name: str) -> bool:
        try:
            return _identity(os.stat(name)) == self.identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def locate(self, untrusted_cwd: str | None, budget: Budget | None = None) -> Located:
        """Return the working directory of a call; None or "" is the root. Raises CwdEscape.

        With it a command's budget begins, unless it has one.
        """
        budget = budget or Budget()
        if not untrusted_cwd:
            return Located(os.dup(self.fd), "", budget)
        if len(untrusted_cwd) > PATH_CHARACTERS or "\0" in untrusted_cwd:
            raise CwdEscape("cwd is no path")
        try:
            return self._locate(self._parts(untrusted_cwd, ""), budget)
        except OutsideError as error:
            raise CwdEscape(f"cwd {error}") from None
        except UnicodeEncodeError:
            raise CwdEscape("cwd is not valid Unicode text") from None

    def _locate(self, parts: list[str], budget: Budget) -> Located:
        try:
            fd = self.open("/".join(parts), os.O_PATH | os.O_DIRECTORY, budget)
        except FileNotFoundError:
            raise OutsideError(
                "does not exist; name a directory beneath the jail's root, or leave cwd out"
            ) from None
        except NotADirectoryError:
            raise OutsideError("is not a directory; name a directory beneath the jail's root") from None
        except OSError as error:
            raise OutsideError(_why(error)) from None
        try:
            return Located(fd, self._directory(fd), budget)
        except BaseException:
            os.close(fd)
            raise

    def _directory(self, fd: int) -> str:
        """Return the path from the root of an open directory that can be read and searched."""
        relative = self.beneath(_real_path(fd))
        if relative is None:
            raise OutsideError(_LINK)
        if not os.access(".", os.R_OK | os.X_OK, dir_fd=fd):
            raise OutsideError("is a directory that cannot be read")
        return relative

    def check(self, word: str, located: Located) -> str:
        """Return the path from the root that `word` means in `located`. Raises PolicyDenied if it leads out.

        What does not exist is judged by its deepest ancestor that does. Devices and named pipes are refused:
        a command that opens one waits for ever, or reads what no file of the jail holds.
        """
        try:
            parts = self._parts(word, located.relative)
            os.close(self._deepest(parts, located.budget)[0])
        except OutsideError as error:
            raise PolicyDenied(f"the path {error}") from None
        return "/".join(parts)

    def end(self, word: str, located: Located) -> str:
        """Return the path from the root, links and `..` resolved, at which `word` ends: "" for the root itself.

        Raises PolicyDenied as `check` does, and for a link that leads to nothing: what a program would make there
        has no name yet. What does not exist has its name below the deepest folder that does.
        """
        try:
            parts = self._parts(word, located.relative)
            fd, depth = self._deepest(parts, located.budget)
            try:
                above = self.beneath(_real_path(fd))
                if above is None:
                    raise OutsideError(_LINK)
                if depth < len(parts) and _is_there(parts[depth], fd):
                    raise OutsideError("goes through a link to nothing; name the file itself")
            finally:
                os.close(fd)
        except OutsideError as error:
            raise PolicyDenied(f"the path {error}") from None
        return "/".join(filter(None, (above, *parts[depth:])))

    def _deepest(self, parts: list[str], budget: Budget) -> tuple[int, int]:
        """Open the deepest of `parts` that exists; return its descriptor and how many parts lead to it."""
        fd, depth = self._open_if_there(parts, budget), len(parts)
        if fd is None:
            fd, depth = self._longest(parts, budget)
            if ".." in parts[depth:]:
                os.close(fd)
                raise OutsideError("has `..` behind a folder that does not exist")
        if stat.S_IFMT(os.fstat(fd).st_mode) in _WAITED_FOR:
            os.close(fd)
            raise OutsideError("is a device or a named pipe, not a file")
        return fd, depth

    def _longest(self, parts: list[str], budget: Budget) -> tuple[int, int]:
        """Open the longest beginning of `parts` that exists; all of them do not.

        From the end in growing strides, then by halves: a look for each of two thousand parts is too many.
        """
        missing, stride = len(parts), 1
        while (fd := self._open_if_there(parts[: (depth := max(len(parts) - stride, 0))], budget)) is None:
            missing, stride = depth, stride * 2
        try:
            while missing - depth > 1:
                middle = (depth + missing) // 2
                longer = self._open_if_there(parts[:middle], budget)
                if longer is None:
                    missing = middle
                else:
                    os.close(fd)
                    fd, depth = longer, middle
        except BaseException:
            os.close(fd)
            raise
        return fd, depth

    def _open_if_there(self, parts: list[str], budget: Budget) -> int | None:
        try:
            return open_beneath(self.fd, "/".join(parts), os.O_PATH, self._known_as, budget)
        except OSError as error:
            if error.errno in _MISSING and parts:
                return None
            raise OutsideError(_why(error)) from None

    def open(self, relative: str, flags: int, budget: Budget) -> int:
        """Open a path from the root, beneath it only; the caller closes. O_CLOEXEC is set. Raises OSError.

        A link with an absolute target, which RESOLVE_BENEATH refuses, is followed if it leads back inside.
        EXDEV says that the path leads out, SpentError that nobody knows and nothing more may be looked for.
        """
        return open_beneath(self.fd, relative, flags, self._known_as, budget)

    def _parts(self, path: str, base: str) -> list[str]:
        """Return the components of `path` from the root. Raises OutsideError if its text leaves the root."""
        absolute = path.startswith("/")
        parts = self._absolute_parts(path) if absolute else components(base) + components(path)
        if ".." in parts:
            _check_climbs(parts)
        return parts

    def _absolute_parts(self, path: str) -> list[str]:
        """Decide by the text: a look at a path outside could wait for ever, for a mount that does not answer."""
        parts = inside(components(path), self._known_as)
        if parts is None:
            raise OutsideError(_ABSOLUTE)
        return parts

    def beneath(self, real: str) -> str | None:
        """Return the path from the root of an absolute path without links, or None if outside."""
        if real == self.real:
            return ""
        return real[len(self.real) + 1 :] if real.startswith(self.real + "/") else None

    def contains(self, path: str) -> bool:
        """Whether `path` lies beneath the root, links resolved, by whatever name. It need not exist yet.

        For start-up. Compares device and inode of each folder above: a second mount of the jail counts too.
        """
        folder = os.path.realpath(path)
        while True:
            try:
                if _identity(os.stat(folder)) == self.identity:
                    return True
            except OSError:
                if self.beneath(folder) is not None:
                    return True
            if folder == "/":
                return False
            folder = os.path.dirname(folder)


def _check_climbs(parts: list[str]) -> None:
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise OutsideError(_UPWARDS)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_there(name: str, folder_fd: int) -> bool:
    """Whether a folder has an entry `name`, wherever that leads."""
    try:
        os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in _MISSING:
            return False
        raise OutsideError(_why(error)) from None
    return True


def _real_path(fd: int) -> str:
    """Return the path of an open file as the kernel knows it (proc(5), /proc/pid/fd)."""
    return os.readlink(f"/proc/self/fd/{fd}")


def _why(error: OSError) -> str:
    if isinstance(error, SpentError):
        return _SPENT
    return _WHY.get(error.errno or 0, f"cannot be checked ({os.strerror(error.errno or 0)})")


def _startup_reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist; HTMCP_JAIL_ROOT or [jail] root names a folder that does"
    if isinstance(error, NotADirectoryError):
        return "is not a directory"
    return error.strerror if isinstance(error, OSError) and error.strerror else "is no path"
