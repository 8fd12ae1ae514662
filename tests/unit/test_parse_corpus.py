"""Every case of the parse corpus: what a tokeniser must do, read with quotes respected.

A row says `parse`: argv, refuse, or either. `argv_quote_aware` is what a tokeniser that respects quotes may return where
one that looks at raw text refuses. `refused` says why we refuse more than the row asks for. `repeat` builds long commands.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.grammar import parse
from broker.refusal import Refusal
from protocol.messages import RunRequest

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "adversarial/data/parse.jsonl").read_text("utf-8").splitlines()
]


def command_of(row: dict[str, Any]) -> Any:
    return "".join(text * times for text, times in row["repeat"]) if "repeat" in row else row["command"]


def parsed(command: str) -> list[str] | None:
    try:
        return list(parse(command).texts)
    except Refusal:
        return None


def test_every_case_names_its_origin() -> None:
    assert len(ROWS) == len({row["id"] for row in ROWS}) == 134
    assert all(row["origin"] for row in ROWS)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.get("command", "") is not None], ids=lambda row: row["id"]
)
def test_a_case_parses_as_the_corpus_says(row: dict[str, Any]) -> None:
    got = parsed(command_of(row))
    if row["parse"] == "argv" and "refused" not in row:
        assert got == row["argv"]
    elif row["parse"] == "either":
        assert got in (None, row.get("argv", got))
    else:
        assert got is None or got == row.get("argv_quote_aware")


def test_a_command_that_is_no_string_is_no_request() -> None:
    for row in ROWS:
        if row.get("command", "") is None:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({"type": "run", "id": 1, "command": None}, RunRequest)


def test_quotes_protect_metacharacters_where_a_shell_passes_them_on() -> None:
    protected = [row for row in ROWS if row["kind"] == "quoted-metachar"]
    assert protected
    assert [parsed(command_of(row)) for row in protected] == [row["argv_quote_aware"] for row in protected]


def test_with_metacharacters_refused_anywhere_every_quoted_one_is_refused() -> None:
    for row in ROWS:
        if row["kind"] == "quoted-metachar":
            with pytest.raises(Refusal):
                parse(command_of(row), metacharacters="anywhere")
