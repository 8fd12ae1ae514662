"""Landlock rulesets: which files a thread and its children may touch, as (path, rights) pairs, put into the kernel.

Always true: every right that this kernel knows is handled, so what no rule grants is denied; a path that
does not exist grants nothing. Numbers: linux/landlock.h. What Landlock does not see (chmod, stat, UDP ...)
is `seccomp`'s part.
"""

import _thread
import errno
import os
import stat
from typing import Final, NamedTuple

from broker import kernel
from broker.latch import Latch
from broker.owned_fd import OwnedFd

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))

READ: Final = READ_FILE | READ_DIR
WRITE: Final = (
    WRITE_FILE
    | TRUNCATE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
)
FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that make sense for what is no folder; the kernel refuses others there."""

_HANDLED_BITS: Final = ((5, 16), (3, 15), (2, 14), (1, 13))
"""From this ABI on, so many file rights exist."""
_NET_TCP: Final = 3  # LANDLOCK_ACCESS_NET_BIND_TCP | _CONNECT_TCP, ABI 4
_SCOPES: Final = 3  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | _SIGNAL, ABI 6
TCP_ABI: Final = 4
SCOPED_ABI: Final = 6
"""The first ABI that keeps signals within a domain. Below it, kill(-1) would reach everything of this
user.
"""


REACH_S: Final = 2.0
"""How long a place may take to be opened."""


class Rule(NamedTuple):
    """`rights` on `path`, and beneath it if it is a folder."""

    path: str
    rights: int


def handled_rights(abi: int) -> int:
    """Return every file right that Landlock of this ABI can deny."""
    return next((1 << bits) - 1 for least, bits in _HANDLED_BITS if abi >= least)


class Rulesets:
    """Makes rulesets. Descriptors of the places that rules name are opened once and shared by all
    rulesets.
    """

    def __init__(self, abi: int) -> None:
        self.abi = abi
        self._places: dict[str, tuple[OwnedFd, int] | None] = {}
        self._reached: dict[str, Latch] = {}

    def know(self, path: str, place_fd: int) -> None:
        """Let `path` in rules mean the folder that `place_fd` is open on, whatever has that name by now."""
        self._places[path] = (OwnedFd(os.dup(place_fd)), -1)

    def reach(self, path: str) -> None:
        """Open a place that may lie on a mount that does not answer: in a thread aside, one for each such place.

        Raises OSError if it takes longer than `REACH_S`, or no thread can be had.
        """
        if path in self._places:
            return
        own = Latch()
        reached = self._reached.setdefault(path, own)
        if reached is own:
            try:
                _thread.start_new_thread(self._open, (path, own))
            except RuntimeError:
                del self._reached[path]
                raise OSError(errno.EAGAIN, "no thread can be started") from None
        if not reached.wait(REACH_S):
            raise OSError(errno.ETIMEDOUT, "a place that its entry may read does not answer")

    def _open(self, path: str, reached: Latch) -> None:
        try:
            self._places[path] = _open_place(path)
        finally:
            del self._reached[path]
            reached.open()

    def build(self, rules: tuple[Rule, ...], *, network: bool) -> int:
        """Return a ruleset's descriptor, close-on-exec. Raises OSError."""
        tcp = 0 if network or self.abi < TCP_ABI else _NET_TCP
        scopes = _SCOPES if self.abi >= SCOPED_ABI else 0
        ruleset_fd = kernel.landlock_create_ruleset(self.abi, handled_rights(self.abi), tcp, scopes)
        try:
            for rule in rules:
                self._add(ruleset_fd, rule)
        except BaseException:
            os.close(ruleset_fd)
            raise
        return ruleset_fd

    def scope_only(self) -> int:
        """Return a ruleset that denies no file, but keeps signals and abstract sockets within. Raises
        OSError.

        Every ruleset denies moving and linking files from folder to folder unless a rule allows it
        (LANDLOCK_ACCESS_FS_REFER of landlock(7)), so this one has to: the layers of one call nest within it.
        """
        ruleset_fd = kernel.landlock_create_ruleset(self.abi, REFER, 0, _SCOPES)
        try:
            self._add(ruleset_fd, Rule("/", REFER))
        except BaseException:
            os.close(ruleset_fd)
            raise
        return ruleset_fd

    def _add(self, ruleset_fd: int, rule: Rule) -> None:
        if rule.path not in self._places:
            self._places[rule.path] = _open_place(rule.path)
        place = self._places[rule.path]
        if place is not None:
            owned, possible = place
            rights = rule.rights & possible & handled_rights(self.abi)
            if rights:
                kernel.landlock_add_path(ruleset_fd, owned.fd, rights)

    def add_once(self, ruleset_fd: int, rule: Rule) -> None:
        """Grant a place that comes and goes, such as one call's temporary folder. Raises OSError."""
        place = _open_place(rule.path)
        if place is None:
            raise FileNotFoundError(rule.path)
        kernel.landlock_add_path(ruleset_fd, place[0].fd, rule.rights & handled_rights(self.abi))


def _open_place(path: str) -> tuple[OwnedFd, int] | None:
    try:
        owned = OwnedFd(os.open(path, os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return None
    folder = stat.S_ISDIR(os.fstat(owned.fd).st_mode)
    return owned, -1 if folder else FILE_RIGHTS
