"""`audit repair`: seal what does not verify of a trail, and go on in a file that says so and names the last hash.

Always true: no byte of the old files is changed, they only get other names; what is sealed, under which name, is on
disk in a record before any file loses the name it has; a repair that was cut short at any moment leaves a trail that
the next one finishes; a trail that verifies is left alone. A broker that runs while its file is sealed refuses to go on.
"""

import contextlib
import os
import time
from hashlib import file_digest
from typing import NamedTuple

from broker import audit_rotation as rotation
from broker import private_folder
from broker.audit_file import TrailFaultError, TrailFile, sync_folder
from broker.audit_reading import Source, last_line_end, lines_backwards, open_to_read
from broker.audit_record import (
    GENESIS,
    BrokenChainError,
    EventLine,
    claimed_end,
    decode,
    new_event_id,
    seal,
    utc_now,
)
from broker.audit_recovery import line_at
from broker.audit_session import session_name
from broker.audit_show import printable
from broker.audit_verify import Fault, Verdict, verify

_NAMES = 20
"""So many sealed files are named one by one in a record."""
_FAULTS = 5
"""So many faults are told, the first ones: one in each bad file is known."""


class Repaired(NamedTuple):
    """What was done: the new names of the sealed files, oldest first; none: no file had to be sealed."""

    sealed: list[str]
    said: str


def repair(path: str) -> Repaired:
    """Seal what does not verify of the trail at `path`. Raises OSError that names a file, TrailFaultError."""
    if problem := private_folder.problem(os.path.dirname(os.path.abspath(path)), alone=True):
        raise TrailFaultError(problem)
    try:
        file = _locked(path)
        try:
            return _repair(file)
        finally:
            file.close()
    except OSError as error:
        error.filename = error.filename or path
        raise


def _locked(path: str) -> TrailFile:
    """Open the file at the path, an empty one where only older ones are left, and take its append lock."""
    while True:
        if not os.path.lexists(path) and not rotation.rotated_files(path):
            raise TrailFaultError("there is no trail")
        file = TrailFile.open(path, create=True)
        try:
            file.lock()
            if file.size_in_place() is not None:
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # another repair, or a rotation, was faster


def _repair(file: TrailFile) -> Repaired:
    status = os.fstat(file.fd)
    older = [Source(name, keeper=status.st_uid) for _, name in rotation.rotated_files(file.path)]
    files = [*older, Source(file.path)]
    is_lost = bool(older) and last_line_end(file.fd, status.st_size) == 0
    sound, faults, verdict = _find_sound(files, is_lost=is_lost)
    bad = [source.name for source in files[:sound]]
    if not faults:
        return Repaired([], _nothing_to_do(verdict))
    if is_lost:
        after = (verdict.last_seq, verdict.head) if verdict.records else _claimed(bad)
        return _replace(file, [*bad, file.path], after, faults)
    if sound == len(files):
        return _replace(file, bad, _claimed(bad), faults)
    return _seal_older(file, bad, faults)


def _find_sound(files: list[Source], *, is_lost: bool) -> tuple[int, list[Fault], Verdict]:
    """Return from which file on the trail verifies, all faults, and what verified. `is_lost`: no record is in the last."""
    names = [source.name for source in files]
    sound: int = 0
    faults: list[Fault] = []
    while (fault := (verdict := verify(files[sound:])).fault) is not None:
        faults.append(fault)
        at = names.index(fault.file)
        if is_lost and at == len(files) - 1:
            break
        # What a repair began that was cut short is sound in itself: only what it sealed still stands before it.
        sound = at if at > sound and fault.line == 1 and _is_begun_by_a_repair(fault.file) else at + 1
    return sound, faults, verdict


def _is_begun_by_a_repair(name: str) -> bool:
    fd = open_to_read(name)
    try:
        first = decode(line_at(fd, 0))
    except BrokenChainError:
        return False
    finally:
        os.close(fd)
    return isinstance(first, EventLine) and first.event == "repaired"


def _nothing_to_do(verdict: Verdict) -> str:
    torn = " (the next start sets its torn last line aside)" if verdict.torn_bytes else ""
    return f"nothing to repair: all {verdict.records} records verify{torn}"


def _claimed(names: list[str]) -> tuple[int, str]:
    """Return number and hash of the last line that has the form of a record, whatever they are worth."""
    for name in reversed(names):
        fd = open_to_read(name)
        try:
            for line in lines_backwards(fd, last_line_end(fd, os.fstat(fd).st_size)):
                with contextlib.suppress(BrokenChainError):
                    return claimed_end(line)
        finally:
            os.close(fd)
    return 0, GENESIS


def _replace(file: TrailFile, bad: list[str], after: tuple[int, str], faults: list[Fault]) -> Repaired:
    """Put a new file in the place of the trail's, which is the last of `bad`, and seal them all."""
    path, names = file.path, _sealed_names(bad)
    line = _event(event="repaired", after=after, detail=_detail(names, faults))
    rotation.write_next(path, seal(line).line)
    new = TrailFile.open(path + ".new", create=False)
    try:
        new.lock()  # before anybody can see it: no broker, and no other repair, comes between
        os.link(path, names[path], follow_symlinks=False)
        try:
            rotation.take_over(path)
        except OSError:
            if file.size_in_place() is not None:  # nothing took over, and a trail that goes on keeps one name
                os.unlink(names[path])
            raise
        for _, name in rotation.rotated_files(path):
            if os.path.samestat(os.lstat(name), os.fstat(file.fd)):
                os.unlink(name)  # its rotation had begun: it has its sealed name instead
        _rename({name: sealed for name, sealed in names.items() if name != path})
    finally:
        new.close()
    return Repaired(list(names.values()), f"{_said(faults)}; started a new file after record {after[0]}")


def _seal_older(file: TrailFile, bad: list[str], faults: list[Fault]) -> Repaired:
    names = _sealed_names(bad)
    torn: list[bytes] = []
    file.recognise()
    file.catch_up(os.fstat(file.fd).st_size, _nothing, set_aside=torn.append)
    for part in torn:
        _append(file, _event(event="torn", detail=f"a torn last line of {len(part)} bytes was set aside"))
    _append(file, _event(event="sealed", detail=_detail(names, faults)))
    _rename(names)
    return Repaired(list(names.values()), f"{_said(faults)}; the rest of the trail goes on")


def _nothing(*_: object) -> None:
    """Take what nobody needs."""


def _append(file: TrailFile, line: EventLine) -> None:
    """Append a record to a file that goes on, and bring it to disk. Raises OSError."""
    line.oldest_open = decode(file.head.line[:-1]).oldest_open
    line.seq, line.prev = file.head.seq + 1, file.head.hash
    sealed = seal(line)
    file.append(sealed.line, line.seq, sealed.hash)
    os.fsync(file.fd)


def _sealed_names(names: list[str]) -> dict[str, str]:
    """Return a name for each file that no other has: whoever holds the append lock is alone in making such names."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return {name: _free_name(f"{name}.sealed-{stamp}") for name in names}


def _free_name(wanted: str) -> str:
    name, number = wanted, 1
    while os.path.lexists(name):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _rename(names: dict[str, str]) -> None:
    for name, sealed in names.items():
        os.rename(name, sealed)
        sync_folder(sealed)


def _said(faults: list[Fault]) -> str:
    return "; ".join(f"{printable(f.file)}, line {f.line}: {f.why}" for f in faults[:_FAULTS])


def _detail(names: dict[str, str], faults: list[Fault]) -> str:
    """Return for the trail which files are sealed under which names, and why."""
    sealed = [_base(name) for name in names.values()]
    if len(sealed) > _NAMES:
        sealed = [sealed[0], f"{len(sealed) - 2} more", sealed[-1]]
    why = "; ".join(f"line {f.line} of {_base(names.get(f.file, f.file))}: {f.why}" for f in faults[:_FAULTS])
    return f"sealed {', '.join(sealed)}; {why}; SHA-256 of the last: {_digest(list(names)[-1])}"


def _base(name: str) -> str:
    return printable(os.path.basename(name))


def _digest(name: str) -> str:
    with open(name, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _event(*, event: str, detail: str, after: tuple[int, str] = (0, GENESIS)) -> EventLine:
    return EventLine(
        seq=after[0] + 1,
        ts=utc_now(),
        event_id=new_event_id(),
        event=event,
        detail=detail,
        session=session_name(),
        policy_sha256="",
        prev=after[1],
    )
