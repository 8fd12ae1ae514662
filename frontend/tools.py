"""The two tools as a client sees them: names, texts, schemas, and what a call's arguments must look like.

Always true: no type of an SDK appears here; arguments are rejected, never repaired. Must not: judge a
command, that is the broker's work; lose a call, what is no call becomes a `Malformed` that the broker
records.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from protocol.messages import COMMAND_CHARACTERS, PATH_CHARACTERS, CommandResult, ResultCode, Tool

POLICY_URI = "policy://effective"
NAME_CHARACTERS = 100
"""The longest name of an argument that a reason repeats."""

NAMES_SHOWN = 150
"""How many program names a text lists; a policy may have thousands, and a model pays for each."""


class Run(NamedTuple):
    """A well-formed call of `run_command`; its strings are still untrusted."""

    untrusted_command: str
    untrusted_cwd: str | None


class Explain(NamedTuple):
    """A well-formed call of `explain_command`."""

    untrusted_command: str


class Malformed(NamedTuple):
    """A call whose arguments fit no schema: what came, and what is wrong with it."""

    tool: Tool
    untrusted_arguments: str
    problem: str


ToolCall = Run | Explain | Malformed

BROKER_GONE = CommandResult(
    ok=False,
    code=ResultCode.INTERNAL_ERROR,
    stdout="",
    stderr="",
    exit_code=None,
    duration_ms=0,
    policy_reason="internal error; the command's outcome is not known, and this server must be restarted",
)
"""What every call gets once the broker cannot be asked any more. Generic: a client learns nothing about why."""

CANCELLED_EARLY = "cancelled by the client or by the end of the server, before it was judged"
"""What the trail says of a call that was never sent as one; nobody is answered."""

_EXPECTED = {
    Tool.RUN: '{"command": string, "cwd": string or null (optional)}',
    Tool.EXPLAIN: '{"command": string}',
}


def read_call(tool: Tool, untrusted: object) -> ToolCall:
    """Return the call that `untrusted`, the value of `arguments`, makes of `tool`."""
    problem = _problem(tool, untrusted)
    if problem is not None or not isinstance(untrusted, dict):
        return Malformed(tool, shown(untrusted), f"{problem}; expected {_EXPECTED[tool]}")
    if tool is Tool.RUN:
        return Run(untrusted["command"], untrusted.get("cwd"))
    return Explain(untrusted["command"])


def _problem(tool: Tool, untrusted: object) -> str | None:
    if not isinstance(untrusted, dict):
        return f"arguments must be an object, not {_kind(untrusted)}"
    allowed = ("command", "cwd") if tool is Tool.RUN else ("command",)
    unknown = [name for name in untrusted if name not in allowed]
    if unknown:
        name = shown(unknown[0])  # whole or not at all: the broker would not know half of a secret for one
        return f"unknown argument {name if len(name) <= NAME_CHARACTERS else 'with a very long name'}"
    if "command" not in untrusted:
        return "the argument command is missing"
    if not isinstance(untrusted["command"], str):
        return f"command must be a string, not {_kind(untrusted['command'])}"
    if not isinstance(untrusted.get("cwd"), str | None):
        return f"cwd must be a string or null, not {_kind(untrusted['cwd'])}"
    return None


def _kind(value: object) -> str:
    """Return what JSON calls the type of `value`."""
    if value is None:
        return "null"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return kinds.get(type(value), "an object")


def shown(untrusted: object) -> str:
    """Return JSON text of whatever came, for the audit trail; its length is cut where it is sent."""
    try:
        return json.dumps(untrusted, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    except (ValueError, RecursionError):
        return "(cannot be shown)"


def as_structured(result: CommandResult) -> dict[str, Any]:
    """Return the envelope as plain JSON values, in the envelope's order of fields."""
    structured: dict[str, Any] = msgspec.to_builtins(result)
    return structured


def as_text(result: CommandResult) -> str:
    """Return the envelope as JSON text, for clients that read only text."""
    return msgspec.json.encode(result).decode()


def listed(programs: tuple[str, ...]) -> str:
    """Return program names as one bounded line of prose."""
    if not programs:
        return "none"
    shown = ", ".join(programs[:NAMES_SHOWN])
    more = len(programs) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def instructions(programs: tuple[str, ...]) -> str:
    """Return what a model should know before its first call."""
    return (
        "A terminal without a shell. Each call runs one allow-listed program with its arguments, in one directory "
        f"tree (the jail). Programs that may be called: {listed(programs)}. Quoting works as in a POSIX shell; pipes, "
        "redirection, variables, command substitution and chaining do not exist and are refused. Call "
        "explain_command first when you are not sure that a command is allowed. A refusal is a normal answer: "
        f"policy_reason says what to change. The resource {POLICY_URI} says in short which options and paths each program takes."
    )


_READING_A_RESULT = (
    "The answer is one object. code OK: it ran, and exit_code is its status. OUTPUT_TRUNCATED: it ran, but printed "
    "more than is returned; ask for less (head, tail, narrower patterns). POLICY_DENIED, PARSE_ERROR, CWD_ESCAPE: it "
    "did not run; policy_reason says why and what is allowed instead; the same command will be refused again. "
    "TIMEOUT: it was killed; stdout has what it printed so far. EXECUTOR_ERROR: allowed, but it cannot be started "
    "here. AUDIT_UNAVAILABLE, INTERNAL_ERROR: not your fault; tell the user. "
    "[REDACTED:...] stands where a secret was."
)


def descriptions(programs: tuple[str, ...]) -> dict[Tool, str]:
    """Return what a model reads about each tool."""
    return {
        Tool.RUN: (
            "Run one program and return its output. There is no shell: one command, quoted as in a POSIX shell; "
            "unquoted ; | & < > $ ` \\ and newlines are refused, $ ` \\ in double quotes too (put such words in single "
            "quotes); unquoted * ? [ are expanded to file names. Programs: "
            f"{listed(programs)}. Paths must stay inside the jail. stdin is empty: name a file, or a folder with -r (git "
            f"shortlog: a revision), or a program reads nothing and still exits with 0. {_READING_A_RESULT}"
        ),
        Tool.EXPLAIN: (
            "Tell whether run_command would run this command in the jail's root, without running it. code OK means "
            "yes; otherwise code and policy_reason say why not and what is allowed instead. stdout and stderr are empty."
        ),
    }


TITLES = {Tool.RUN: "Run a command", Tool.EXPLAIN: "Explain a command"}

_COMMAND = {
    "type": "string",
    "maxLength": COMMAND_CHARACTERS,
    "description": 'One command with its arguments, for example: git log --oneline -5 -- "some file"',
}
_CWD = {
    "anyOf": [{"type": "string", "maxLength": PATH_CHARACTERS}, {"type": "null"}],
    "default": None,
    "description": "Directory to run in, relative to the jail's root (or absolute inside it); default: the root.",
}

INPUT_SCHEMAS: Mapping[Tool, dict[str, Any]] = {
    Tool.RUN: {
        "type": "object",
        "properties": {"command": _COMMAND, "cwd": _CWD},
        "required": ["command"],
        "additionalProperties": False,
    },
    Tool.EXPLAIN: {
        "type": "object",
        "properties": {"command": _COMMAND},
        "required": ["command"],
        "additionalProperties": False,
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean", "description": "True for OK and OUTPUT_TRUNCATED."},
        "code": {"type": "string", "enum": [code.value for code in ResultCode]},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "exit_code": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "description": "The program's status; negative: the signal that ended it; null: it did not end by itself.",
        },
        "duration_ms": {"type": "integer", "minimum": 0},
        "policy_reason": {"type": "string", "description": "Why the command was allowed or refused."},
    },
    "required": list(CommandResult.__struct_fields__),
    "additionalProperties": False,
}


class Hints(NamedTuple):
    """What a client may assume about a tool before it asks its user."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


HINTS = {
    # A policy may let a program write, delete, or use the network, and the client cannot see which: claim nothing.
    Tool.RUN: Hints(read_only=False, destructive=True, idempotent=False, open_world=True),
    Tool.EXPLAIN: Hints(read_only=True, destructive=False, idempotent=True, open_world=False),
}
