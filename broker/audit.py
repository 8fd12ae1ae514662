"""The audit trail: every call leaves its records here, and no command runs before its attempt is on disk.

Always true: a record is appended whole, under the file's lock, linked to the one that stands last, whoever
wrote it; a trail that was removed, replaced, truncated or does not verify is never appended to; what could
not be written is refused (closed) or said on stderr (open), and the gap is recorded once writing works again.
A record's texts are redacted before they are cut. It never writes output of a command.
"""

import _thread
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker import private_folder
from broker.audit_chain import EMPTY_BESIDE_ROTATED, Chain, Rotation
from broker.audit_file import TrailFaultError, TrailFile, Warn, failure_text
from broker.audit_mirror import Mirror
from broker.audit_record import BrokenChainError, Call, CallLine, EventLine, Line, utc_now
from broker.audit_rotation import rotated_files
from broker.audit_session import session_name
from broker.audit_sync import Position
from broker.audit_text import DETAIL_CHARACTERS, Redact, Shown, show_call, show_reason, show_text
from broker.refusal import AuditUnavailable, StartupError
from protocol.messages import CommandResult

_ELSEWHERE = "HTMCP_AUDIT_LOG or [audit] log names another place"
_Failure = (OSError, TrailFaultError, BrokenChainError)


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

    Everything is short and may be called from any thread; only `sync` waits for the disk.
    """

    def __init__(
        self, chain: Chain, *, session: str, fail_mode: str, durability: str, redact: Redact, warn: Warn
    ) -> None:
        self.session = session
        self._mutex = _thread.allocate_lock()
        self._chain = chain
        self._fail_mode = fail_mode
        self._durability = durability
        self._redact = redact
        self._warn = warn
        self._begun: dict[str, _Begun] = {}
        self._pending: list[Line] = []
        self._gap: _Gap | None = None

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

        A file is rotated before it grows beyond `max_bytes` (None: never), and `keep` rotated ones stay.
        `create_folder` makes the folder (0700). Raises StartupError when the trail is unfit, does not verify,
        or could be replaced by others.
        """
        session = session_name()
        with _faults_told(path):
            if create_folder:
                private_folder.make(os.path.dirname(path))
            chain = Chain(_open_file(path), session, Rotation(max_bytes, keep), warn)
            chain.policy_sha256 = policy_sha256
            _start(chain, mirror)
            if durability == "sync":
                chain.commit.start()
        return cls(
            chain, session=session, fail_mode=fail_mode, durability=durability, redact=redact, warn=warn
        )

    def attempt(self, call: Call) -> Position:
        """Write that a command is about to run, and have it brought to disk.

        Raises AuditUnavailable (closed) when that cannot be written.
        """
        shown = show_call(call, self._redact)
        position, failure = self._append(self._call_line(call, shown))
        self._begun[call.event_id] = _Begun(shown, failure is None)
        if failure is not None:
            self._refuse(failure)
        if self._durability == "sync":
            self._chain.commit.begin(position)
        return position

    def sync(self, position: Position) -> None:
        """Wait until the record is on disk; one fdatasync(2) serves all that wait.

        Raises AuditUnavailable (closed) when it did not get there. With durability "os" there is nothing to wait for.
        """
        if self._durability == "os":
            return
        try:
            self._chain.commit.wait(position)
        except OSError as error:
            with self._mutex:
                self._note(error)
            self._refuse(error)

    def later(self, position: Position, resume: Callable[[], object]) -> bool:
        """Whether `sync` would have to wait. Then `resume` is called when it need not any more."""
        return self._durability == "sync" and self._chain.commit.later(position, resume)

    def outcome(self, call: Call, result: CommandResult) -> None:
        """Write how a call ended. It reaches the disk with the next record that is waited for, or at `close`.

        A call without attempt (refused, dry run): raises AuditUnavailable (closed) when that cannot be
        written. After an attempt it never raises, since what ran, ran: the record is kept, and written as
        soon as writing works again.
        """
        begun = self._begun.pop(call.event_id, None)
        line = self._call_line(call, begun.shown if begun else show_call(call, self._redact), result)
        kept = begun is not None and begun.written
        _, failure = self._append(line, keep=kept)
        if failure is not None and kept:
            self._warn(f"audit trail: an outcome is kept until it can be written: {failure_text(failure)}")
        elif failure is not None:
            self._refuse(failure)

    def event(self, name: str, detail: str, count: int | None = None) -> None:
        """Write something that is no call. Never raises: what cannot be written is counted in the gap."""
        self._append(self._event_line(name, detail, count))

    def reload(self, policy_sha256: str, redact: Redact | None = None) -> None:
        """Write that another policy is in force from now on, whose redaction applies if given."""
        self._chain.policy_sha256 = policy_sha256
        self._redact = redact or self._redact
        self.event("policy", f"policy {policy_sha256} is in force")

    def rotate(self) -> None:
        """Go on in a new file (SIGHUP).

        Never raises: on failure it says so, and the trail goes on in the old one.
        """
        with self._mutex:
            try:
                self._chain.lock()
                try:
                    self._chain.rotate()
                finally:
                    self._chain.unlock()
            except _Failure as failure:
                self._warn(f"audit trail: not rotated: {failure_text(failure)}")
                if self._chain.commit.broken:
                    self._note(failure)

    def close(self) -> None:
        """Write what is still owed, bring all to disk, and let go. Never raises."""
        with self._mutex:
            try:
                if self._gap is not None:
                    self._chain.lock()
                    self._heal()
                if self._durability == "sync":
                    self._chain.commit.flush()
            except _Failure as failure:
                self._warn(f"audit trail: not all records reached the disk: {failure_text(failure)}")
            self._chain.close()

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
            line.policy_reason = show_reason(result.policy_reason, shown, self._redact)
        return line

    def _event_line(self, name: str, detail: str, count: int | None) -> EventLine:
        return self._chain.event_line(name, show_text(detail, DETAIL_CHARACTERS, self._redact), count)

    def _append(self, line: Line, *, keep: bool = False) -> tuple[Position, Exception | None]:
        with self._mutex:
            try:
                self._chain.lock()
                try:
                    if self._gap is not None:
                        self._heal()
                    return self._chain.put(line), None
                finally:
                    self._chain.unlock()
            except _Failure as failure:
                self._note(failure, lost=not keep)
                if keep:
                    self._pending.append(line)
                return Position(0), failure

    def _note(self, failure: Exception, *, lost: bool = False) -> None:
        if self._gap is None:
            self._gap = _Gap(failure_text(failure))
            self._warn(f"audit log {self._chain.path}: {self._gap.reason}")
        self._gap.records += lost

    def _heal(self) -> None:
        """After a failure: make sure of the trail's end, record the gap, write what is owed.

        The lock is held.
        """
        self._chain.check_end()
        gap = self._gap
        if gap is not None:
            gap.records += self._chain.commit.take_lost()
            said = f"records could not be written, or brought to disk, since {gap.since}: {gap.reason}"
            self._chain.put(self._event_line("gap", said, gap.records))
            gap.records = 0
        while self._pending:
            self._chain.put(self._pending[0])
            del self._pending[0]
        self._gap = None
        self._warn("audit trail: records can be written again")

    def _refuse(self, failure: Exception) -> None:
        if self._fail_mode == "closed":
            raise AuditUnavailable(f"the audit trail cannot be written: {failure_text(failure)}")
        self._warn(f"audit trail: a call goes on without its record: {failure_text(failure)}")


def _start(chain: Chain, mirror: str | None) -> None:
    try:
        chain.mirror = Mirror.to(mirror) if mirror is not None else None
        chain.start()
    except BaseException:
        chain.close()
        raise


def check(path: str, mirror: str | None) -> None:
    """Raise StartupError where `Trail.open` would, and change nothing. The folder is there, the file need not be."""
    with _faults_told(path):
        if mirror is not None:
            Mirror.to(mirror).close()
        try:
            file = _open_file(path, create=False)
        except FileNotFoundError:
            if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
            return
        try:
            file.recognise()
            if file.head.end == 0 and rotated_files(path):
                raise TrailFaultError(EMPTY_BESIDE_ROTATED)
        finally:
            file.close()


@contextlib.contextmanager
def _faults_told(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        folder = os.path.dirname(path)
        raise StartupError(f"audit log {path}: folder {folder} does not exist; {_ELSEWHERE}") from None
    except OSError as error:
        said = "it is a link; name the file itself" if error.errno == errno.ELOOP else error.strerror or error
        raise StartupError(f"audit log {path}: {said}; {_ELSEWHERE}") from None
    except (TrailFaultError, BrokenChainError) as error:
        raise StartupError(f"audit log {path}: {error}") from None


def _open_file(path: str, *, create: bool = True) -> TrailFile:
    if problem := private_folder.problem(os.path.dirname(path), alone=True):
        raise TrailFaultError(problem)
    try:
        return TrailFile.open(path, create=create and not rotated_files(path))
    except FileNotFoundError:
        if rotated_files(path):
            raise TrailFaultError(
                "it is missing, but rotated files stand beside it; see `audit repair`"
            ) from None
        if create and os.path.isdir(os.path.dirname(path)):
            raise TrailFaultError(f"no file can be made there; {_ELSEWHERE}") from None
        raise
