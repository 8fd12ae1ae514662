"""From the bytes of policy.toml to a `PolicyFile`, or one StartupError that names every fault of the file.

Always true: what is returned has no unknown key, no wrong type, no rule that cannot be compiled and no rule for a program
on no list. A fault is `table.key: value: what was expected`, behind file and line. Nothing here asks whether programs exist.
"""

import os
import tomllib
from typing import Any

import msgspec

from broker.refusal import PolicyFaults, StartupError
from broker.rules import Entry, OptionSets
from broker.schema import Commands, PolicyFile, Rule

_last: tuple[bytes, PolicyFile] | None = None
"""The file that was read last: start-up asks for it more than once, and reading costs milliseconds."""


def load(raw: bytes, where: str) -> PolicyFile:
    """Return the policy in `raw`. Raises StartupError, for all faults at once; `where` names the file in it."""
    global _last  # noqa: PLW0603 - a frozen value, kept as long as its bytes are the same
    if _last is None or _last[0] != raw:
        _last = raw, _load(raw, where)
    return _last[1]


def _load(raw: bytes, where: str) -> PolicyFile:
    table = _parse(raw, where)
    try:
        file = msgspec.convert(table, PolicyFile)
    except msgspec.ValidationError:
        raise refusal(raw, where, _all_faults(table)) from None
    file = combined(file)
    if faults_of_meaning(file):
        raise refusal(raw, where, _all_faults(table))
    return file


def check(raw: bytes, where: str) -> None:
    """Raise StartupError for all faults at once, those too for which only a later step of a start would be refused."""
    if faults := _all_faults(_parse(raw, where)):
        raise refusal(raw, where, faults)


def _all_faults(table: dict[str, Any]) -> list[str]:
    from broker.policy_faults import all_faults  # only for a file that is refused, or checked

    return all_faults(table)


def refusal(raw: bytes, where: str, faults: list[str]) -> PolicyFaults:
    """Return the faults in the order of their lines. There is at least one."""
    from broker.policy_places import Lines  # only for a file that is refused

    lines = Lines(raw.decode())
    return PolicyFaults(
        where, [f"{line}: {fault}" for line, fault in sorted((lines.of(f), f) for f in faults)]
    )


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise StartupError(f"policy {where}: begins with a byte order mark; save it as UTF-8 without one")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise StartupError(f"policy {where}: byte {error.start} is no UTF-8; TOML is UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        from broker.policy_places import placed

        raise PolicyFaults(where, [placed(str(error), raw.decode())]) from None
    except RecursionError:
        raise StartupError(f"policy {where}: tables or lists nested too deeply") from None


def combined(file: PolicyFile) -> PolicyFile:
    """Return `file` with what its profiles bring: names and option sets on its own lists, where its own win; rules above them."""
    if not file.profile:
        return file
    allow = dict.fromkeys(file.commands.allow)
    options: dict[str, tuple[str, ...]] = {}
    rules = file.rules
    for profile in file.profile.values():
        allow.update(dict.fromkeys(profile.allow))
        options.update(profile.options)
        rules = _overlaid(rules, profile.rules)
    commands = msgspec.structs.replace(file.commands, allow=tuple(allow))
    return msgspec.structs.replace(file, commands=commands, options={**options, **file.options}, rules=rules)


def _overlaid(below: dict[str, Rule], above: dict[str, Rule]) -> dict[str, Rule]:
    """Return `below` with the rules `above` in place of those of the same name; one that only has subcommands lays them over."""
    merged = dict(below)
    for name, rule in above.items():
        under = below.get(name)
        if under is not None and rule == Rule(subcommand=rule.subcommand):
            subcommand = _overlaid(under.subcommand, rule.subcommand)
            merged[name] = msgspec.structs.replace(under, subcommand=subcommand)
        else:
            merged[name] = rule
    return merged


def faults_of_meaning(file: PolicyFile) -> list[str]:
    """Return a line for each thing that has the right type but cannot be meant."""
    sets, listed = OptionSets(file.options), named_in(file.commands)
    faults = faults_of_lists(file)
    for name, rule in file.rules.items():
        faults += faults_of_rule(name, rule, sets, listed)
    return faults


def faults_of_lists(file: PolicyFile) -> list[str]:
    """Return what cannot be meant outside of rules."""
    faults: list[str] = []
    for key, names in (("allow", file.commands.allow), ("deny", file.commands.deny)):
        faults += [
            f"commands.{key}: {name!r}: a program's name or absolute path is expected"
            for name in names
            if not _is_program(name)
        ]
    faults += [
        f"environment.path: {path!r}: an absolute path is expected"
        for path in file.environment.path
        if not path.startswith("/")
    ]
    _check_variables(file.environment.set, "environment.set", faults)
    faults += [
        f"tests.{number}.command: '': a command is expected"
        for number, test in enumerate(file.tests, 1)
        if not test.command.strip()
    ]
    return faults


def named_in(commands: Commands) -> frozenset[str]:
    """Return the names of both lists."""
    return frozenset((*commands.allow, *commands.deny))


def faults_of_rule(name: str, rule: Rule, sets: OptionSets, listed: frozenset[str]) -> list[str]:
    """Return what cannot be meant in the rule of a program, which should be `listed`."""
    faults: list[str] = []
    if name not in listed:
        faults.append(
            f"rules.{name}: {name!r} is on no list; a name in commands.allow or commands.deny is expected"
        )
    _check_rule(rule, f"rules.{name}", faults)
    Entry(name, f"[rules.{name}]", rule, sets, faults)
    return faults


def _is_program(name: str) -> bool:
    if not name or any(character.isspace() or character == "\0" for character in name):
        return False
    return "/" not in name or name.startswith("/")


def _check_variables(variables: dict[str, str], key: str, faults: list[str]) -> None:
    for name, value in variables.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value:
            faults.append(
                f"{key}.{name}: a variable's name (letters, digits, _) and a value without NUL are expected"
            )


def _check_rule(rule: Rule, key: str, faults: list[str]) -> None:
    _check_variables(rule.environment, f"{key}.environment", faults)
    faults += [
        f"{key}.read: {path!r}: an absolute path is expected"
        for path in rule.read
        if not path.startswith("/")
    ]
    faults += [
        f"{key}.may_run: {name!r}: a program's name or absolute path is expected"
        for name in rule.may_run
        if not _is_program(name) or ("*" in name and "/" not in name)
    ]
    faults += [
        f"{key}.arguments_before: {word!r}: a word without NUL is expected"
        for word in rule.arguments_before
        if "\0" in word
    ]
    checked = (
        rule.allow_options is not None or rule.operands is not None or rule.deny_options or rule.subcommands
    )
    if rule.arguments == "any" and (checked or rule.subcommand):
        faults.append(
            f"{key}.arguments: 'any': no option, operand or subcommand rules are expected beside it"
        )
    if rule.operands is not None and (rule.subcommands is not None or rule.subcommand):
        faults.append(f"{key}.operands: none are expected beside subcommands; each subcommand has its own")
    for name, inner in rule.subcommand.items():
        _check_rule(inner, f"{key}.subcommand.{name}", faults)


def grants_writes(file: PolicyFile) -> bool:
    """Return whether any program, or subcommand of one, may write in the jail."""
    return any(_any_writes(rule) for rule in file.rules.values())


def _any_writes(rule: Rule) -> bool:
    return rule.writes or any(_any_writes(inner) for inner in rule.subcommand.values())


def named_programs(file: PolicyFile) -> set[str]:
    """Return all programs that the policy allows or lets others start, less the denied ones."""
    names = set(file.commands.allow)
    for rule in file.rules.values():
        names |= _may_run(rule)
    denied = {os.path.basename(name) for name in file.commands.deny}
    return {name for name in names if os.path.basename(name) not in denied}


def _may_run(rule: Rule) -> set[str]:
    names = set(expanded(rule.may_run))
    for inner in rule.subcommand.values():
        names |= _may_run(inner)
    return names


def expanded(names: tuple[str, ...]) -> list[str]:
    """Return `names` with each path that has `*` replaced by the files that it matches on this machine, sorted."""
    found: list[str] = []
    for name in names:
        if "*" in name:
            from glob import glob

            found += sorted(glob(name))
        else:
            found.append(name)
    return found
