"""Rotation: by size and by hand, with one broker and with several, and when it is cut short."""

import os
from pathlib import Path

import pytest

from broker import audit_rotation
from broker.audit_file import TrailFaultError, TrailFile
from broker.refusal import StartupError
from tests.support.opened_trail import files_of, open_trail, records, run, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_the_chain_goes_on_across_files(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.rotate()
    run(trail)
    trail.close()
    assert files_of(path) == [f"{path}.000000000001", str(path)]
    assert [r.get("event") for r in records(path)] == [None, None, "rotated", "continued", None, None]
    assert verified(path).sound


def test_an_empty_trail_is_not_rotated(path: Path) -> None:
    trail = open_trail(path)
    trail.rotate()
    trail.close()
    assert files_of(path) == [str(path)]


def test_files_stay_below_their_size_and_only_so_many_are_kept(path: Path) -> None:
    trail = open_trail(path, max_bytes=65_536, keep=3)
    for _ in range(400):
        run(trail)
    trail.close()
    files = files_of(path)
    assert len(files) == 4
    assert all(os.path.getsize(file) <= 65_536 for file in files)
    assert min(os.path.getsize(file) for file in files[:-1]) > 60_000
    assert verified(path).sound


def test_a_signal_makes_no_file_vanish(path: Path) -> None:
    trail = open_trail(path, max_bytes=65_536, keep=1)
    for _ in range(5):
        run(trail)
        trail.rotate()
    trail.close()
    assert len(files_of(path)) == 6
    assert verified(path).sound


def test_another_broker_follows_a_rotation(path: Path) -> None:
    first, second = open_trail(path), open_trail(path)
    for _ in range(3):
        run(first)
        first.rotate()
    run(second)
    second.rotate()
    run(first)
    assert len(records(path)) == 5 * 2 + 4 * 2
    assert verified(path).sound
    for trail in (first, second):
        trail.close()


def test_a_broker_that_was_idle_while_files_were_deleted_goes_on(path: Path) -> None:
    idle, busy = open_trail(path), open_trail(path, max_bytes=4096, keep=1)
    run(idle)
    for _ in range(20):
        run(busy)
    assert len(files_of(path)) == 2
    run(idle)
    assert verified(path).sound
    for trail in (idle, busy):
        trail.close()


def test_a_new_file_is_locked_before_anybody_can_see_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = audit_rotation.take_over
    monkeypatch.setattr("broker.audit_file.LOCK_WAIT_S", 0)

    def take_over(name: str) -> None:
        original(name)
        stranger = TrailFile.open(name, create=False)
        with pytest.raises(TrailFaultError, match="locked"):
            stranger.lock()
        stranger.close()

    monkeypatch.setattr(audit_rotation, "take_over", take_over)
    trail = open_trail(path)
    run(trail)
    trail.rotate()
    run(trail)
    trail.close()
    assert verified(path).sound


class DiedError(BaseException):
    """Ends a rotation as a kill would."""


@pytest.mark.parametrize("step", ["give_name", "make_next", "fill_next", "take_over"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("who", ["a new broker", "a running broker"])
def test_a_rotation_that_was_cut_short_is_finished_by_the_next_broker(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str, who: str
) -> None:
    other = open_trail(path) if who == "a running broker" else None
    trail = open_trail(path)
    run(trail)
    original = getattr(audit_rotation, step)

    def die(*arguments: object) -> None:
        if when == "after":
            original(*arguments)
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(audit_rotation, step, die)
        with pytest.raises(DiedError):
            trail.rotate()
    trail._chain.close()
    other = other or open_trail(path)
    run(other)
    other.rotate()
    run(other)
    other.close()
    assert verified(path).sound
    assert len([r for r in records(path) if r["record_type"] == "outcome"]) == 3


def test_a_folder_that_refuses_new_names_leaves_the_trail_in_one_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    said: list[str] = []
    trail = open_trail(path, said.append, max_bytes=65_536)
    for _ in range(120):
        run(trail)
    trail.rotate()
    trail.close()
    assert files_of(path) == [str(path)]
    assert verified(path).records == 240
    assert 1 < sum("not rotated" in line for line in said) < 10


def test_a_trail_that_is_missing_beside_its_rotated_files_is_refused(path: Path) -> None:
    trail = open_trail(path)
    run(trail)
    trail.rotate()
    trail.close()
    path.unlink()
    with pytest.raises(StartupError, match="repair"):
        open_trail(path)
    path.touch(0o600)
    with pytest.raises(StartupError, match="repair"):
        open_trail(path)
