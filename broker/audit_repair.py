"""`audit repair`: seal a trail that does not verify, and start a new one that names the old one's last hash.

Always true: no byte of the old files is changed, they only get other names; a trail that verifies is left
alone. A broker that runs meanwhile keeps the old file and refuses to go on: it must be started again.
"""

import os
import time
from hashlib import file_digest
from typing import NamedTuple

import msgspec

from broker import audit_rotation as rotation
from broker import private_folder
from broker.audit_file import TrailFaultError, TrailFile
from broker.audit_reading import last_line_end, lines_backwards, named, open_to_read
from broker.audit_record import GENESIS, BrokenChainError, EventLine, claimed_end, new_event_id, seal, utc_now
from broker.audit_session import session_name
from broker.audit_verify import Fault, Verdict, verify


class Repaired(NamedTuple):
    """What was done: the new names of the sealed files, oldest first; none: no file had to be sealed."""

    sealed: list[str]
    said: str


def repair(path: str) -> Repaired:
    """Seal the trail at `path` if it does not verify. Raises OSError, TrailFaultError."""
    if problem := private_folder.problem(os.path.dirname(os.path.abspath(path)), alone=True):
        raise TrailFaultError(problem)
    older = [name for _, name in rotation.rotated_files(path)]
    if not os.path.lexists(path):
        return _continue_older(path, older, "removed")
    file = TrailFile.open(path, create=False)
    try:
        file.lock()
        if older and os.fstat(file.fd).st_size == 0:
            return _continue_older(path, older, "emptied")
        verdict = verify(named([*older, path]))
        if verdict.fault is None:
            return Repaired([], _sound(verdict))
        if verdict.fault.file == path:
            return _seal_all(path, older, verdict.fault)
        return _seal_older(file, older, verdict.fault)
    finally:
        file.close()


def _sound(verdict: Verdict) -> str:
    torn = " (the next start sets its torn last line aside)" if verdict.torn_bytes else ""
    return f"nothing to repair: all {verdict.records} records verify{torn}"


def _continue_older(path: str, older: list[str], fate: str) -> Repaired:
    if not older:
        raise TrailFaultError("there is no trail")
    last = os.path.basename(older[-1])
    _start_new(path, older[-1], f"the file after {last} was {fate}")
    return Repaired([], f"started a new file that continues {last}: what stood at {path} was {fate}")


def _seal_older(file: TrailFile, older: list[str], fault: Fault) -> Repaired:
    bad = older[: older.index(fault.file) + 1]
    digest = _digest(fault.file)
    sealed = [_seal(name) for name in bad]
    names = ", ".join(map(os.path.basename, sealed))
    why = f"line {fault.line} of {os.path.basename(sealed[-1])}: {fault.why}"
    _note(file, f"sealed {names}; {why}; SHA-256 of the last: {digest}")
    said = f"{fault.file}, line {fault.line}: {fault.why}; sealed it and what is older, the rest of the trail stays"
    return Repaired(sealed, said)


def _note(file: TrailFile, detail: str) -> None:
    """Append what was done to the file that goes on. Its lock is held. Raises OSError, TrailFaultError."""
    file.recognise()
    file.catch_up(os.fstat(file.fd).st_size, _nothing, set_aside=_nothing)
    last = next(lines_backwards(file.fd, file.head.end))
    line = _repaired(file.head.seq + 1, file.head.hash, detail)
    line.oldest_open = msgspec.json.decode(last, type=_Last).oldest_open
    sealed = seal(line)
    file.append(sealed.line, line.seq, sealed.hash)
    os.fsync(file.fd)


def _nothing(*_: object) -> None:
    """Take what nobody needs."""


class _Last(msgspec.Struct):
    oldest_open: int | None


def _seal_all(path: str, older: list[str], fault: Fault) -> Repaired:
    copy = _sealed_name(path)
    os.link(path, copy, follow_symlinks=False)
    _start_new(path, copy, f"sealed {os.path.basename(copy)}, line {fault.line}: {fault.why}")
    return Repaired(
        [*map(_seal, older), copy], f"{path}, line {fault.line}: {fault.why}; started a new trail"
    )


def _seal(name: str) -> str:
    new = _sealed_name(name)
    os.rename(name, new)
    return new


def _sealed_name(name: str) -> str:
    return f"{name}.sealed-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def _start_new(path: str, old: str, why: str) -> None:
    seq, last = _claimed(old)
    line = _repaired(seq + 1, last, f"{why}; SHA-256 of {os.path.basename(old)}: {_digest(old)}")
    rotation.write_next(path, seal(line).line)
    rotation.take_over(path)


def _digest(name: str) -> str:
    with open(name, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _repaired(seq: int, prev: str, detail: str) -> EventLine:
    return EventLine(
        seq=seq,
        ts=utc_now(),
        event_id=new_event_id(),
        event="repaired",
        detail=detail,
        session=session_name(),
        policy_sha256="",
        prev=prev,
    )


def _claimed(name: str) -> tuple[int, str]:
    """Return number and hash of the last line that has the form of a record, whatever they are worth."""
    fd = open_to_read(name)
    try:
        for line in lines_backwards(fd, last_line_end(fd, os.fstat(fd).st_size)):
            try:
                return claimed_end(line)
            except BrokenChainError:
                continue
    finally:
        os.close(fd)
    return 0, GENESIS
