"""The messages between a frontend and the broker, as msgspec Structs (docs/protocol.md is the same in prose).

Always true: one tagged union per direction, unknown fields are an error, every field is bounded. A request that gets a
reply carries an id that its frontend chose, above every id that it used before on that connection.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

PROTOCOL_VERSION = 1

COMMAND_CHARACTERS = 65_536
"""The longest command, in characters; a longer one is reported with `MalformedRequest`."""

ARGUMENTS_CHARACTERS = 16_384
"""So much of what was no request is reported: more than the trail shows, so that a cut leaves no half of a secret there."""

PATH_CHARACTERS = 4_096
PROBLEM_CHARACTERS = 1_024

RequestId = Annotated[int, Meta(ge=1, le=2**53)]
Command = Annotated[str, Meta(max_length=COMMAND_CHARACTERS)]
Cwd = Annotated[str, Meta(max_length=PATH_CHARACTERS)]


class ResultCode(StrEnum):
    """How a call ended. The closed family that every envelope's `code` comes from."""

    OK = "OK"
    POLICY_DENIED = "POLICY_DENIED"
    PARSE_ERROR = "PARSE_ERROR"
    TIMEOUT = "TIMEOUT"
    OUTPUT_TRUNCATED = "OUTPUT_TRUNCATED"
    CWD_ESCAPE = "CWD_ESCAPE"
    EXECUTOR_ERROR = "EXECUTOR_ERROR"
    AUDIT_UNAVAILABLE = "AUDIT_UNAVAILABLE"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Tool(StrEnum):
    """The two tools; `MalformedRequest` says for which one a call was malformed."""

    RUN = "run_command"
    EXPLAIN = "explain_command"


class CommandResult(msgspec.Struct, frozen=True):
    """The envelope of every call: exactly these seven fields, in this order.

    `exit_code` is the program's status, negative for a signal's number, None when nothing ran to its end.
    """

    ok: bool
    code: ResultCode
    stdout: str
    stderr: str
    exit_code: int | None
    duration_ms: int
    policy_reason: str


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Frontend to broker."""


class HelloRequest(Request, frozen=True, tag="hello"):
    """The first frame of a connection, answered by `Welcome`."""

    version: int
    frontend: Annotated[str, Meta(max_length=128)]


class RunRequest(Request, frozen=True, tag="run"):
    """Judge and run. Answered by `Result`, and by `Progress` now and then if `progress` is set."""

    id: RequestId
    command: Command
    cwd: Cwd | None = None
    progress: bool = False


class ExplainRequest(Request, frozen=True, tag="explain"):
    """Judge only, never run. Answered by `Result`."""

    id: RequestId
    command: Command


class CancelRequest(Request, frozen=True, tag="cancel"):
    """Kill the run with this id. Its `Result` still comes; an id that is done or unknown is ignored."""

    id: RequestId


class DescribeRequest(Request, frozen=True, tag="describe"):
    """Ask for the policy in force. Answered by `Description`."""

    id: RequestId


class MalformedRequest(Request, frozen=True, tag="malformed"):
    """A tool call whose arguments were no `RunRequest`: audited and answered with PARSE_ERROR, so that no call is lost."""

    id: RequestId
    tool: Tool
    arguments: Annotated[str, Meta(max_length=ARGUMENTS_CHARACTERS)]
    problem: Annotated[str, Meta(max_length=PROBLEM_CHARACTERS)]


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Broker to frontend."""


class Welcome(Reply, frozen=True, tag="welcome"):
    """The handshake is done. `in_flight` is how many requests may be unanswered at once."""

    version: int
    programs: tuple[str, ...]
    in_flight: int


class Result(Reply, frozen=True, tag="result"):
    """The one answer to a run, explain or malformed request."""

    id: RequestId
    result: CommandResult


class Progress(Reply, frozen=True, tag="progress"):
    """A run goes on: time since its start, bytes that it wrote so far."""

    id: RequestId
    elapsed_ms: int
    stdout_bytes: int
    stderr_bytes: int


class Description(Reply, frozen=True, tag="description"):
    """The effective policy as text for a model to read, and the names of the programs that may be called and are there."""

    id: RequestId
    text: str
    programs: tuple[str, ...]


class Refusal(Reply, frozen=True, tag="refusal"):
    """The last frame before the broker closes a connection whose frontend broke the protocol."""

    reason: str


AnyRequest = HelloRequest | RunRequest | ExplainRequest | MalformedRequest | CancelRequest | DescribeRequest
AnyReply = Welcome | Result | Progress | Description | Refusal
