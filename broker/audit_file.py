"""The trail's file: opening it safely, locking it, and knowing what stands last in it.

Always true: the file is a regular one, opened without following a link; whoever appends holds the append
lock, and knows that the chain is whole from what it knew before up to the end; a torn last line is set aside,
never merged. Locks are byte ranges far behind the end that belong to the open file description (fcntl(2),
F_OFD_SETLK): they die with their process and work across PID namespaces, where a process id says nothing. It
never reads a file from its beginning.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

from broker.audit_record import (
    GENESIS,
    LINE_LIMIT_BYTES,
    BrokenChainError,
    check,
    check_first,
    check_torn,
    digest,
    seq_of,
)

LOCK_WAIT_S = 2.0
_LATER_WAIT_S = 0.05
"""Enough among healthy writers, each of which has it for less than a millisecond."""
TAIL_BYTES = 256 * 1024
"""How much of what stands last is verified when a trail is opened."""
_BLOCK_BYTES = 1024 * 1024
FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_APPEND_BYTE = 1 << 62
_SESSION_BYTES = 1 << 61

_NEXT = "see `audit verify`, then `audit repair`"


class TrailFaultError(Exception):
    """The trail cannot be used as it stands; the message is one line for the operator, without the path."""


class Head(NamedTuple):
    """What stands last: number, hash and line of the last record, and the offset behind it."""

    seq: int = 0
    hash: str = GENESIS
    end: int = 0
    line: bytes = b""


Warn = Callable[[str], None]
"""Says one line to the operator."""

Seen = Callable[[int, bytes], None]
"""Told about each record that is read: its offset, and its line without newline."""


class TrailFile:
    """One open file of the trail."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.identity = _identity(os.fstat(fd))
        self.head = Head()
        self._patience_s = LOCK_WAIT_S

    @classmethod
    def open(cls, path: str, *, create: bool) -> "TrailFile":
        """Open the file for appending; a new one gets mode 0600.

        Raises OSError, and TrailFaultError when it is unfit.
        """
        try:
            fd = os.open(path, FLAGS)
        except FileNotFoundError:
            if not create:
                raise
            try:
                fd = make_private(path, FLAGS)
            except FileExistsError:  # another broker has made it meanwhile
                fd = os.open(path, FLAGS)
            sync_folder(path)
        try:
            _refuse_unfit(os.fstat(fd))
            return cls(path, fd)
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        """Close the descriptor; every lock on it ends."""
        os.close(self.fd)

    def size_in_place(self) -> int | None:
        """Return the file's size in bytes, None when the path leads to another one.

        Raises OSError when nothing is there.
        """
        status = os.lstat(self.path)
        return status.st_size if _identity(status) == self.identity else None

    def lock(self) -> None:
        """Take the append lock. Raises TrailFaultError when another process keeps it for `LOCK_WAIT_S`.

        That long is waited once: as long as it is kept then, whoever comes later waits for `_LATER_WAIT_S`.
        """
        deadline = time.monotonic() + self._patience_s
        while not _set_lock(self.fd, _LOCK):
            if time.monotonic() > deadline:
                self._patience_s = _LATER_WAIT_S
                raise TrailFaultError(f"another process has kept the trail locked for {LOCK_WAIT_S:g} s")
            time.sleep(0.0005)
        self._patience_s = LOCK_WAIT_S

    def unlock(self) -> None:
        """Release the append lock."""
        _set_lock(self.fd, _UNLOCK)

    def hold_session(self, session: str) -> None:
        """Show to every other broker, until this file is closed, that `session` lives.

        Raises TrailFaultError if another has it.
        """
        if not _set_lock(self.fd, _flock(fcntl.F_WRLCK, session_byte(session))):
            raise TrailFaultError("another process holds the lock of this session")

    def has_session(self, session: str) -> bool:
        """Whether some other process holds the lock of `session` on this file."""
        return session_lives(self.fd, session)

    def catch_up(self, size: int, seen: Seen, *, set_aside: Callable[[bytes], None]) -> None:
        """Read and check what others appended since `head`, up to the file's size. The append lock is held.

        Raises TrailFaultError.
        """
        head = self.head
        if size < head.end:
            raise TrailFaultError(f"the trail was truncated from {head.end} to {size} bytes")
        try:
            self.head = read_chain(self.fd, head, size, seen)
            if self.head.end < size:
                self._set_aside(size, set_aside)
        except BrokenChainError as error:
            raise TrailFaultError(f"the trail does not verify ({_NEXT}): {error}") from None

    def _set_aside(self, size: int, told: Callable[[bytes], None]) -> None:
        torn = os.pread(self.fd, size - self.head.end, self.head.end)
        check_torn(torn, self.head.seq + 1)
        fd = _open_torn(self.path + ".torn")
        try:
            write_all(fd, torn + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.ftruncate(self.fd, self.head.end)
        os.fsync(self.fd)
        told(torn)

    def recognise(self) -> None:
        """Verify the tail of a file that is met for the first time, and stand behind its last whole line.

        Raises TrailFaultError.
        """
        size = os.fstat(self.fd).st_size
        try:
            self.head = verified_tail(self.fd, size)
        except BrokenChainError as error:
            raise TrailFaultError(f"the trail does not verify ({_NEXT}): {error}") from None

    def append(self, line: bytes, seq: int, own_hash: str) -> None:
        """Append one record with one write, all of it or nothing. The append lock is held. Raises OSError."""
        end = self.head.end
        try:
            write_all(self.fd, line)
        except ShortWriteError:
            os.ftruncate(self.fd, end)
            raise
        self.head = Head(seq, own_hash, end + len(line), line)

    def still_ends_in_head(self) -> bool:
        """Whether the last record that is known still stands where it stood, every byte of it."""
        head = self.head
        return head.end == 0 or os.pread(self.fd, len(head.line), head.end - len(head.line)) == head.line


class ShortWriteError(OSError):
    """Only a part was written: the disk, a quota or a limit is full."""


def write_all(fd: int, data: bytes) -> None:
    """Write with one write(2). Raises OSError, ShortWriteError when only a part went in."""
    if os.write(fd, data) != len(data):
        raise ShortWriteError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failure_text(failure: Exception) -> str:
    """Return why the trail could not be used, without its path."""
    return (failure.strerror or type(failure).__name__) if isinstance(failure, OSError) else str(failure)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def unfit(status: os.stat_result, keeper: int | None = None) -> str:
    """Return why a file is no part of a trail, "" if it may be one: root's, ours or that of `keeper`, whose trail it is."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o}); 0600 is expected"
    if status.st_uid not in (0, os.geteuid(), keeper):
        return f"it belongs to user {status.st_uid}"
    return ""


def _refuse_unfit(status: os.stat_result) -> None:
    if problem := unfit(status):
        raise TrailFaultError(problem)


def _open_torn(path: str) -> int:
    """Open the file for torn lines; one that is there only if it is ours and has no other name."""
    flags = os.O_WRONLY | (FLAGS & ~os.O_RDWR)
    try:
        return make_private(path, flags)
    except FileExistsError:
        fd = os.open(path, flags)
    status = os.fstat(fd)
    if problem := unfit(status) or ("it has another name too" if status.st_nlink > 1 else ""):
        os.close(fd)
        raise TrailFaultError(f"{os.path.basename(path)} cannot take a torn line, remove it: {problem}")
    return fd


def make_private(path: str, flags: int) -> int:
    """Make a file that is not there yet, with mode 0600 whatever the umask takes away. Raises OSError."""
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(fd, 0o600)
    return fd


def sync_folder(path: str) -> None:
    """Bring the folder's entry for `path` to disk."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _flock(kind: int, start: int) -> bytes:
    # struct flock of asm-generic/fcntl.h on 64 bits: l_type, l_whence and padding, l_start, l_len, l_pid and padding
    return kind.to_bytes(2, "little") + bytes(6) + start.to_bytes(8, "little") + b"\1" + bytes(15)


_LOCK = _flock(fcntl.F_WRLCK, _APPEND_BYTE)
_UNLOCK = _flock(fcntl.F_UNLCK, _APPEND_BYTE)


def _set_lock(fd: int, request: bytes) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: somebody else holds it
        return False
    return True


def is_being_written(fd: int) -> bool:
    """Whether a writer is in. A reader takes no lock for it: one that is stopped would keep every writer out."""
    return _is_locked(fd, _APPEND_BYTE)


def _is_locked(fd: int, byte: int) -> bool:
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, byte))
    return int.from_bytes(answer[:2], "little") != fcntl.F_UNLCK


def session_byte(session: str) -> int:
    """Return the offset of the byte that a living session keeps locked: 48 bits of its digest."""
    return _SESSION_BYTES + int(digest(session.encode())[:12], 16)


def session_lives(fd: int, session: str) -> bool:
    """Whether some process holds the lock of `session` on this file (fcntl(2), F_OFD_GETLK)."""
    return _is_locked(fd, session_byte(session))


def read_chain(fd: int, head: Head, size: int, seen: Seen) -> Head:
    """Check whole lines from `head` up to `size`; returns what stands last, before any torn line.

    Raises BrokenChainError.
    """
    seq, prev, offset, last = head.seq, head.hash.encode(), head.end, head.line
    rest = b""
    while offset + len(rest) < size:
        block = rest + os.pread(fd, min(_BLOCK_BYTES, size - offset - len(rest)), offset + len(rest))
        if len(block) == len(rest):
            break
        *lines, rest = block.split(b"\n")
        for line in lines:
            seq += 1
            prev = check(line, seq, prev)
            seen(offset, line)
            offset += len(line) + 1
        if lines:
            last = lines[-1] + b"\n"
        if len(rest) > LINE_LIMIT_BYTES:
            raise BrokenChainError("a line is longer than any record")
    return Head(seq, prev.decode(), offset, last)


def verified_tail(fd: int, size: int) -> Head:
    """Return what stands last in a file of `size` bytes, its last `TAIL_BYTES` verified.

    Raises BrokenChainError.
    """
    window = TAIL_BYTES
    while True:
        start = max(size - window, 0)
        data = os.pread(fd, size - start, start)
        first = 0 if start == 0 else data.find(b"\n") + 1
        last = data.rfind(b"\n") + 1
        if last > first or start == 0:
            return _tail_head(data[first:last], start + first)
        if window >= 2 * LINE_LIMIT_BYTES:
            raise BrokenChainError("no record stands at its end")
        window *= 2


def _tail_head(lines: bytes, offset: int) -> Head:
    head = Head(0, GENESIS, offset)
    for line in lines.split(b"\n")[:-1]:
        if head.seq == 0:
            own = check(line, None, None)
            if offset == 0:
                check_first(line)
            head = Head(seq_of(line), own.decode(), head.end + len(line) + 1, line + b"\n")
        else:
            own = check(line, head.seq + 1, head.hash.encode())
            head = Head(head.seq + 1, own.decode(), head.end + len(line) + 1, line + b"\n")
    return head
