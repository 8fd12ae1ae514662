"""Audit trails opened directly, without a broker around them.

A process that only writes one starts with this module, dozens in a test: what reads trails is imported where it is used.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from broker.audit import Trail
from broker.audit_record import Call, CallLine
from broker.audit_rotation import rotated_files
from broker.refusal import AuditUnavailable
from protocol.messages import CommandResult, ResultCode

if TYPE_CHECKING:
    import pytest

    from broker.audit_verify import Verdict

POLICY = "5" * 64
CALM = CommandResult(
    ok=True, code=ResultCode.OK, stdout="", stderr="", exit_code=0, duration_ms=3, policy_reason=""
)

OUTCOME = CallLine(
    seq=1,
    ts="2026-01-01T00:00:00.000000Z",
    record_type="outcome",
    event_id="1",
    tool="run_command",
    command_raw="ls",
    argv=None,
    cwd=None,
    code="OK",
    session="1",
    policy_sha256="",
)


def unchanged(text: str) -> str:
    """Redact nothing."""
    return text


def open_trail(path: Path, warn: Callable[[str], None] | None = None, **settings: Any) -> Trail:
    """Open a trail that fails closed and syncs; `settings` as for `Trail.open`."""
    defaults: dict[str, Any] = {
        "fail_mode": "closed",
        "durability": "sync",
        "redact": unchanged,
        "policy_sha256": POLICY,
    }
    return Trail.open(str(path), warn=warn or (lambda _: None), **{**defaults, **settings})


def a_call(command: str = "ls -l", tool: str = "run_command") -> Call:
    """Return a call whose words are those of `command` between spaces."""
    return Call(
        tool=tool, command_raw=command, policy_sha256=POLICY, argv=tuple(command.split(" ")), cwd="src"
    )


def result(code: ResultCode = ResultCode.OK, reason: str = "", exit_code: int | None = None) -> CommandResult:
    """Return an envelope with output that no record may show."""
    return CommandResult(
        ok=code is ResultCode.OK,
        code=code,
        stdout="canary-on-stdout",
        stderr="canary-on-stderr",
        exit_code=exit_code,
        duration_ms=3,
        policy_reason=reason,
    )


def an_outcome(**fields: Any) -> CallLine:
    """Return the record of an outcome with `fields` in the place of its own."""
    return structs.replace(OUTCOME, **fields)


def run(trail: Trail, command: str = "ls -l") -> Call:
    """Write all records of a command that ran."""
    call = a_call(command)
    trail.sync(trail.attempt(call))
    call.stdout_bytes, call.stderr_bytes = 12, 0
    trail.outcome(call, CALM)
    return call


def refused(trail: Trail) -> bool:
    """Try to run a command; return whether the trail refused it, and its outcome too."""
    call = a_call("touch canary")
    try:
        trail.sync(trail.attempt(call))
    except AuditUnavailable as refusal:
        refused_too = result(ResultCode.AUDIT_UNAVAILABLE, refusal.reason)
    else:
        return False
    try:
        trail.outcome(call, refused_too)
    except AuditUnavailable:
        return True
    raise AssertionError("the outcome of what was refused was written")


def files_of(path: Path) -> list[str]:
    """Return the files of a trail, oldest first."""
    return [*(name for _, name in rotated_files(str(path))), str(path)]


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of all files of a trail, oldest first."""
    found = []
    for name in files_of(path):
        found += [json.loads(line) for line in Path(name).read_bytes().splitlines()]
    return found


def line_of(record: dict[str, Any]) -> str:
    """Return a record as a line of a trail, its hash left as it is."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def verified(path: Path, head: str | None = None) -> "Verdict":
    """Verify all files of a trail."""
    from broker.audit_reading import sources_of
    from broker.audit_verify import verify

    return verify(sources_of(str(path)), head)


def rotated_trail(path: Path) -> Path:
    """Write a trail of four files, two calls in each; return its path."""
    trail = open_trail(path)
    for turn in range(8):
        run(trail, f"echo {turn}")
        if turn in (1, 3, 5):
            trail.rotate()
    trail.close()
    return path


def varied_trail(path: Path) -> Path:
    """Write a trail of two files with runs, a refusal, a dry run and an attempt that was never closed; return its path."""
    trail = open_trail(path)
    for turn in range(3):
        run(trail, f"git log -{turn}")
    trail.rotate()
    trail.outcome(a_call("rm -r x"), result(ResultCode.POLICY_DENIED, "rm is on no list"))
    trail.outcome(a_call("ls src", tool="explain_command"), result(reason="ls is allowed"))
    run(trail, "ls src")
    trail.attempt(a_call("make all"))
    trail.close()
    return path


def printed(capsys: "pytest.CaptureFixture[str]", *arguments: str, status: int = 0) -> str:
    """Return what `audit` printed for `arguments`, having ended with `status`."""
    from broker.audit_command import main

    assert main(list(arguments)) == status
    return capsys.readouterr().out


def while_following(monkeypatch: "pytest.MonkeyPatch", *steps: Callable[[], object]) -> None:
    """Make `audit show --follow` take a step each time that it waits, and be interrupted once there is none left."""
    from broker import audit_show

    left = iter(steps)

    def wait(_: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(audit_show.time, "sleep", wait)
