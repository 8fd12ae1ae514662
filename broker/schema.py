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
    """`[limits]`: wall clock and CPU in seconds, sizes in bytes, counts plain. `memory_bytes` 0: no limit on address space."""

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
    """`[rules.NAME]`, `[rules.NAME.subcommand.SUB]`: what arguments a program may have, what it may do once it runs.

    Without `allow_options`, `operands` and `subcommands` any option passes, but every word that could be a path is checked.

    `arguments`         "any": no check of arguments at all, the kernel alone confines the program.
    `option_style`      how the program reads its options. "gnu": clusters (`-la`), attached values (`-A5`, `--name=value`),
                        options after operands. "posix": the same, but options end at the first operand. "single-dash":
                        each word that begins with `-` is one whole option (`-name`, `-maxdepth`), as in find.
    `allow_options`     only these. One string is one option with all its names, then its value:

                            "-i"                           a flag; "-ivn" is three flags, but one option in "single-dash"
                            "-A, --after-context=integer"  takes a value of that kind, attached or as the next word
                            "--color[=always|never]"       may have a value, attached only
                            "--merged?=revision"           takes the next word too, but may end the command without one
                            "--rawfile=text path"          takes two words
                            "--[no-]renames"               two options
                            "-NUM"                         a minus sign and a number (`head -20`)
                            "@NAME"                        all of the set NAME of the table `[options]`

                        Names are exact: an abbreviated long option is refused, and the reason says to write it out.
    `deny_options`      not these, however they are abbreviated, clustered or attached. With both, deny wins.
    `require_options`   refused without these.
    `operands`          kinds of the words that are no options, in order; the last one repeats. Default: "path".
    `operands_with`     option name → `operands` that hold instead once that option is given (grep's -e, `git tag --list`).

    A kind is one of

        "path"              beneath the jail, after links are resolved
        "folder"            a path that later paths of the command are relative to (`git -C`)
        "text"              not checked
        "integer"           digits, with an optional sign
        "revision"          git's name of an object: no leading "-"
        "revision-or-path"  both
        "none"              no word may stand here
        "a|b|c"             one of these words
        "/EXPRESSION/"      the whole word matches (RE2 syntax)
        "path&/EXPRESSION/" a path that matches as well; so with each kind above

    `arguments_before`  put in front of what the caller wrote; for a subcommand, right after its name.
    `environment`       fixed variables.
    `subcommands`       the first operand must be one of these; default: those that have a rule under `subcommand`.
    `subcommand_optional`  may stand without one (`git --version`).
    Rights (`writes`, `network`, `may_run`, `read`, `temporary`) of a subcommand come on top of its parent's.
    """

    arguments: Literal["checked", "any"] = "checked"
    option_style: Literal["gnu", "posix", "single-dash"] = "gnu"
    allow_options: tuple[str, ...] | None = None
    deny_options: tuple[str, ...] = ()
    require_options: tuple[str, ...] = ()
    operands: tuple[str, ...] | None = None
    operands_with: dict[str, tuple[str, ...]] = {}
    arguments_before: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    subcommands: tuple[str, ...] | None = None
    subcommand: dict[str, "Rule"] = {}
    subcommand_optional: bool = False
    writes: bool = False
    network: bool = False
    may_run: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    temporary: bool = False
    limits: LimitOverrides = LimitOverrides()


class ProfileTable(_Table):
    """`[profile.NAME]`, brought along by `init --profile NAME`: names that are allowed besides `[commands] allow`."""

    allow: tuple[str, ...] = ()


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
    """One of `[redaction] extra_patterns`. If the expression has a group (named `value`, or any), that group is the secret."""

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
    """The whole file. `options`: named sets of option strings, used as "@NAME" in any `allow_options`."""

    commands: Commands = Commands()
    metacharacters: Literal["unquoted", "anywhere"] = "unquoted"
    globs: Literal["expand", "refuse"] = "expand"
    options: dict[str, tuple[str, ...]] = {}
    profile: dict[str, ProfileTable] = {}
    rules: dict[str, Rule] = {}
    limits: Limits = Limits()
    jail: Jail = Jail()
    environment: Environment = Environment()
    audit: Audit = Audit()
    containment: Containment = Containment()
    redaction: Redaction = Redaction()
    output: Output = Output()
    tests: tuple[SelfTest, ...] = ()
