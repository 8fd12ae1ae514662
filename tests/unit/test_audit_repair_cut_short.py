"""`audit repair` that dies or fails at any of its system calls: the next finishes it, and a record names what was sealed."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import audit_verify
from broker.audit_repair import repair
from broker.refusal import StartupError
from tests.support.opened_trail import files_of, open_trail, records, run, verified

CHANGING = ("write", "link", "rename", "unlink", "fsync", "ftruncate")
MOST_CALLS = 60


class Killed(BaseException):
    """What a process sees of its own end."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trail of four files."""
    folder = tmp_path_factory.mktemp("whole")
    trail = open_trail(folder / "audit.jsonl")
    for turn in range(4):
        run(trail, f"echo {turn}")
        if turn < 3:
            trail.rotate()
    trail.close()
    return folder


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk, from whose memory a process that dies takes nothing, and for no lock: repair itself has it."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    monkeypatch.setattr(audit_verify, "settled_size", lambda fd: os.fstat(fd).st_size)


def change(name: str) -> None:
    content = bytearray(Path(name).read_bytes())
    content[200] ^= 1
    Path(name).write_bytes(content)


def tear(name: str) -> None:
    with Path(name).open("ab") as file:
        file.write(b'{"seq":')


def begin_to_rotate(files: list[str]) -> None:
    """Give the last file the name that it gets before it says that it was rotated away."""
    number = json.loads(Path(files[-1]).read_bytes().partition(b"\n")[0])["seq"]
    os.link(files[-1], f"{files[-1]}.{number:012}")


DAMAGES: dict[str, Callable[[list[str]], object]] = {
    "last changed": lambda files: change(files[-1]),
    "last changed, a rotation begun": lambda files: (begin_to_rotate(files), change(files[-1])),
    "second changed, a rotation begun": lambda files: (begin_to_rotate(files), change(files[1])),
    "second changed": lambda files: change(files[1]),
    "second changed, last torn": lambda files: (change(files[1]), tear(files[-1])),
    "first and third changed": lambda files: (change(files[0]), change(files[2])),
    "second and last changed": lambda files: (change(files[1]), change(files[-1])),
    "second missing": lambda files: os.unlink(files[1]),
    "last removed": lambda files: os.unlink(files[-1]),
    "last emptied": lambda files: os.truncate(files[-1], 0),
    "last cut": lambda files: os.truncate(files[-1], 100),
    "last cut, third changed": lambda files: (os.truncate(files[-1], 100), change(files[2])),
    "last cut, third torn": lambda files: (os.truncate(files[-1], 100), tear(files[2])),
}


def damaged(whole: Path, folder: Path, damage: str) -> Path:
    shutil.copytree(whole, folder)
    path = folder / "audit.jsonl"
    DAMAGES[damage](files_of(path))
    return path


def contents(folder: Path) -> set[bytes]:
    return {file.read_bytes() for file in folder.iterdir()}


def repair_until(path: Path, calls: int, failure: BaseException, *, for_good: bool) -> bool:
    """Repair, and let the call of that number fail, with `for_good` all later ones too; return whether it came so far."""
    made = 0

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made == calls or (for_good and made > calls):
                raise failure
            return call(*arguments, **options)

        return instead

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            repair(str(path))
        except (Killed, OSError):
            assert made >= calls
    return made >= calls


def names_sealed(path: Path) -> str:
    return "".join(r["detail"] for r in records(path) if r.get("event") in ("repaired", "sealed"))


def goes_on(path: Path) -> bool:
    try:
        trail = open_trail(path)
    except StartupError:
        return False
    run(trail)
    trail.close()
    return True


def check_repaired(path: Path, before: set[bytes]) -> None:
    """Check that the trail is sound and starts, that no byte is lost, and that a record names each file that was sealed."""
    assert verified(path).fault is None
    assert goes_on(path)
    assert repair(str(path)).said.startswith("nothing to repair")
    now = contents(path.parent)
    assert all(any(file.startswith(old.removesuffix(b'{"seq":')) for file in now) for old in before)
    named = [file for file in path.parent.glob("*.sealed-*") if file.name in names_sealed(path)]
    for sealed in path.parent.glob("*.sealed-*"):
        assert any(sealed.samefile(file) for file in named), sealed


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repair_leaves_a_sound_trail_and_all_bytes(whole: Path, tmp_path: Path, damage: str) -> None:
    path = damaged(whole, tmp_path / "trail", damage)
    before = contents(path.parent)
    assert verified(path).fault is not None if path.exists() else True
    said = repair(str(path)).said
    assert list(path.parent.glob("*.sealed-*"))
    assert damage.count("changed") <= said.count("its hash does not fit")
    check_repaired(path, before)


@pytest.mark.parametrize("between", [False, True], ids=["", "a broker starts before the next repair"])
@pytest.mark.parametrize("for_good", [True, False], ids=["killed", "failing"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repair_that_is_cut_short_is_finished_by_the_next(
    whole: Path, tmp_path: Path, damage: str, *, for_good: bool, between: bool
) -> None:
    for calls in range(1, MOST_CALLS):
        path = damaged(whole, tmp_path / str(calls), damage)
        before = contents(path.parent)
        failure = Killed() if for_good else OSError(errno.EIO, os.strerror(errno.EIO))
        came_so_far = repair_until(path, calls, failure, for_good=for_good)
        if between:
            goes_on(path)
        repair(str(path))
        check_repaired(path, before)
        if not came_so_far:
            break
    assert calls in range(5, MOST_CALLS - 1)


@pytest.mark.parametrize("call", ["write", "link", "rename"])
def test_a_repair_that_fails_names_a_file_and_leaves_no_second_name(
    whole: Path, tmp_path: Path, call: str
) -> None:
    path = damaged(whole, tmp_path / "trail", "last changed")
    before = set(os.listdir(path.parent))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space") as caught:
            repair(str(path))
    assert caught.value.filename == str(path)
    assert set(os.listdir(path.parent)) - before <= {path.name + ".new"}
