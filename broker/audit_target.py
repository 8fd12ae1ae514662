"""Where `audit report` writes its page: a file, or standard output.

Always true: nothing that holds records is written over; what stood at the target stays until the page is whole; a file is
its owner's alone (0600), whatever mode was there before.
"""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable
from secrets import token_hex
from typing import IO

from broker.audit_rotation import rotated_files
from broker.main import OUTPUT_IS_FULL

_STDOUT = 1
_IS_TRAIL = "is a file of an audit trail, or has the name of one, and would be lost; take another"
_BEGINNING = b'{"seq":'


def is_standard_output(target: str) -> bool:
    """Whether the page goes where everything else is printed: "-", and whatever else leads there."""
    return target == "-" or (os.path.exists(target) and _is(os.fstat(_STDOUT), target))


def write_page(target: str, parts: Iterable[str], trail: str) -> int:
    """Write `parts` to `target`, "-" for standard output; returns the number of characters.

    Raises OSError, for a file of the trail at `trail` or of another one too; one about a full disk names no file.
    """
    try:
        if is_standard_output(target):
            _refuse_records(_STDOUT, target, trail)
            return _written(None if sys.stdout is None else sys.stdout.buffer, parts)
        return _into(target, parts, trail)
    except OSError as error:
        error.filename = None if error.errno in OUTPUT_IS_FULL else target
        raise


def _into(target: str, parts: Iterable[str], trail: str) -> int:
    if os.path.realpath(target).startswith(f"{os.path.realpath(trail)}."):
        raise OSError(errno.EEXIST, _IS_TRAIL, target)
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return _replaced(target, parts)
    with open(fd, "wb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return _written(file, parts)
        _refuse_records(fd, target, trail)
    return _replaced(target, parts)


def _refuse_records(fd: int, target: str, trail: str) -> None:
    """Raise OSError if the file is one of the trail, by whatever name, or begins as those do."""
    status = os.fstat(fd)
    files = [trail, *(name for _, name in rotated_files(trail))]
    if any(_is(status, name) for name in files) or _begins_with_record(fd, status):
        raise OSError(errno.EEXIST, _IS_TRAIL, target)


def _is(status: os.stat_result, name: str) -> bool:
    try:
        return os.path.samestat(status, os.stat(name))
    except FileNotFoundError:
        return False  # a rotated file that was deleted since


def _begins_with_record(fd: int, status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return False
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING


def _replaced(target: str, parts: Iterable[str]) -> int:
    """Write a new file beside the target, then give it the target's name."""
    place = os.path.realpath(target)
    beside = os.path.join(os.path.dirname(place), f".audit-report-{token_hex(8)}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            written = _written(file, parts)
        os.rename(beside, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    return written


def _written(file: IO[bytes] | None, parts: Iterable[str]) -> int:
    written = 0
    for part in parts:
        if file is not None:
            file.write(part.encode())
        written += len(part)
    return written
