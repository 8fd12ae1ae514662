"""The policy reference against the schema: no key undocumented, none documented that does not exist, defaults true."""

import re
import tomllib

import msgspec
import pytest

from broker import schema
from tests.support.documents import DOCUMENTS, ROOT, blocks, rows

REFERENCE = ROOT / "docs" / "policy.md"
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "Top level": schema.PolicyFile,
    "`[commands]`": schema.Commands,
    "`[rules.NAME]`": schema.Rule,
    "`[rules.NAME.limits]`": schema.LimitOverrides,
    "`[limits]`": schema.Limits,
    "`[profile.NAME]`": schema.ProfileTable,
    "`[jail]`": schema.Jail,
    "`[environment]`": schema.Environment,
    "`[audit]`": schema.Audit,
    "`[containment]`": schema.Containment,
    "`[redaction]`": schema.Redaction,
    "Each of `extra_patterns`:": schema.ExtraPattern,
    "`[output]`": schema.Output,
    "`[[tests]]`": schema.SelfTest,
}
HEADING = re.compile(r"^(?:#{2,3} (.+)|(Each of .+:))$", re.MULTILINE)


def documented() -> dict[str, dict[str, str]]:
    """Return section → key → default as it is written."""
    text = REFERENCE.read_text(encoding="utf-8")
    heads = list(HEADING.finditer(text))
    found = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        table = [
            row for row in rows(text[head.end() : following.start() if following else None]) if len(row) == 3
        ]
        if table and table[0] == ["key", "default", "meaning"]:
            found[head[1] or head[2]] = {row[0].strip("`"): row[1] for row in table[1:]}
    return found


def test_every_table_of_the_schema_has_its_section_and_no_other() -> None:
    assert documented().keys() == SECTIONS.keys()
    tables = {
        kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, schema._Table)
    }
    assert tables - {schema._Table} == set(SECTIONS.values())


@pytest.mark.parametrize("name", SECTIONS)
def test_the_keys_of_a_section_are_those_of_its_table(name: str) -> None:
    assert set(documented()[name]) == {field.encode_name for field in msgspec.structs.fields(SECTIONS[name])}


@pytest.mark.parametrize("name", SECTIONS)
def test_the_defaults_that_are_given_are_those_that_hold(name: str) -> None:
    written = documented()[name]
    for field in msgspec.structs.fields(SECTIONS[name]):
        cell = written[field.encode_name]
        if field.required:
            assert cell == "required", field.name
            continue
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if cell.startswith("`") and field.name != "operands":
            value = tomllib.loads(f"x = {cell.strip('`')}")["x"]
            assert (tuple(value) if isinstance(value, list) else value) == default, field.name
        else:
            assert not default or isinstance(default, msgspec.Struct), (field.name, default)


def test_a_key_that_any_document_shows_in_an_example_exists() -> None:
    shown = [tomllib.loads(block.text) for path in DOCUMENTS for block in blocks(path, "toml")]
    assert [msgspec.convert(table, schema.PolicyFile) for table in shown]
