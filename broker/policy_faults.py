"""Every fault of a policy file that can be told at once, whatever kind it is, each with its place and its value.

Imported for a file that was refused, and by `check`. Always true: a fault of shape hides nothing but what it touches: the
rest is decoded without it, and judged on. Nothing is told that is only so because of another fault: a rule with a fault
is not judged further, nor are tests of its program tried. Entries of a list are counted from 1, and one that has a text
of its own, as a test its command, is named by it.
"""

import pwd
import typing

import msgspec

from broker.nearest import nearest
from broker.policy_file import combined, faults_of_lists, faults_of_rule, named_in, named_programs
from broker.refusal import StartupError
from broker.rules import OptionSets
from broker.schema import PolicyFile, Redaction, Rule

VALUE_CHARACTERS = 60
_LEFT_OUT: typing.Final = object()
"""In the place of a value that has a fault."""

_LISTS = ("commands", "profile")
_FOR_TESTS = (*_LISTS, "options", "globs", "metacharacters")
"""What the verdict on every test depends on."""


def all_faults(table: dict[str, typing.Any]) -> list[str]:
    """Return a line `table.key: value: what was expected` for each fault; none for a policy without any."""
    faults: list[str] = []
    whole = _walk(table, PolicyFile, "", faults)
    touched = {name for name in table if name not in whole or whole[name] != table[name]}
    file = combined(msgspec.convert(_judgeable(whole, table, touched), PolicyFile))
    faults += faults_of_lists(file)
    sets, listed, bad = OptionSets(file.options), named_in(file.commands), _touched_rules(whole, table)
    for name, rule in file.rules.items():
        found = faults_of_rule(name, rule, sets, listed)
        faults += found
        bad |= {name} if found else set()
    faults += _faults_of_settings(file)
    if faults and not touched & set(_FOR_TESTS):
        faults += _faults_of_tests(file, bad)
    return faults


def _touched_rules(whole: dict[str, typing.Any], table: dict[str, typing.Any]) -> set[str]:
    before, after = table.get("rules", {}), whole.get("rules", {})
    return {name for name in before if name not in after or after[name] != before[name]}


def _judgeable(
    whole: dict[str, typing.Any], table: dict[str, typing.Any], touched: set[str]
) -> dict[str, typing.Any]:
    """Return what of `whole` can be judged although parts of `table` are missing in it."""
    rules = {name: rule for name, rule in whole.get("rules", {}).items() if rule == table["rules"][name]}
    if "options" in touched:
        rules = {name: rule for name, rule in rules.items() if "'@" not in repr(rule)}
    if touched & set(_LISTS):  # which of them are on no list cannot be told
        commands = dict(whole.get("commands", {}))
        profiles = {n: p for n, p in whole.get("profile", {}).items() if p == table["profile"][n]}
        named = [name for profile in profiles.values() for name in profile.get("rules", ())]
        commands["allow"] = [*commands.get("allow", ()), *rules, *named]
        whole = {**whole, "commands": commands, "profile": profiles}
    return {**whole, "rules": rules}


def _faults_of_settings(file: PolicyFile) -> list[str]:
    """Return what a start would be refused for on this machine, once the policy itself has no fault."""
    from broker.audit_mirror import fault_of
    from broker.redaction import Redactor

    faults = []
    patterns = [(pattern,) for pattern in file.redaction.extra_patterns]
    for extra in [*patterns, file.redaction.extra_patterns]:
        try:
            Redactor(Redaction(extra_patterns=extra))
        except StartupError as error:
            faults.append(str(error))
    if file.audit.mirror is not None and (fault := fault_of(file.audit.mirror)):
        faults.append(f"audit.mirror: {fault}")
    if user := file.containment.run_as:
        try:  # whether we are root, who alone may become somebody else, is no fault of the file
            pwd.getpwnam(user)
        except KeyError:
            faults.append(f"containment.run_as: there is no user {user!r}")
    return list(dict.fromkeys(faults))


def _faults_of_tests(file: PolicyFile, bad: set[str]) -> list[str]:
    """Return the tests that fail, but those of the programs whose rules are `bad`. The lists have no fault."""
    from broker.policy import Policy
    from broker.programs import Programs
    from broker.selftest import EmptyJail, failure

    rules = {name: rule if name not in bad else Rule() for name, rule in file.rules.items()}
    file, jail = msgspec.structs.replace(file, rules=rules), EmptyJail()
    path = tuple(folder for folder in file.environment.path if folder.startswith("/"))
    policy = Policy(file, b"", jail, Programs(path, jail, named_programs(file), lazily=True))
    tests = [
        (number, test)
        for number, test in enumerate(file.tests, 1)
        if test.command.split() and test.command.split()[0] not in bad
    ]
    found = [(number, failure(policy, test)) for number, test in tests]
    return [f"tests.{number}: self-test failed: {text}" for number, text in found if text]


def _walk(value: typing.Any, expected: typing.Any, key: str, faults: list[str]) -> typing.Any:
    """Return what of `value` has no fault of shape, `_LEFT_OUT` for nothing, and add the faults."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        return _walk_table(value, expected, key, faults)
    if origin is dict and isinstance(value, dict):
        walked = {name: _walk(inner, arguments[1], _join(key, name), faults) for name, inner in value.items()}
        return {name: inner for name, inner in walked.items() if inner is not _LEFT_OUT}
    if origin is tuple and isinstance(value, list):
        return _walk_list(value, arguments[0], key, faults)
    return _convert(value, expected, key, faults)


def _walk_list(value: list[typing.Any], expected: typing.Any, key: str, faults: list[str]) -> typing.Any:
    whole = []
    for number, inner in enumerate(value, 1):
        before = len(faults)
        whole.append(_walk(inner, expected, f"{key}.{number}", faults))
        faults[before:] = [f"{fault}{_named(inner)}" for fault in faults[before:]]
    return [inner for inner in whole if inner is not _LEFT_OUT]


def _walk_table(value: typing.Any, expected: type[msgspec.Struct], key: str, faults: list[str]) -> typing.Any:
    if not isinstance(value, dict):
        faults.append(f"{key}: {_brief(value)}: a table is expected")
        return _LEFT_OUT
    fields = {field.encode_name: field for field in msgspec.structs.fields(expected)}
    whole = {}
    for name, inner in value.items():
        if name in fields:
            whole[name] = _walk(inner, fields[name].type, _join(key, name), faults)
        else:
            faults.append(f"{_join(key, name)}: unknown key; {_meant(name, list(fields))}")
    missing = [name for name, field in fields.items() if field.required and name not in value]
    faults += [f"{_join(key, name)}: missing" for name in missing]
    whole = {name: inner for name, inner in whole.items() if inner is not _LEFT_OUT}
    lost = any(field.required and name not in whole for name, field in fields.items())
    return _LEFT_OUT if lost else whole


def _meant(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"{near[0]} is meant, perhaps" if near else f"one of {', '.join(known)} is expected"


def _named(entry: object) -> str:
    """Return what tells an entry of a list from the others, for the end of a line."""
    if isinstance(entry, dict):
        for name in ("command", "name"):
            if isinstance(entry.get(name), str):
                return f" ({_brief(entry[name])})"
    return ""


def _convert(value: object, expected: typing.Any, key: str, faults: list[str]) -> object:
    if typing.get_origin(expected) is typing.Literal and value not in typing.get_args(expected):
        choices = " or ".join(repr(choice) for choice in typing.get_args(expected))
        faults.append(f"{key}: {_brief(value)}: {choices} is expected")
        return _LEFT_OUT
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        faults.append(f"{key}: {_brief(value)}: {_expectation(error)}{_instead(value, error)}")
        return _LEFT_OUT
    return value


def _expectation(error: msgspec.ValidationError) -> str:
    """Return what msgspec expected; that a key may be missing is no value that TOML could write."""
    return str(error).partition(" - at ")[0].replace(" | null`", "`")


def _instead(value: object, error: msgspec.ValidationError) -> str:
    """Return what to write where a list was expected: TOML's own word for it is array."""
    if not str(error).startswith("Expected `array`"):
        return ""
    words = value.split() if isinstance(value, str) else ["a", "b"]
    return f"; a list is written {_brief(words)}"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
