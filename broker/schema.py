"""The shape of policy.toml, as msgspec Structs: what each key means, its unit and its default.

Always true: an unknown key or a wrong type is an error. This module only says what may stand in the file; what
it means for a command is decided in `policy`, and what the kernel is told in `confinement`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class Commands(_Table, frozen=True):
    """`[commands]`: names that may be called, and names that may not. Deny wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class LimitOverrides(_Table, frozen=True):
    """`[rules.NAME.limits]`: limits of one program, in the units of `Limits`; None inherits."""

    timeout_s: Seconds | None = None
    stdout_bytes: Positive | None = None
    stderr_bytes: Positive | None = None
    cpu_s: Positive | None = None
    memory_bytes: Annotated[int, Meta(ge=0)] | None = None
    processes: Positive | None = None
    open_files: Positive | None = None
    file_bytes: Annotated[int, Meta(ge=0)] | None = None


class Limits(_Table, frozen=True):
    """`[limits]`: clocks in seconds, sizes in bytes, counts plain. `memory_bytes` 0: no limit on address space."""

    timeout_s: Seconds = 30.0
    stdout_bytes: Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)] = 262_144
    stderr_bytes: Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)] = 65_536
    concurrent: Annotated[int, Meta(ge=1, le=256)] = 8
    cpu_s: Positive = 60
    memory_bytes: Annotated[int, Meta(ge=0)] = 4 * 1024**3
    processes: Positive = 64
    open_files: Annotated[int, Meta(ge=8, le=1_048_576)] = 256
    file_bytes: Annotated[int, Meta(ge=0)] = 1024**3


class Rule(_Table, frozen=True):
    """`[rules.NAME]`, `[rules.NAME.subcommand.SUB]`: what arguments a program may have, and what it may do.

    Without `allow_options`, `operands` and subcommands any option passes, but every part of every word that
    could be a path is checked. The keys:

    arguments         "any": arguments are not checked at all, the kernel alone confines the program.
    option_style      "gnu": clusters (`-la`), attached values (`-A5`, `--name=value`), options after operands.
                      "single-dash": a word that begins with `-` is one option (`-maxdepth`), as find has it.
    options_first     the program reads no option after its first operand.
    allow_options     only these. A string is some flags, or all names of one option and its value's kind:
                        "-i --quiet"                   flags; in style gnu "-ivn" is three flags
                        "-A, --after-context=integer"  a value, attached or in the next word
                        "-L =integer"                  a value, always in the next word
                        "--rawfile =text path"         two values in the next two words
                        "--color[=always|never]"       a value that may be missing, always attached
                        "--merged?=revision"           a value in the next word, missing at the command's end
                        "--[no-]renames"               two options
                        "-NUM"                         a minus sign and a number, as in `head -20`
                        "@NAME"                        the set NAME of the table `[options]`
                      Names are exact: of an abbreviated long name the reason says to write it out.
    deny_options      not these, however they are abbreviated, clustered or attached. With both, deny wins.
    require_options   only together with all of these; of a program with subcommands: in front of one.
    operands          kinds of the words that are no options, in order; the last repeats. Default: "path".
    operands_with     option: `operands` that hold once that option is given (grep's -e, `git tag --list`).
    no_word_begins_with  a character with which the program reads further arguments from a file (`@` in binutils,
                      argparse, ruff): no word may begin with it.
    instead           option, subcommand or "operands": what to do instead, for the reason of a refusal.
    arguments_before  put in front of what the caller wrote; for a subcommand, right after its name.
    environment       fixed variables.
    subcommands       names of which the first operand must be one; default: those with a rule of their own.
    subcommand_optional  whether there may be none (`git --version`).
    writes, network, may_run, may_run_own, read, temporary, limits: see `Profile` and `Limits`. A subcommand's
                      rights come on top of its program's. An absolute path in may_run may have `*`.

    Kinds of operands and values:

    "path"              beneath the jail, after links are resolved
    "folder"            a path that the command's later paths are relative to (`git -C`)
    "text"              not checked
    "integer"           digits, perhaps with a sign
    "revision"          git's name of an object: does not begin with `-`
    "revision-or-path"  either
    "none"              no word may stand here
    "a|b|c"             one of these words
    "/EXPRESSION/"      matches as a whole (RE2)
    "path&/EXPRESSION/", "text&!/EXPRESSION/"   of that kind, and matches as a whole; does not contain a match.
                        Of a path: so does the place that it ends at, links resolved
    """

    arguments: Literal["checked", "any"] = "checked"
    option_style: Literal["gnu", "single-dash"] = "gnu"
    options_first: bool = False
    allow_options: tuple[str, ...] | None = None
    deny_options: tuple[str, ...] = ()
    require_options: tuple[str, ...] = ()
    operands: tuple[str, ...] | None = None
    operands_with: dict[str, tuple[str, ...]] = {}
    no_word_begins_with: str = ""
    instead: dict[str, str] = {}
    arguments_before: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    subcommands: tuple[str, ...] | None = None
    subcommand: dict[str, "Rule"] = {}
    subcommand_optional: bool = False
    writes: bool = False
    network: bool = False
    may_run: tuple[str, ...] = ()
    may_run_own: bool = False
    read: tuple[str, ...] = ()
    temporary: bool = False
    limits: LimitOverrides = LimitOverrides()


class ProfileTable(_Table, frozen=True):
    """`[profile.NAME]`, written by `init --profile NAME`: what comes on top of `[commands] allow` and `[options]`.

    `rules` stands in the place of the file's `[rules]`: a rule or subcommand that has a key of its own replaces the
    one of that name, the others stay.
    """

    allow: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = {}
    rules: dict[str, Rule] = {}


class Jail(_Table, frozen=True):
    """`[jail]`: HTMCP_JAIL_ROOT wins; without both, the current directory."""

    root: str | None = None


class Environment(_Table, frozen=True):
    """`[environment]`: where programs are looked up, and further fixed variables for every command."""

    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    set: dict[str, str] = {}


class Audit(_Table, frozen=True):
    """`[audit]`: HTMCP_AUDIT_LOG and HTMCP_AUDIT_FAIL_MODE win."""

    log: str | None = None
    fail_mode: Literal["closed", "open"] = "closed"
    durability: Literal["sync", "os"] = "sync"
    max_bytes: Annotated[int, Meta(ge=65_536)] | None = None
    keep: Annotated[int, Meta(ge=1, le=10_000)] = 10
    mirror: str | None = None


class Containment(_Table, frozen=True):
    """`[containment]`: what to do where the kernel lacks a layer, and as whom a root broker runs commands."""

    mode: Literal["required", "best-effort", "off"] = "required"
    run_as: str | None = None


class ExtraPattern(_Table, frozen=True):
    """One of `[redaction] extra_patterns`. A group of the expression, named `value` or not, is the secret."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
    regex: Annotated[str, Meta(min_length=1, max_length=4096)]
    example: str | None = None


class Redaction(_Table, frozen=True):
    """`[redaction]`."""

    enabled: bool = True
    entropy_fallback: bool = False
    extra_patterns: tuple[ExtraPattern, ...] = ()


class Output(_Table, frozen=True):
    """`[output]`: whether terminal control sequences are removed (before redaction) or kept."""

    control_sequences: Literal["strip", "keep"] = "strip"


class SelfTest(_Table, frozen=True):
    """One of `[[tests]]`: run at each start and by `check`."""

    command: str
    expect: Literal["allow", "deny"]
    reason: str | None = None


class PolicyFile(_Table, frozen=True):
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
