"""Reading an audit trail as an operator would: line by line, each a JSON object."""

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def records(path: Path) -> list[Record]:
    """Return every record of the trail at `path`, oldest first. Raises ValueError for a line that is no JSON object."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if not all(isinstance(record, dict) for record in found):
        raise ValueError(f"{path} holds a line that is no JSON object")
    return found


def calls(path: Path) -> list[Record]:
    """Return the records of tool calls: those with a `record_type` of attempt or outcome."""
    return [record for record in records(path) if record.get("record_type") in {"attempt", "outcome"}]


def about(path: Path, word: str) -> list[Record]:
    """Return the records of the calls whose `command_raw` holds `word`."""
    return [record for record in calls(path) if word in (record.get("command_raw") or "")]
