"""Every way in which the gate says no: one closed family, each with a typed code and a reason for the reader.

A check refuses by raising. The reason tells what was refused, where, and what would be allowed instead; it holds no
secret and no path outside the jail. What nobody foresaw is caught once, in the pipeline, and becomes INTERNAL_ERROR.
"""

from protocol.messages import ResultCode

REASON_CHARACTERS = 300


class Refusal(Exception):
    """A call that does not run. `code` is its result code; `reason` at most `REASON_CHARACTERS` characters."""

    code: ResultCode

    def __init__(self, reason: str) -> None:
        if len(reason) > REASON_CHARACTERS:
            reason = reason[: REASON_CHARACTERS - 1] + "…"
        super().__init__(reason)
        self.reason = reason


class ParseError(Refusal):
    """The command could not become an argv."""

    code = ResultCode.PARSE_ERROR


class PolicyDenied(Refusal):
    """Grammar or policy does not allow the command."""

    code = ResultCode.POLICY_DENIED


class CwdEscape(Refusal):
    """The working directory is not a directory beneath the jail."""

    code = ResultCode.CWD_ESCAPE


class ExecutorError(Refusal):
    """The command is allowed, but cannot be started here."""

    code = ResultCode.EXECUTOR_ERROR


class AuditUnavailable(Refusal):
    """The audit record could not be written, and the trail fails closed."""

    code = ResultCode.AUDIT_UNAVAILABLE


class StartupError(Exception):
    """The broker must not start: one line for stderr, exit status 78 (EX_CONFIG of sysexits.h)."""


class PolicyFaults(StartupError):
    """All that is wrong with one policy file, on one line; `faults` has them one by one, each as `LINE: what`."""

    def __init__(self, where: str, faults: list[str]) -> None:
        super().__init__(f"policy {where}: " + "; ".join(f"line {fault}" for fault in faults))
        self.faults = faults
