"""Every fault of shape in a policy file: unknown keys and wrong types, all of them, each with its place and its value.

Imported only for a file that failed to decode. Always true: it returns at least one line for such a file; entries of a
list are counted from 1, and one that has a text of its own, as a test its command, is named by it.
"""

import typing

import msgspec

from broker.nearest import nearest
from broker.schema import PolicyFile

VALUE_CHARACTERS = 60


def faults_of_shape(table: dict[str, object]) -> list[str]:
    """Return a line `table.key: value: what was expected` for each fault."""
    faults: list[str] = []
    _walk(table, PolicyFile, "", faults)
    return faults or ["is no policy"]


def _walk(value: object, expected: typing.Any, key: str, faults: list[str]) -> None:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        _walk_table(value, expected, key, faults)
    elif origin is dict and isinstance(value, dict):
        for name, inner in value.items():
            _walk(inner, arguments[1], _join(key, name), faults)
    elif origin is tuple and isinstance(value, list):
        for number, inner in enumerate(value, 1):
            before = len(faults)
            _walk(inner, arguments[0], f"{key}.{number}", faults)
            faults[before:] = [f"{fault}{_named(inner)}" for fault in faults[before:]]
    else:
        _convert(value, expected, key, faults)


def _walk_table(value: object, expected: type[msgspec.Struct], key: str, faults: list[str]) -> None:
    if not isinstance(value, dict):
        faults.append(f"{key}: {_brief(value)}: a table is expected")
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(expected)}
    for name, inner in value.items():
        if name in fields:
            _walk(inner, fields[name].type, _join(key, name), faults)
        else:
            faults.append(f"{_join(key, name)}: unknown key; {_meant(name, list(fields))}")
    for name, field in fields.items():
        if field.required and name not in value:
            faults.append(f"{_join(key, name)}: missing")


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


def _convert(value: object, expected: typing.Any, key: str, faults: list[str]) -> None:
    if typing.get_origin(expected) is typing.Literal and value not in typing.get_args(expected):
        choices = " or ".join(repr(choice) for choice in typing.get_args(expected))
        faults.append(f"{key}: {_brief(value)}: {choices} is expected")
        return
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        faults.append(f"{key}: {_brief(value)}: {_expectation(error)}")


def _expectation(error: msgspec.ValidationError) -> str:
    """Return what msgspec expected; that a key may be missing is no value that TOML could write."""
    return str(error).partition(" - at ")[0].replace(" | null`", "`")


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
