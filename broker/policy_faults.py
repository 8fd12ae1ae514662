"""Every fault of shape in a policy file: unknown keys and wrong types, all of them, each with its place and its value.

Imported only for a file that failed to decode. Always true: it returns at least one line for such a file.
"""

import typing

import msgspec

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
        for number, inner in enumerate(value):
            _walk(inner, arguments[0], f"{key}.{number}", faults)
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
            faults.append(f"{_join(key, name)}: unknown key; one of {', '.join(fields)} is expected")
    for name, field in fields.items():
        if field.required and name not in value:
            faults.append(f"{_join(key, name)}: missing")


def _convert(value: object, expected: typing.Any, key: str, faults: list[str]) -> None:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        faults.append(f"{key}: {_brief(value)}: {str(error).partition(' - at ')[0]}")


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
