"""The policy reference against the schema: no key undocumented, none documented that does not exist, defaults true."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from broker import policy_profiles, schema
from broker.nursery import UMASK
from tests.support.documents import DOCUMENTS, README, ROOT, blocks, rows
from tests.support.opened_trail import files_of, open_trail, run

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


def test_an_entry_that_the_readme_names_is_one_that_ships() -> None:
    named = set(re.findall(r"`(\[(?:rules|profile)\.[a-z].*?\])`", README.read_text(encoding="utf-8")))
    shipped = [ROOT / "policy.toml", *Path(policy_profiles.FOLDER).glob("*.toml")]
    headers = {
        line.partition("#")[0].strip()
        for path in shipped
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    assert "[rules.make]" in named
    assert not named - headers


def test_the_umask_that_the_readme_tells_is_that_of_commands() -> None:
    told = re.findall(r"umask (\d+)", README.read_text(encoding="utf-8"))
    assert len(told) > 1
    assert {int(mode, 8) for mode in told} == {UMASK}


def test_policies_that_share_a_trail_prune_it_for_all_as_the_documents_say(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    patient, forgetful = open_trail(path), open_trail(path, max_bytes=65_536, keep=1)
    for _ in range(3):
        run(patient)
        patient.rotate()  # as a signal does
    run(forgetful)
    assert len(files_of(path)) == 4, "who says nothing deletes nothing, and neither does a signal"
    for _ in range(100):
        run(forgetful)
    assert len(files_of(path)) == 2
    for trail in (patient, forgetful):
        trail.close()
