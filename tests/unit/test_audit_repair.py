"""`audit repair`: what it seals, what it starts, and what it leaves alone."""

import hashlib
import json
from pathlib import Path

import pytest

from broker.refusal import StartupError
from tests.support.opened_trail import open_trail, printed, records, run, varied_trail, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return varied_trail(tmp_path / "audit.jsonl")


def test_repair_leaves_a_sound_trail_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert "nothing to repair" in printed(capsys, "repair", "--log", str(path))
    assert path.read_bytes() == before


def test_repair_seals_the_old_files_and_starts_a_trail_that_names_the_last_hash(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = records(path)[-1]
    broken = path.read_bytes().replace(b"rm -r x", b"ls -r x", 1)
    path.write_bytes(broken)
    with pytest.raises(StartupError):
        open_trail(path)
    said = printed(capsys, "repair", "--log", str(path))
    sealed = [
        Path(line.removeprefix("sealed: ")) for line in said.splitlines() if line.startswith("sealed: ")
    ]
    assert len(sealed) == 2
    assert sealed[-1].read_bytes() == broken
    trail = open_trail(path)
    run(trail)
    trail.close()
    first = records(path)[0]
    assert (first["event"], first["prev"], first["seq"]) == ("repaired", last["hash"], last["seq"] + 1)
    assert "line 2" in first["detail"]
    assert verified(path).sound


def test_repair_of_an_older_file_seals_it_and_keeps_the_rest(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = Path(f"{path}.000000000001")
    older.write_bytes(older.read_bytes().replace(b"git log -1", b"git log -9", 1))
    printed(capsys, "verify", "--log", str(path), status=1)
    content = path.read_bytes()
    printed(capsys, "repair", "--log", str(path))
    assert not older.exists()
    assert verified(path).sound
    assert path.read_bytes().startswith(content)
    noted, attempt = records(path)[-1], json.loads(content.splitlines()[-1])
    (sealed,) = path.parent.glob("*.sealed-*")
    assert (noted["event"], noted["oldest_open"]) == ("repaired", attempt["seq"])
    assert f"line 3 of {sealed.name}: " in noted["detail"]
    assert hashlib.sha256(sealed.read_bytes()).hexdigest() in noted["detail"]


def test_repair_of_an_older_file_sets_a_torn_last_line_aside_before_it_says_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = Path(f"{path}.000000000001")
    older.write_bytes(older.read_bytes().replace(b"git log -1", b"git log -9", 1))
    with path.open("ab") as file:
        file.write(b'{"seq":')
    printed(capsys, "repair", "--log", str(path))
    assert records(path)[-1]["event"] == "repaired"
    assert Path(f"{path}.torn").read_bytes() == b'{"seq":\n'
    assert verified(path).sound


@pytest.mark.parametrize("way", ["removed", "emptied"])
def test_repair_continues_the_rotated_files_of_a_trail_that_is_gone(
    path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    if way == "removed":
        path.unlink()
    else:
        path.write_bytes(b"")
    printed(capsys, "repair", "--log", str(path))
    trail = open_trail(path)
    run(trail)
    trail.close()
    assert verified(path).sound


def test_repair_of_a_file_that_never_was_a_trail(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"nonsense\n" * 1000)
    printed(capsys, "repair", "--log", str(path))
    open_trail(path).close()
    assert verified(path).sound
