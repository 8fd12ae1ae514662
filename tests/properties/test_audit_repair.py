"""Whatever is done to a trail: what `verify` calls sound starts, the rest is repaired, starts then, and has lost nothing."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import audit_verify
from broker.audit_repair import repair
from tests.support.opened_trail import a_call, files_of, open_trail, run, verified


@pytest.fixture(scope="module", autouse=True)
def _no_waiting() -> Iterator[None]:
    """Wait for no disk, and for no lock: repair itself has it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _: None)
        patch.setattr(audit_verify, "settled_size", lambda fd: os.fstat(fd).st_size)
        yield


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    file.write_bytes(content)


def cut(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(file.stat().st_size + 1))


def repeat_a_line(file: Path, chance: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True) or [b"{}\n"]
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    file.write_bytes(b"".join(lines))


def behead(file: Path, chance: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[chance.randrange(len(lines) + 1) :]))


def remove(file: Path, _: random.Random) -> None:
    file.unlink()


def exchange(file: Path, chance: random.Random) -> None:
    other = chance.choice(sorted(file.parent.glob("audit.jsonl*")))
    before = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(before)


def rename(file: Path, chance: random.Random) -> None:
    file.rename(file.parent / f"audit.jsonl.{chance.randrange(1, 40):012}")


def append(file: Path, chance: random.Random) -> None:
    with file.open("ab") as writing:
        writing.write(chance.choice([b'{"seq":', b"\n", b"x", b"{}\n", bytes(50)]))


def overwrite(file: Path, chance: random.Random) -> None:
    file.write_bytes(chance.randbytes(300))


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    flip,
    cut,
    repeat_a_line,
    behead,
    remove,
    exchange,
    rename,
    append,
    overwrite,
]


def write_trail(path: Path, chance: random.Random) -> None:
    trail = open_trail(path)
    for _ in range(chance.randrange(1, 8)):
        if chance.random() < 0.3:
            trail.attempt(a_call())
        run(trail)
        if chance.random() < 0.5:
            trail.rotate()
    trail.close()


def lines_in(folder: Path) -> set[bytes]:
    return {line for file in folder.iterdir() for line in file.read_bytes().split(b"\n") if len(line) > 60}


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_a_damaged_trail_is_sound_and_starts_or_is_repaired_and_starts(
    chance: random.Random, damages: list[Callable[[Path, random.Random], None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        write_trail(path, chance)
        for damage in damages:
            if left := sorted(path.parent.glob("audit.jsonl*")):
                damage(chance.choice(left), chance)
        if not path.exists() and len(files_of(path)) == 1:
            return
        before = lines_in(path.parent)
        if not path.exists() or not verified(path).sound:
            repair(str(path))
        assert verified(path).sound
        open_trail(path).close()
        assert repair(str(path)).said.startswith("nothing to repair")
        assert before <= lines_in(path.parent)
