"""`audit repair`: seal a trail that does not verify, and start a new one that names the old one's last hash.

Always true: no byte of the old files is changed, they only get other names; a trail that verifies is left
alone. A broker that runs meanwhile keeps the old file and refuses to go on: it must be started again.
"""

import os
import time
from hashlib import file_digest
from typing import NamedTuple

from broker import audit_rotation as rotation
from broker.audit_file import TrailFaultError, TrailFile, sync_folder
from broker.audit_reading import last_line_end, lines_backwards, named, open_to_read
from broker.audit_record import GENESIS, BrokenChainError, EventLine, claimed_end, new_event_id, seal, utc_now
from broker.audit_session import session_name
from broker.audit_verify import Fault, Verdict, verify


class Repaired(NamedTuple):
    """What was done: the new names of the sealed files, oldest first; none: there was nothing to repair."""

    sealed: list[str]
    said: str


def repair(path: str) -> Repaired:
    """Seal the trail at `path` if it does not verify. Raises OSError, TrailFaultError."""
    older = [name for _, name in rotation.rotated_files(path)]
    if not os.path.lexists(path):
        return _repair_missing(path, older)
    file = TrailFile.open(path, create=False)
    try:
        file.lock()
        verdict = verify(named([*older, path]))
        if verdict.fault is None and (verdict.records or not older):
            return Repaired([], _sound(verdict))
        fault = verdict.fault or Fault(path, 1, "it is empty")
        if fault.file != path:
            return _seal_older(older, fault)
        return _seal_all(path, older, fault)
    finally:
        file.close()


def _sound(verdict: Verdict) -> str:
    torn = " (the next start sets its torn last line aside)" if verdict.torn_bytes else ""
    return f"nothing to repair: all {verdict.records} records verify{torn}"


def _repair_missing(path: str, older: list[str]) -> Repaired:
    if not older:
        raise TrailFaultError("there is no trail")
    fault = Fault(path, 0, "it was removed")
    _start_new(path, older[-1], fault, "the rotated files beside it")
    return Repaired(
        [], f"started a new trail that continues {os.path.basename(older[-1])}: {path} was removed"
    )


def _seal_older(older: list[str], fault: Fault) -> Repaired:
    upto = older.index(fault.file) + 1
    sealed = [_sealed(name) for name in older[:upto]]
    return Repaired(
        sealed, f"sealed up to {fault.file}, line {fault.line}: {fault.why}; the rest of the trail verifies"
    )


def _seal_all(path: str, older: list[str], fault: Fault) -> Repaired:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy = f"{path}.sealed-{stamp}"
    os.link(path, copy, follow_symlinks=False)
    _start_new(path, copy, fault, os.path.basename(copy))
    sealed = [_sealed(name) for name in older]
    return Repaired([*sealed, copy], f"sealed {path}, line {fault.line}: {fault.why}")


def _sealed(name: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    new = f"{name}.sealed-{stamp}"
    os.rename(name, new)
    return new


def _start_new(path: str, old: str, fault: Fault, where: str) -> None:
    with open(old, "rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    seq, last = _claimed(old)
    said = f"sealed {where}: SHA-256 {digest}, line {fault.line}: {fault.why}"
    line = EventLine(
        seq=seq + 1,
        ts=utc_now(),
        event_id=new_event_id(),
        event="repaired",
        detail=said,
        session=session_name(),
        policy_sha256="",
        prev=last,
    )
    rotation.write_next(path, seal(line).line)
    os.rename(path + ".new", path)
    sync_folder(path)


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
