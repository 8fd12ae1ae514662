"""`audit repair`: what it seals, what it starts, and what it leaves alone."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.audit_command import main
from broker.audit_repair import repair
from broker.refusal import StartupError
from tests.support.opened_trail import files_of, open_trail, printed, records, run, varied_trail, verified


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
    assert (noted["event"], noted["oldest_open"]) == ("sealed", attempt["seq"])
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
    assert [r.get("event") for r in records(path)[-2:]] == ["torn", "sealed"]
    assert Path(f"{path}.torn").read_bytes() == b'{"seq":\n'
    assert verified(path).sound


@pytest.mark.parametrize("way", ["removed", "emptied", "cut"])
def test_repair_continues_the_rotated_files_of_a_trail_that_is_gone(
    path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    if way == "removed":
        path.unlink()
    else:
        os.truncate(path, 100 if way == "cut" else 0)
        printed(capsys, "verify", "--log", str(path), status=1)
        with pytest.raises(StartupError):
            open_trail(path)
    printed(capsys, "repair", "--log", str(path))
    trail = open_trail(path)
    run(trail)
    trail.close()
    assert verified(path).sound
    assert records(path)[0]["seq"] == 1


def test_repair_of_a_file_that_never_was_a_trail(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"nonsense\n" * 1000)
    printed(capsys, "repair", "--log", str(path))
    open_trail(path).close()
    assert verified(path).sound


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**24, 10**12])
def test_repair_takes_no_number_from_a_bad_file_that_no_trail_reaches(
    path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    last = records(path)[-1]
    with path.open("ab") as file:
        file.write(b'{"seq":%d,"x":1,"hash":"%b"}\n' % (number, b"a" * 64))
    printed(capsys, "repair", "--log", str(path))
    trail = open_trail(path)
    run(trail, "echo after")
    trail.close()
    assert verified(path).sound
    assert (records(path)[0]["seq"], records(path)[0]["prev"]) == (last["seq"] + 1, last["hash"])
    assert "echo after" in printed(capsys, "show", "--log", str(path))


def test_lines_before_the_record_of_what_was_sealed_cannot_be_cut_off(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = Path(f"{path}.000000000001")
    older.write_bytes(older.read_bytes().replace(b"git log -1", b"git log -9", 1))
    printed(capsys, "repair", "--log", str(path))
    last = path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(last)
    assert json.loads(last)["event"] == "sealed"
    assert not verified(path).sound
    with pytest.raises(StartupError):
        open_trail(path)


def test_no_repair_takes_the_place_of_a_file_that_an_earlier_one_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101T000000Z")
    path = tmp_path / "audit.jsonl"
    bad = []
    for turn in range(3):
        varied_trail(path)
        for name in files_of(path):
            bad.append(Path(name).read_bytes().replace(b'"OK"', b'"K%d"' % turn, 1))
            Path(name).write_bytes(bad[-1])
        assert len(repair(str(path)).sealed) == 2
        path.unlink()
    sealed = [file.read_bytes() for file in tmp_path.glob("*.sealed-*")]
    assert sorted(sealed) == sorted(bad)


def test_repairs_at_once_do_what_one_does(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    command = [sys.executable, "-c", REPAIR, str(path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    said = []
    for process in running:
        with process:
            out, err = process.communicate(timeout=30)
            assert (process.returncode, err) == (0, b"")
            said.append(b"nothing to repair" in out)
    assert sorted(said) == [False, True, True, True]
    assert verified(path).sound
    assert len(list(path.parent.glob("*.sealed-*"))) == 2


REPAIR = """
import sys, broker.audit_file
from broker.audit_command import main
broker.audit_file.LOCK_WAIT_S = 20
sys.exit(main(["repair", "--log", sys.argv[1]]))
"""


def test_a_repair_for_which_the_disk_is_full_says_so_of_the_trail(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Path(f"{path}.000000000001")
    older.write_bytes(older.read_bytes().replace(b"git log -1", b"git log -9", 1))
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(StartupError, match=rf"^audit log {path}: No space left"):
        main(["repair", "--log", str(path)])
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_trail_whose_name_is_no_text_is_repaired(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    varied_trail(path)
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    repair(str(path))
    assert "sealed \\udcff.jsonl" in records(path)[0]["detail"]
    assert verified(path).sound


def test_where_there_is_no_trail_a_repair_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no trail"):
        main(["repair", "--log", str(tmp_path / "audit.jsonl")])
    assert list(tmp_path.iterdir()) == []
