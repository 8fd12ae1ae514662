"""A call's whole way through the gate, on one screen.

    UntrustedCommand → parse → Argv → choose → Listed → locate → Located → permit → Permitted
      → trail.attempt → executor.start (confine, spawn, trail.sync, read, redact, cap) → Completed → trail.outcome → Result

Always true: each step takes what the step before returned, so none can be skipped; a check refuses by raising; a failure
that nobody foresaw denies; every request leaves its outcome in the trail before its reply is queued. Nothing here talks
to the kernel or to a socket.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from broker import grammar
from broker.audit import Trail
from broker.audit_record import Call
from broker.execution import Completed, Executor, Job, Recorded, Running
from broker.jail import Jail, Located
from broker.notice import warn
from broker.output import OutputFilter
from broker.policy import Permitted, Policy
from broker.redaction import Redactor
from broker.refusal import ExecutorError, ParseError, Refusal
from protocol.messages import (
    CommandResult,
    ExplainRequest,
    MalformedRequest,
    Result,
    ResultCode,
    RunRequest,
    Tool,
)

UNFORESEEN = "internal error of the server; its operator finds the place on stderr"


class Gate(msgspec.Struct, frozen=True):
    """Policy, and all that was built from the same file. A call keeps the gate that let it in; a reload makes a new one."""

    policy: Policy
    jail: Jail
    redactor: Redactor


class Admitted(NamedTuple):
    """A run that was let in and waits for its turn. Holds a descriptor of its working directory."""

    request: RunRequest
    gate: Gate
    call: Call
    located: Located
    permitted: Permitted
    since: float


class Pipeline:
    """Answers requests. `finished` is called from a command's own thread when that command has ended."""

    def __init__(self, gate: Gate, trail: Trail, executor: Executor) -> None:
        self.gate = gate
        self._trail = trail
        self._executor = executor

    def answer_malformed(self, request: MalformedRequest) -> Result:
        """Answer a call whose arguments were no request: PARSE_ERROR, audited."""
        call = Call(tool=request.tool, command_raw=request.arguments, policy_sha256=self.gate.policy.digest)
        return self._refuse(request.id, call, ParseError(request.problem), time.monotonic())

    def answer_explain(self, request: ExplainRequest) -> Result:
        """Judge as for a run, at the jail's root, and start nothing."""
        since = time.monotonic()
        call = Call(tool=Tool.EXPLAIN, command_raw=request.command, policy_sha256=self.gate.policy.digest)
        try:
            located, permitted = self._judge(request.command, None, call)
            located.close()
        except Refusal as refusal:
            return self._refuse(request.id, call, refusal, since)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw denies
            return self._refuse(request.id, call, unforeseen(error), since)
        return self._reply(request.id, call, _envelope(ResultCode.OK, permitted.reason, since))

    def admit(self, request: RunRequest) -> Admitted | Result:
        """Judge a run. Returns it for `start`, or the answer to a refused one."""
        since = time.monotonic()
        call = Call(tool=Tool.RUN, command_raw=request.command, policy_sha256=self.gate.policy.digest)
        try:
            located, permitted = self._judge(request.command, request.cwd, call)
        except Refusal as refusal:
            return self._refuse(request.id, call, refusal, since)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw denies
            return self._refuse(request.id, call, unforeseen(error), since)
        return Admitted(request, self.gate, call, located, permitted, since)

    def _judge(
        self, untrusted_command: str, untrusted_cwd: str | None, call: Call
    ) -> tuple[Located, Permitted]:
        policy, jail = self.gate.policy, self.gate.jail
        argv = grammar.parse(
            untrusted_command, metacharacters=policy.file.metacharacters, globs=policy.file.globs
        )
        call.argv = argv.texts
        listed = policy.choose(argv)
        call.cwd = untrusted_cwd
        located = jail.locate(untrusted_cwd)
        call.cwd = located.relative or "."
        try:
            permitted = policy.permit(listed, located)
        except BaseException:
            located.close()
            raise
        call.argv = permitted.argv
        return located, permitted

    def start(self, admitted: Admitted, finished: Callable[[Completed], None]) -> Running | Result:
        """Write the attempt and start the command. Returns the answer instead if it cannot be started."""
        try:
            position = self._trail.attempt(admitted.call)
            recorded = Recorded(
                lambda: self._trail.sync(position), lambda resume: self._trail.later(position, resume)
            )
            return self._executor.start(self._job(admitted), recorded, finished)
        except Refusal as refusal:
            return self.refuse_admitted(admitted, refusal)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw denies
            return self.refuse_admitted(admitted, unforeseen(error))

    def _job(self, admitted: Admitted) -> Job:
        gate, permitted = admitted.gate, admitted.permitted
        keep = gate.policy.file.output.control_sequences
        return Job(
            permitted=permitted,
            cwd_fd=admitted.located.fd,
            stdout=OutputFilter(gate.redactor, permitted.limits.stdout_bytes, keep),
            stderr=OutputFilter(gate.redactor, permitted.limits.stderr_bytes, keep),
        )

    def refuse_admitted(self, admitted: Admitted, refusal: Refusal) -> Result:
        """Answer a run that was let in but does not start."""
        admitted.located.close()
        return self._refuse(admitted.request.id, admitted.call, refusal, admitted.since)

    def cancelled(self, admitted: Admitted) -> Result:
        """Answer a run that was cancelled while it waited."""
        return self.refuse_admitted(admitted, ExecutorError("cancelled by the client before it started"))

    def answer_run(self, admitted: Admitted, completed: Completed) -> Result:
        """Answer a run whose command has ended."""
        admitted.located.close()
        envelope = CommandResult(
            ok=completed.code in (ResultCode.OK, ResultCode.OUTPUT_TRUNCATED),
            code=completed.code,
            stdout=completed.stdout,
            stderr=completed.stderr,
            exit_code=completed.exit_code,
            duration_ms=completed.duration_ms,
            policy_reason=completed.reason or admitted.permitted.reason,
        )
        admitted.call.stdout_bytes, admitted.call.stderr_bytes = (
            completed.stdout_bytes,
            completed.stderr_bytes,
        )
        return self._reply(admitted.request.id, admitted.call, envelope)

    def _refuse(self, request_id: int, call: Call, refusal: Refusal, since: float) -> Result:
        return self._reply(request_id, call, _envelope(refusal.code, refusal.reason, since))

    def _reply(self, request_id: int, call: Call, envelope: CommandResult) -> Result:
        try:
            reason = self.gate.redactor.redact(envelope.policy_reason)
            envelope = msgspec.structs.replace(envelope, policy_reason=reason)
            self._trail.outcome(call, envelope)
        except Refusal as refusal:
            # only where nothing ran: what cannot be logged is not answered with a verdict
            envelope = _envelope(refusal.code, refusal.reason, time.monotonic())
        except Exception as error:  # noqa: BLE001 - the answer must not hold what could not be redacted
            envelope = _envelope(unforeseen(error).code, UNFORESEEN, time.monotonic())
        return Result(request_id, envelope)

    def note_violation(self, reason: str) -> None:
        """Leave in the trail that the frontend broke the protocol."""
        self._trail.event("protocol_violation", reason)


def _envelope(code: ResultCode, reason: str, since: float) -> CommandResult:
    duration_ms = round((time.monotonic() - since) * 1000)
    return CommandResult(code is ResultCode.OK, code, "", "", None, duration_ms, reason)


class _Unforeseen(Refusal):
    code = ResultCode.INTERNAL_ERROR


def unforeseen(error: Exception) -> Refusal:
    """Return the refusal for a fault of ours: generic for the client, with its place on stderr for the operator."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f"{where.tb_frame.f_code.co_name}:{where.tb_lineno}" if where else "?"
    warn(f"internal error: {type(error).__name__} at {place}")
    return _Unforeseen(UNFORESEEN)
