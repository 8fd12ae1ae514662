"""Trails that are followed, or read, while files of them are deleted or another one takes their place."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import audit_reading
from broker.audit_command import main
from broker.audit_following import Place, follow, place_of
from broker.audit_reading import Found, entries_backwards, sources_of
from broker.audit_repair import repair
from broker.audit_selection import Selection
from broker.audit_show import newest_first
from tests.support.opened_trail import (
    CALM,
    a_call,
    files_of,
    open_trail,
    printed,
    records,
    rotated_trail,
    run,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a trail of four files stands, two calls in each."""
    return rotated_trail(tmp_path / "audit.jsonl")


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reading, "_gone", set())


def read_now(following: Iterator[Found | None]) -> list[int]:
    """Return the numbers of the records that there are now."""
    found = []
    for record in following:
        if record is None:
            break
        found.append(record[1].seq)
    return found


def end_of(path: Path) -> Place:
    """Return where a reader stands who has read all."""
    return place_of(next(entries_backwards(sources_of(str(path)))))


def calls(path: Path, *turns: int) -> None:
    trail = open_trail(path)
    for turn in turns:
        run(trail, f"echo {turn}")
    trail.close()


def seqs(path: Path) -> list[int]:
    return [record["seq"] for record in records(path)]


@pytest.mark.parametrize("torn_bytes", [100, 700, 1_000, 2_000])
def test_a_reader_that_is_slow_misses_nothing_where_a_torn_line_is_set_aside(
    tmp_path: Path, torn_bytes: int
) -> None:
    path = tmp_path / "audit.jsonl"
    calls(path, 1)
    trail = open_trail(path)
    trail.attempt(a_call("long " + "y" * 3_000))
    trail.close()
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:torn_bytes])
    following = follow(str(path), Place())
    first = next(following)
    assert first is not None
    calls(path, 2)  # sets the torn line aside, and writes where it stood
    seen = [first[1].seq, *read_now(following)]
    calls(path, 3)
    assert [*seen, *read_now(following)] == seqs(path)


def test_a_trail_that_was_removed_and_begun_anew_is_shown_from_its_beginning(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    following = follow(str(path), end_of(path))
    assert read_now(following) == []
    for name in files_of(path):
        os.unlink(name)
    assert read_now(following) == []
    calls(path, 1, 2)
    assert read_now(following) == seqs(path)
    assert "another trail stands there now" in capfd.readouterr().err
    before = seqs(path)[-1]
    calls(path, 3)
    assert read_now(following) == list(range(before + 1, seqs(path)[-1] + 1))


def test_a_trail_that_was_emptied_and_begun_anew_is_shown_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    calls(path, 1, 2, 3)
    following = follow(str(path), end_of(path))
    assert read_now(following) == []
    os.truncate(path, 0)
    calls(path, 4)
    assert read_now(following) == seqs(path)


def test_a_trail_that_was_repaired_goes_on_without_a_word(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    following = follow(str(path), end_of(path))
    assert read_now(following) == []
    last = seqs(path)[-1]
    path.write_bytes(path.read_bytes().replace(b"echo 7", b"echo 8", 1))
    repair(str(path))
    calls(path, 8)
    assert read_now(following)[:2] == [last + 1, last + 2]
    assert capfd.readouterr().err == ""


def test_what_was_rotated_and_deleted_before_it_was_read_is_said_by_those_who_follow(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    following = follow(str(path), end_of(path))
    assert read_now(following) == []
    last = seqs(path)[-1]
    trail = open_trail(path)
    for turn in range(3):
        run(trail, f"echo {turn}")
        trail.rotate()
    trail.close()
    for name in files_of(path)[:-1]:
        os.unlink(name)
    seen = read_now(following)  # the file that was followed had been open when it lost its name
    left = seqs(path)
    assert seen[-len(left) :] == left
    lost = sorted(set(range(last + 1, left[-1] + 1)) - set(seen))
    assert f": records {lost[0]} to {lost[-1]} were deleted meanwhile" in capfd.readouterr().err


def test_following_a_trail_with_lines_that_are_none_goes_on(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[1:], b"{}\n"]))
    following = follow(str(path), end_of(path))
    assert read_now(following) == []
    with path.open("ab") as file:
        file.write(b"nonsense\n" + lines[1].replace(b'{"seq":20', b'{"seq":99', 1))
    assert len(read_now(following)) == 1


READERS = (
    ["show", "-n", "0"],
    ["show", "-n", "100"],
    ["show", "--jail", "/srv/one"],
    ["stats"],
    ["report", "--html", "page.html"],
)


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
@pytest.mark.parametrize("gone", [1, 2])
def test_what_is_deleted_while_it_is_read_is_said_once(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reader: list[str],
    gone: int,
) -> None:
    monkeypatch.chdir(path.parent)
    trail = open_trail(path)
    trail.event("start", "jail /srv/one, policy /etc/policy.toml")
    run(trail)
    trail.close()
    files = files_of(path)
    first, last = seqs(path)[0], [int(Path(name).suffix[1:]) for name in files[1:3]][gone - 1] - 1
    plain = audit_reading._older

    def listed(*given: object) -> list[audit_reading.Source]:
        found = plain(*given)  # type: ignore[arg-type]
        for name in files[:gone]:
            if os.path.lexists(name):
                os.unlink(name)
        return found

    monkeypatch.setattr(audit_reading, "_older", listed)
    assert main([reader[0], "--log", str(path), *reader[1:]]) == 0
    assert capfd.readouterr().err == (
        f"hardened-terminal-mcp: audit log {path}: records {first} to {last} were deleted meanwhile, and could not be read\n"
    )


def test_what_is_deleted_here_and_there_is_said_for_each_place(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files, sources = files_of(path), sources_of(str(path))
    starts = [*(source.first for source in sources[:3]), sources[2].last + 1]
    for number in (0, 2):
        os.unlink(files[number])
    assert list(entries_backwards(sources))
    said = capfd.readouterr().err
    for number in (0, 2):
        assert f"records {starts[number]} to {starts[number + 1] - 1} were deleted" in said


def test_a_call_is_one_row_however_many_others_ended_in_between(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path, durability="os")
    ended, unended = a_call("sleep ended"), a_call("sleep unended")
    trail.attempt(unended)
    trail.attempt(ended)
    trail.rotate()
    for _ in range(10_050):
        trail.outcome(a_call("id"), CALM)
    trail.outcome(ended, CALM)
    trail.close()
    for rows in ("20000", "0"):
        shown = printed(capsys, "show", "--log", str(path), "-n", rows, "--text", "sleep").splitlines()[1:]
        assert [(line[21:38].strip(), line.split()[-1]) for line in shown] == [
            ("no outcome", "unended"),
            ("OK", "ended"),
        ]


def test_rows_are_those_of_one_moment(path: Path) -> None:
    trail = open_trail(path)
    call = a_call("make all")
    trail.attempt(call)
    sources = sources_of(str(path))
    trail.outcome(call, CALM)
    trail.close()
    rows = [entry for _, entry in newest_first(sources, Selection(text="make"))]
    assert [entry.record_type for entry in rows] == ["attempt"]
