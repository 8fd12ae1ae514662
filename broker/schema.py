"""The shape of policy.toml, as msgspec Structs: what each key means, its unit and its default.

Always true: an unknown key or a wrong type is an error. This module only says what may stand in the file; what it means
for a command is decided in `policy`, and what the kernel is told in `confinement`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class Commands(_Table):
    """`[commands]`: names that may be called, and names that may not. Deny wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class LimitOverrides(_Table):
    """`[rules.NAME.limits]`: limits of one program, in the units of `Limits`; None inherits."""

    timeout_s: Seconds | None = None
    stdout_bytes: Positive | None = None
    stderr_bytes: Positive | None = None
    cpu_s: Positive | None = None
    memory_bytes: Positive | None = None
    processes: Positive | None = None
    open_files: Positive | None = None
    file_bytes: Positive | None = None


class Limits(_Table):
    """`[limits]`: wall clock and CPU in seconds, sizes in bytes, counts plain. `memory_bytes` 0 leaves address space unbounded."""

    timeout_s: Seconds = 30.0
    stdout_bytes: Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)] = 262_144
    stderr_bytes: Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)] = 65_536
    concurrent: Annotated[int, Meta(ge=1, le=256)] = 8
    cpu_s: Positive = 60
    memory_bytes: Annotated[int, Meta(ge=0)] = 4 * 1024**3
    processes: Positive = 64
    open_files: Annotated[int, Meta(ge=8, le=1_048_576)] = 256
    file_bytes: Annotated[int, Meta(ge=0)] = 1024**3


class Rule(_Table):
    """`[rules.NAME]`, and `[rules.NAME.subcommand.SUB]`: what arguments a program may have, and what it may do once it runs."""

    arguments: Literal["checked", "any"] = "checked"
    allow_options: tuple[str, ...] | None = None
    deny_options: tuple[str, ...] | None = None
    operands: tuple[str, ...] | None = None
    arguments_before: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    subcommands: tuple[str, ...] | None = None
    subcommand: dict[str, "Rule"] = {}
    writes: bool = False
    network: bool = False
    may_run: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    temporary: bool = False
    limits: LimitOverrides = LimitOverrides()


class Jail(_Table):
    """`[jail]`: HTMCP_JAIL_ROOT wins; without both, the current directory."""

    root: str | None = None


class Environment(_Table):
    """`[environment]`: where programs are looked up, and further fixed variables for every command."""

    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    set: dict[str, str] = {}


class Audit(_Table):
    """`[audit]`: HTMCP_AUDIT_LOG and HTMCP_AUDIT_FAIL_MODE win."""

    log: str | None = None
    fail_mode: Literal["closed", "open"] = "closed"
    durability: Literal["sync", "os"] = "sync"
    max_bytes: Annotated[int, Meta(ge=65_536)] | None = None
    keep: Annotated[int, Meta(ge=1, le=10_000)] = 10
    mirror: str | None = None


class Containment(_Table):
    """`[containment]`: what to do where the kernel lacks a layer, and as whom a root broker runs commands."""

    mode: Literal["required", "best-effort", "off"] = "required"
    run_as: str | None = None


class ExtraPattern(_Table):
    """One of `[redaction] extra_patterns`. If the expression has a group named `value` or any group, that group is the secret."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
    regex: Annotated[str, Meta(min_length=1, max_length=4096)]
    example: str | None = None


class Redaction(_Table):
    """`[redaction]`."""

    enabled: bool = True
    entropy_fallback: bool = False
    extra_patterns: tuple[ExtraPattern, ...] = ()


class Output(_Table):
    """`[output]`: whether terminal control sequences are removed (before redaction) or kept."""

    control_sequences: Literal["strip", "keep"] = "strip"


class SelfTest(_Table):
    """One of `[[tests]]`: run at each start and by `check`."""

    command: str
    expect: Literal["allow", "deny"]
    reason: str | None = None


class PolicyFile(_Table):
    """The whole file."""

    commands: Commands = Commands()
    metacharacters: Literal["unquoted", "anywhere"] = "unquoted"
    globs: Literal["expand", "refuse"] = "expand"
    rules: dict[str, Rule] = {}
    limits: Limits = Limits()
    jail: Jail = Jail()
    environment: Environment = Environment()
    audit: Audit = Audit()
    containment: Containment = Containment()
    redaction: Redaction = Redaction()
    output: Output = Output()
    tests: tuple[SelfTest, ...] = ()
