"""The chain that all brokers of a trail write together, across rotated files: what `Trail` appends to.

Always true: between `lock` and `unlock` the file is the one that the path leads to, everything that others
appended has been read and checked, and the next record links to what stands last. A file that took another's
place is followed only when its first record continues ours. It must not read a file from its beginning, and
decides nothing about calls.
"""

import os
from typing import NamedTuple

from broker import audit_rotation as rotation
from broker.audit_file import TrailFaultError, TrailFile, Warn, failure_text
from broker.audit_mirror import Mirror, Note
from broker.audit_record import (
    CallLine,
    EventLine,
    Line,
    check,
    check_first,
    new_event_id,
    prev_of,
    seal,
    seq_of,
    utc_now,
)
from broker.audit_recovery import OpenAttempts, Past, closing_line, first_seq, line_at
from broker.audit_sync import GroupCommit, Position

EMPTY_BESIDE_ROTATED = "it is empty, but rotated files stand beside it; `audit repair` starts a new one"
_REPLACED = "the trail was replaced by another file"
_ROTATION_BYTES = 1024
"""Room that the record `rotated` may take."""
_LOCKS_BETWEEN_LOOKS = 256
"""How often the chain looks whether another broker died with an open attempt."""


class Rotation(NamedTuple):
    """When a file is rotated: before it grows beyond `max_bytes` (None: never); `keep` older files stay."""

    max_bytes: int | None
    keep: int


class Chain:
    """Locked by one thread at a time; only `commit` may be used by others meanwhile."""

    def __init__(self, file: TrailFile, session: str, rotation_: Rotation, warn: Warn) -> None:
        self._file = file
        self._session = session
        self._rotation = rotation_
        self._rotate_from = rotation_.max_bytes
        self.mirror: Mirror | None = None
        self._notes: list[Note] = []
        self._warn = warn
        self._attempts = OpenAttempts()
        self._locks = 0
        self.policy_sha256 = ""
        self.commit = GroupCommit(file.fd)

    @property
    def path(self) -> str:
        """Where the trail is."""
        return self._file.path

    def start(self) -> None:
        """Verify what stands last, announce this session, close what dead brokers left open.

        Raises OSError, TrailFaultError, BrokenChainError.
        """
        self._file.lock()
        while self._file.size_in_place() is None:  # rotated between open and lock
            path = self._file.path
            self._file.close()
            self._file = TrailFile.open(path, create=False)
            self.commit = GroupCommit(self._file.fd)
            self._file.lock()
        try:
            self._recognise()
            self._close_dead()
        finally:
            self._file.unlock()

    def _recognise(self) -> None:
        file = self._file
        file.recognise()
        if file.head.end == 0 and rotation.rotated_files(file.path):
            raise TrailFaultError(EMPTY_BESIDE_ROTATED)
        file.hold_session(self._session)
        past = Past(file)
        try:
            past.read(self._attempts)
        finally:
            past.close()
        self._catch_up()
        if self._attempts.ended:
            self._finish_rotation()

    def close(self) -> None:
        """Let go of file and mirror."""
        if self.mirror is not None:
            self.mirror.close()
        self.commit.close()
        self._file.close()

    def lock(self) -> None:
        """Take the append lock, and know what stands last.

        Raises OSError, TrailFaultError, BrokenChainError.
        """
        self._file.lock()
        try:
            while (size := self._size_in_place()) is None:
                self._follow()
            self._catch_up(size)
            if self._attempts.ended:
                self._finish_rotation()
            self._locks += 1
            if self._locks % _LOCKS_BETWEEN_LOOKS == 0:
                self._close_dead()
        except BaseException:
            self._file.unlock()
            raise

    def unlock(self) -> None:
        """Release the append lock."""
        self._file.unlock()

    def check_end(self) -> None:
        """After a failure: raise unless our last record still stands, and the disk takes syncs again."""
        self._check_last()
        if self.commit.broken:
            self.commit.probe()

    def _check_last(self) -> None:
        if not self._file.still_ends_in_head():
            raise TrailFaultError("the end of the trail was changed")

    def _size_in_place(self) -> int | None:
        try:
            return self._file.size_in_place()
        except FileNotFoundError:
            raise TrailFaultError("the trail was removed") from None

    def _catch_up(self, size: int | None = None) -> None:
        if size is None:
            size = os.fstat(self._file.fd).st_size
        if size >= self._file.head.end:
            self._check_last()
        if size == self._file.head.end:
            return
        torn: list[bytes] = []
        self._file.catch_up(size, self._attempts.seen, set_aside=torn.append)
        for part in torn:
            beside = os.path.basename(self._file.path) + ".torn"
            said = f"a torn last line of {len(part)} bytes was set aside in {beside}"
            self._warn(f"audit trail: {said}")
            self.put(self.event_line("torn", said, len(part)))

    def event_line(self, name: str, detail: str, count: int | None = None) -> EventLine:
        """Return a record of something that is no call."""
        return EventLine(
            seq=0,
            ts="",
            event_id=new_event_id(),
            event=name,
            detail=detail,
            count=count,
            session=self._session,
            policy_sha256=self.policy_sha256,
        )

    def put(self, line: Line) -> Position:
        """Append a record and return its position for `commit`. The lock is held. Raises OSError."""
        sealed = self._seal(line)
        limit = self._rotate_from
        if (
            limit is not None
            and self._file.head.end
            and self._file.head.end + len(sealed) + _ROTATION_BYTES > limit
        ):
            self._rotate_if_possible()
            sealed = self._seal(line)
        if self._attempts.ended:
            raise TrailFaultError("the file was rotated away")
        position = self._write(line, sealed)
        while self._notes:
            note = self._notes.pop(0)
            self.put(self.event_line("mirror", note.text, note.lost))
        return position

    def _seal(self, line: Line) -> bytes:
        head = self._file.head
        line.seq, line.ts, line.prev = head.seq + 1, utc_now(), head.hash
        line.oldest_open = self._attempts.oldest_after(line)
        return seal(line).line

    def _write(self, line: Line, sealed: bytes) -> Position:
        self._file.append(sealed, line.seq, sealed[-67:-3].decode())
        self._attempts.take(line)
        position = self.commit.wrote()
        self._send(sealed)
        return position

    def _close_dead(self) -> None:
        """Give an outcome to the attempts of sessions that no process holds any more."""
        others = {attempt.session for attempt in self._attempts.by_event.values()} - {self._session}
        if all(self._file.has_session(session) for session in others):
            return
        for event_id, attempt in self._dead(others).items():
            if attempt is None:
                del self._attempts.by_event[event_id]  # its file was deleted
            else:
                line = closing_line(attempt)
                line.session = self._session
                self.put(line)

    def _dead(self, others: set[str]) -> dict[str, CallLine | None]:
        """Return the attempts that lost their broker, all read before any of them is closed: that may rotate the file."""
        past = Past(self._file)
        try:
            past.open_from(min(attempt.seq for attempt in self._attempts.by_event.values()))
            dead = {session for session in others if not past.lives(session)}
            return {
                event_id: past.call_line(attempt.seq)
                for event_id, attempt in self._attempts.by_event.items()
                if attempt.session in dead
            }
        finally:
            past.close()

    def _rotate_if_possible(self) -> None:
        try:
            self.rotate()
            self._prune()
        except OSError as error:
            if self._attempts.ended:
                raise
            self._rotate_from = self._file.head.end * 2
            self._warn(f"audit trail: not rotated: {failure_text(error)}")

    def rotate(self) -> None:
        """Go on in a new file, and delete none. The lock is held.

        Raises OSError; the trail then goes on in the old file.
        """
        if self._file.head.end == 0:
            return
        path = self._file.path
        rotation.give_name(path, first_seq(self._file.fd))
        # Made before the file says that it was rotated: nobody could go on in it then.
        next_fd = rotation.make_next(path)
        try:
            self._put_last(self.event_line("rotated", "the trail goes on in a new file"))
        except BaseException:
            rotation.drop_next(path, next_fd)
            raise
        self._finish_rotation(next_fd)

    def _prune(self) -> None:
        """Only where the trail has grown: whoever may send a signal must not be able to make its past vanish."""
        try:
            rotation.prune(self._file.path, self._rotation.keep)
        except OSError as error:
            self._warn(f"audit trail: an old file could not be deleted: {failure_text(error)}")

    def _put_last(self, closing: EventLine) -> None:
        sealed = self._seal(closing)
        self._write(closing, sealed)

    def _finish_rotation(self, next_fd: int | None = None) -> None:
        """Begin the next file after a `rotated` record, ours or that of a broker that died there."""
        old = self._file
        rotation.give_name(old.path, first_seq(old.fd))
        new = TrailFile(old.path, rotation.make_next(old.path) if next_fd is None else next_fd)
        try:
            sealed = self._seal(self.event_line("continued", "continues the file that ends in prev"))
            rotation.fill_next(new.fd, sealed)
            os.fdatasync(old.fd)
            # Locked before anybody can see it: nobody appends to it, or rotates it, before us.
            self._enter(new)
            rotation.take_over(old.path)
        except BaseException:
            new.close()
            raise
        new.head = old.head._replace(end=0)
        self._go_on_in(new)
        self._send(sealed)

    def _follow(self) -> None:
        """Go on in the file that took over from ours, or in one that took over from that.

        Raises TrailFaultError when none did: the trail was replaced.
        """
        self._catch_up()
        if not self._attempts.ended:
            raise TrailFaultError(_REPLACED)
        old = self._file
        new = self._open_next(old)
        try:
            new.path = old.path
            self._enter(new)
            if not self._continues(new):
                if new.size_in_place() is None:  # rotated away before it was locked: look again
                    new.close()
                    return
                self._join(new)
        except BaseException:
            new.close()
            raise
        self._go_on_in(new)

    def _enter(self, new: TrailFile) -> None:
        new.lock()
        new.hold_session(self._session)

    def _go_on_in(self, new: TrailFile) -> None:
        old, self._file = self._file, new
        try:
            self.commit.switch(new.fd)
        finally:
            old.close()
        self._catch_up()

    def _open_next(self, old: TrailFile) -> TrailFile:
        name = rotation.rotated_name(old.path, old.head.seq + 1)
        while not os.path.exists(name):
            new = TrailFile.open(old.path, create=False)
            if not os.path.exists(name):
                return new
            new.close()  # rotated away between the look and the open: it has its own name now
        return TrailFile.open(name, create=False)

    def _continues(self, new: TrailFile) -> bool:
        """Whether our file's last record is the one before the first of `new`, which is to be read from there then.

        Raises TrailFaultError if neither that nor anything between can be.
        """
        head = self._file.head
        first = line_at(new.fd, 0)
        check(first, None, None)
        check_first(first)
        if seq_of(first) == head.seq + 1 and prev_of(first) == head.hash:
            new.head = head._replace(end=0)
            return True
        oldest_left = rotation.oldest_seq(new.path) or seq_of(first)
        if seq_of(first) <= head.seq + 1 or oldest_left <= head.seq + 1:
            raise TrailFaultError(_REPLACED)
        return False

    def _join(self, new: TrailFile) -> None:
        """Go on behind what `new` ends in: while this broker was idle, the file after ours was deleted."""
        new.recognise()
        self._attempts = OpenAttempts()
        past = Past(new)
        try:
            past.read(self._attempts)
        finally:
            past.close()

    def _send(self, sealed: bytes) -> None:
        if self.mirror is not None and (note := self.mirror.send(sealed)) is not None:
            self._notes.append(note)
