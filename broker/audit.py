"""The audit trail: every call leaves its records here, and no command runs before its attempt is on disk.

Always true: a record is appended whole, under the file's lock, linked to the one that stands last, whoever
wrote it; a trail that was removed, replaced, truncated or does not verify is never appended to; what could
not be written is refused (closed) or said on stderr (open), and the gap is recorded once writing works again.
A record's texts are redacted before they are cut. It must not read the trail from its beginning, and never
writes output of a command.
"""

import os
import threading
from collections.abc import Callable
from typing import NamedTuple, NewType

from broker import audit_rotation as rotation
from broker.audit_file import Head, TrailFaultError, TrailFile
from broker.audit_mirror import Mirror
from broker.audit_record import (
    BrokenChainError,
    Call,
    CallLine,
    EventLine,
    Line,
    new_event_id,
    prev_of,
    seal,
    seq_of,
    utc_now,
)
from broker.audit_recovery import OpenAttempts, Past, closing_line, first_seq, line_at
from broker.audit_session import session_name
from broker.audit_sync import GroupCommit
from broker.audit_text import DETAIL_CHARACTERS, REASON_CHARACTERS, Redact, Shown, show_call, show_text
from broker.refusal import AuditUnavailable, StartupError
from protocol.messages import CommandResult

Position = NewType("Position", int)
"""Counts the records that this broker wrote. 0: not written (open mode), and nothing to wait for."""

Warn = Callable[[str], None]
_Failure = (OSError, TrailFaultError, BrokenChainError)


class Settings(NamedTuple):
    """What stays the same while a trail is open.

    `max_bytes`: a file is rotated before it grows beyond, None: never.
    """

    fail_mode: str
    durability: str
    max_bytes: int | None
    keep: int
    warn: Warn


class _Begun(NamedTuple):
    shown: Shown
    written: bool


class _Gap:
    """What could not be written, and since when."""

    def __init__(self, reason: str) -> None:
        self.since = utc_now()
        self.reason = reason
        self.records = 0


class Trail:
    """An open trail.

    `sync` may be called from any thread; everything else is short, and safe from any thread too.
    """

    def __init__(
        self, file: TrailFile, settings: Settings, redact: Redact, policy_sha256: str, mirror: Mirror | None
    ) -> None:
        self._file = file
        self._settings = settings
        self._redact = redact
        self._policy_sha256 = policy_sha256
        self._mirror = mirror
        self.session = session_name()
        self._attempts = OpenAttempts()
        self._begun: dict[str, _Begun] = {}
        self._pending: list[Line] = []
        self._gap: _Gap | None = None
        self._commit = GroupCommit(file.fd)
        self._mutex = threading.Lock()
        self._rotate_from = settings.max_bytes

    @classmethod
    def open(
        cls,
        path: str,
        *,
        fail_mode: str,
        durability: str,
        redact: Redact,
        policy_sha256: str,
        warn: Warn,
        max_bytes: int | None = None,
        keep: int = 10,
        mirror: str | None = None,
        create_folder: bool = False,
    ) -> "Trail":
        """Open the trail at an absolute path, continue its chain, and close what dead brokers left open.

        `create_folder` makes its folder (0700). Raises StartupError when the trail is unfit or does not
        verify.
        """
        settings = Settings(fail_mode, durability, max_bytes, keep, warn)
        try:
            if create_folder:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            file = TrailFile.open(path, create=not rotation.rotated_files(path))
            try:
                trail = cls(file, settings, redact, policy_sha256, Mirror.to(mirror) if mirror else None)
                trail._start()
            except BaseException:
                file.close()
                raise
        except FileNotFoundError:
            raise StartupError(f"audit log {path}: {_why_missing(path)}") from None
        except OSError as error:
            raise StartupError(f"audit log {path}: {error.strerror or error}") from None
        except (TrailFaultError, BrokenChainError) as error:
            raise StartupError(
                f"audit log {path}: {error}; see `hardened-terminal-mcp audit verify`"
            ) from None
        return trail

    def _start(self) -> None:
        self._file.lock()
        while not self._file.in_place():  # rotated between open and lock
            path = self._file.path
            self._file.close()
            self._file = TrailFile.open(path, create=False)
            self._commit = GroupCommit(self._file.fd)
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
            raise TrailFaultError(
                "it is empty, but rotated files stand beside it; `audit repair` starts a new one"
            )
        file.hold_session(self.session)
        past = Past(file)
        try:
            past.read(self._attempts)
        finally:
            past.close()
        self._catch_up()

    def attempt(self, call: Call) -> Position:
        """Write that a command is about to run.

        Raises AuditUnavailable (closed) when that cannot be written.
        """
        shown = show_call(call, self._redact)
        line = self._call_line(call, shown)
        position, failure = self._append(line)
        self._begun[call.event_id] = _Begun(shown, failure is None)
        if failure is not None:
            self._refuse(failure)
        return position

    def sync(self, position: Position) -> None:
        """Wait until the record is on disk; one fdatasync(2) serves all that wait.

        Called in the thread of the call, before it confines itself.
        Raises AuditUnavailable (closed) when it did not get there. With durability "os" there is nothing to
        wait for.
        """
        if self._settings.durability == "os":
            return
        try:
            self._commit.wait(position)
        except OSError as error:
            with self._mutex:
                self._note(error)
            self._refuse(error)

    def outcome(self, call: Call, result: CommandResult) -> None:
        """Write how a call ended. It reaches the disk with the next record that is waited for, or at `close`.

        A call without attempt (refused, dry run): raises AuditUnavailable (closed) when that cannot be
        written. After an attempt it never raises, since what ran, ran: the record is kept and written as soon
        as writing works again.
        """
        begun = self._begun.pop(call.event_id, None)
        line = self._call_line(call, begun.shown if begun else show_call(call, self._redact), result)
        kept = begun is not None and begun.written
        _, failure = self._append(line, keep=kept)
        if failure is not None and kept:
            self._settings.warn(f"audit trail: an outcome could not be written yet: {_text(failure)}")
        elif failure is not None:
            self._refuse(failure)

    def _call_line(self, call: Call, shown: Shown, result: CommandResult | None = None) -> CallLine:
        line = CallLine(
            seq=0,
            ts="",
            record_type="attempt" if result is None else "outcome",
            event_id=call.event_id,
            tool=call.tool,
            command_raw=shown.command_raw,
            argv=shown.argv,
            cwd=shown.cwd,
            session=self.session,
            policy_sha256=call.policy_sha256,
        )
        if shown.cut:
            line.cut = shown.cut
        if result is not None:
            line.code, line.exit_code, line.duration_ms = result.code, result.exit_code, result.duration_ms
            line.stdout_bytes, line.stderr_bytes = call.stdout_bytes or 0, call.stderr_bytes or 0
            line.policy_reason = show_text(result.policy_reason, REASON_CHARACTERS, self._redact)
        return line

    def _refuse(self, failure: Exception) -> None:
        if self._settings.fail_mode == "closed":
            raise AuditUnavailable(
                f"the audit trail cannot be written ({_text(failure)}); nothing is run without it"
            )
        self._settings.warn(f"audit trail: a call goes on without its record: {_text(failure)}")

    def event(self, name: str, detail: str, count: int | None = None) -> None:
        """Write something that is no call. Never raises: what cannot be written is counted in the gap."""
        self._append(self._event_line(name, detail, count))

    def _event_line(self, name: str, detail: str, count: int | None = None) -> EventLine:
        return EventLine(
            seq=0,
            ts="",
            event_id=new_event_id(),
            event=name,
            detail=show_text(detail, DETAIL_CHARACTERS, self._redact),
            count=count,
            session=self.session,
            policy_sha256=self._policy_sha256,
        )

    def reload(self, policy_sha256: str, redact: Redact | None = None) -> None:
        """Write that another policy is in force from now on, whose redaction applies if given."""
        self._policy_sha256 = policy_sha256
        self._redact = redact or self._redact
        self.event("policy", f"policy {policy_sha256} is in force")

    def rotate(self) -> None:
        """Go on in a new file (SIGHUP).

        Never raises: on failure the trail goes on in the old one, and says so.
        """
        with self._mutex:
            try:
                self._lock()
                try:
                    if self._file.head.end:
                        self._rotate()
                finally:
                    self._file.unlock()
            except _Failure as failure:
                self._settings.warn(f"audit trail: not rotated: {_text(failure)}")

    def close(self) -> None:
        """Write what is still owed, bring all to disk, and let go. Never raises."""
        with self._mutex:
            try:
                if self._gap is not None or self._pending:
                    self._lock()
                    self._heal()
                if self._settings.durability == "sync":
                    self._commit.flush()
            except _Failure as failure:
                self._settings.warn(f"audit trail: not all records reached the disk: {_text(failure)}")
            self._file.close()

    def _append(self, line: Line, *, keep: bool = False) -> tuple[Position, Exception | None]:
        with self._mutex:
            try:
                self._lock()
                try:
                    if self._gap is not None:
                        self._heal()
                    return self._put(line), None
                finally:
                    self._file.unlock()
            except _Failure as failure:
                self._note(failure, lost=not keep)
                if keep:
                    self._pending.append(line)
                return Position(0), failure

    def _note(self, failure: Exception, *, lost: bool = False) -> None:
        if self._gap is None:
            self._gap = _Gap(_text(failure))
            self._settings.warn(f"audit trail {self._file.path}: {_text(failure)}")
        self._gap.records += lost

    def _lock(self) -> None:
        """Take the append lock of the file that the path leads to, and know what stands last in it."""
        self._file.lock()
        try:
            while not self._in_place():
                self._follow()
            self._catch_up()
            if self._attempts.ended:
                self._finish_rotation()
        except BaseException:
            self._file.unlock()
            raise

    def _in_place(self) -> bool:
        try:
            return self._file.in_place()
        except FileNotFoundError:
            raise TrailFaultError("the trail was removed") from None

    def _catch_up(self) -> None:
        torn: list[bytes] = []
        self._file.catch_up(self._attempts.seen, set_aside=torn.append)
        for part in torn:
            beside = os.path.basename(self._file.path) + ".torn"
            said = f"a torn last line of {len(part)} bytes was set aside in {beside}"
            self._settings.warn(f"audit trail: {said}")
            self._put(self._event_line("torn", said, len(part)))

    def _put(self, line: Line) -> Position:
        """Append a record. The lock is held, and `head` is what stands last."""
        sealed = self._seal(line)
        limit = self._rotate_from
        if limit is not None and self._file.head.end and self._file.head.end + len(sealed) + 1024 > limit:
            self._rotate_if_possible()
            sealed = self._seal(line)
        return self._write(line, sealed)

    def _seal(self, line: Line) -> bytes:
        head = self._file.head
        line.seq, line.ts, line.prev = head.seq + 1, utc_now(), head.hash
        line.oldest_open = self._attempts.oldest_after(line)
        return seal(line).line

    def _write(self, line: Line, sealed: bytes) -> Position:
        self._file.append(sealed, line.seq, sealed[-67:-3].decode())
        self._attempts.take(line)
        position = Position(self._commit.wrote())
        note = self._mirror.send(sealed) if self._mirror else None
        if note is not None:
            self._put(self._event_line("mirror", note.text, note.lost))
        return position

    def _heal(self) -> None:
        """After a failure: check the trail is the one we know, record the gap, write what is owed."""
        if not self._file.still_ends_in_head():
            raise TrailFaultError("the end of the trail was changed")
        if self._commit.broken:
            self._commit.probe()
        gap, self._gap = self._gap, None
        try:
            if gap is not None:
                said = f"records could not be written since {gap.since}: {gap.reason}"
                self._put(self._event_line("gap", said, gap.records))
                gap = None
            while self._pending:
                self._put(self._pending[0])
                del self._pending[0]
        except BaseException:
            self._gap = gap or self._gap
            raise
        self._settings.warn("audit trail: writing works again")

    def _close_dead(self) -> None:
        past = Past(self._file)
        try:
            past.read(OpenAttempts())
            sessions = {attempt.session for attempt in self._attempts.by_event.values()} - {self.session}
            dead = {session for session in sessions if not past.lives(session)}
            for event_id, attempt in tuple(self._attempts.by_event.items()):
                if attempt.session in dead:
                    self._close_one(event_id, past.call_line(attempt.seq))
        finally:
            past.close()

    def _close_one(self, event_id: str, attempt: CallLine | None) -> None:
        if attempt is None:
            del self._attempts.by_event[event_id]  # its file was pruned
            return
        line = closing_line(attempt)
        line.session = self.session
        self._put(line)

    def _rotate_if_possible(self) -> None:
        try:
            self._rotate()
        except OSError as error:
            if self._attempts.ended:
                raise
            self._rotate_from = self._file.head.end * 2
            self._settings.warn(f"audit trail: not rotated: {_text(error)}")

    def _rotate(self) -> None:
        path = self._file.path
        rotation.give_name(path, first_seq(self._file.fd))
        closing = self._event_line("rotated", "the trail goes on in a new file")
        self._put_last(closing)
        self._finish_rotation()
        try:
            rotation.prune(path, self._settings.keep)
        except OSError as error:
            self._settings.warn(f"audit trail: an old file could not be deleted: {_text(error)}")

    def _put_last(self, closing: EventLine) -> None:
        sealed = self._seal(closing)
        self._write(closing, sealed)

    def _finish_rotation(self) -> None:
        """Begin the next file after a `rotated` record, ours or that of a broker that died there."""
        old = self._file
        rotation.give_name(old.path, first_seq(old.fd))
        opening = self._event_line("continued", "continues the file that ends in prev")
        sealed = self._seal(opening)
        rotation.write_next(old.path, sealed)
        os.fdatasync(old.fd)
        rotation.take_over(old.path)
        self._follow()

    def _follow(self) -> None:
        """Go on in the file that took over from ours.

        Raises TrailFaultError when none did: the trail was replaced.
        """
        old = self._file
        self._catch_up()
        if not self._attempts.ended:
            raise TrailFaultError("the trail was replaced by another file")
        new = self._next_file(old)
        try:
            new.lock()
            new.hold_session(self.session)
        except BaseException:
            new.close()
            raise
        self._file = new
        try:
            self._commit.switch(new.fd)
        finally:
            old.close()
        self._attempts.ended = False
        self._catch_up()

    def _next_file(self, old: TrailFile) -> TrailFile:
        name = rotation.rotated_name(old.path, old.head.seq + 1)
        new = TrailFile.open(name if os.path.exists(name) else old.path, create=False)
        new.path = old.path
        try:
            first = line_at(new.fd, 0)
            _refuse_stranger(first, old.head)
        except BaseException:
            new.close()
            raise
        new.head = old.head._replace(end=0)
        return new


def _refuse_stranger(first_line: bytes, head: Head) -> None:
    if seq_of(first_line) != head.seq + 1 or prev_of(first_line) != head.hash:
        raise TrailFaultError("the trail was replaced by another file")


def _text(failure: Exception) -> str:
    return (failure.strerror or type(failure).__name__) if isinstance(failure, OSError) else str(failure)


def _why_missing(path: str) -> str:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"folder {folder} does not exist"
    return "it is missing, but rotated files stand beside it; `audit repair` starts a new one"
