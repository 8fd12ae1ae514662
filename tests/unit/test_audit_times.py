"""Times in a trail are what the clock said: it may never have been set, and it may be set back."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import audit_chain
from broker.audit_reading import Found, decode, entries, entries_backwards, named, sources_of
from tests.support.opened_trail import CALM, a_call, line_of, open_trail, printed, records, run

At = Callable[[str], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """What sets the clock of the brokers in this process."""

    def set_to(time: str) -> None:
        monkeypatch.setattr(audit_chain, "utc_now", lambda: f"{time}.000000Z")

    return set_to


def jumps(path: Path, at: At, calls: int = 3) -> Path:
    """Write calls at each minute from noon on, then, the clock being set back, from eleven on."""
    trail = open_trail(path, durability="os")
    for hour, name in ((12, "before"), (11, "after")):
        for number in range(calls):
            at(f"2026-05-01T{hour + number // 60}:{number % 60:02}:00")
            run(trail, f"echo {name}-{number}")
        trail.rotate()
    trail.close()
    return path


def commands(shown: str) -> list[str]:
    return [line.split()[-1] for line in shown.splitlines() if " echo " in line]


@pytest.mark.parametrize("rows", ["50", "0"])
def test_every_record_whose_time_fits_is_shown_also_before_the_clock_was_set_back(
    path: Path, at: At, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    jumps(path, at)
    since = printed(capsys, "show", "--log", str(path), "-n", rows, "--since", "2026-05-01T11:30")
    assert commands(since) == ["before-0", "before-1", "before-2"]
    until = printed(capsys, "show", "--log", str(path), "-n", rows, "--until", "2026-05-01T11:30")
    assert commands(until) == ["after-0", "after-1", "after-2"]


def test_sums_rows_and_page_count_the_same_where_the_clock_was_set_back_in_a_large_file(
    path: Path, at: At, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jumps(path, at, 300)
    wanted = ("--log", str(path), "--since", "2026-05-01T13:00")
    written = [r for r in records(path) if r["record_type"] == "outcome" and r["ts"] >= "2026-05-01T13:00"]
    assert json.loads(printed(capsys, "stats", *wanted, "--json"))["calls"] == len(written)
    for rows in ("5000", "0"):
        assert len(commands(printed(capsys, "show", *wanted, "-n", rows))) == len(written)
    printed(capsys, "report", *wanted, "--html", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text().count('<span class="mono">echo ') == len(written)


def test_a_call_that_ended_when_the_clock_was_set_back_is_not_shown_as_one_without_outcome(
    path: Path, at: At, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    call = a_call("sleep 9")
    at("2026-05-01T12:00:00")
    trail.attempt(call)
    at("2026-05-01T11:00:00")
    trail.outcome(call, CALM)
    trail.close()
    for rows in ("50", "0"):
        shown = printed(capsys, "show", "--log", str(path), "-n", rows, "--since", "2026-05-01T11:30")
        assert shown.splitlines()[1:] == []


def test_sums_are_of_the_time_from_the_earliest_record_to_the_latest(
    path: Path, at: At, capsys: pytest.CaptureFixture[str]
) -> None:
    jumps(path, at)
    found = json.loads(printed(capsys, "stats", "--log", str(path), "--json"))
    assert (found["first"], found["last"]) == ("2026-05-01T11:00:00.000000Z", "2026-05-01T12:02:00.000000Z")


def test_records_of_a_clock_that_was_never_set_are_records(
    path: Path, at: At, capfd: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    at("1970-01-01T00:00:00")
    run(trail, "echo 1")
    at("2026-05-01T12:00:00")
    run(trail, "echo 2")
    trail.close()
    assert commands(printed_by(capfd, "show", path)) == ["1", "2"]
    assert "2 calls (0 dry runs) in 1 session, 1970-01-01T00:00:00Z to 2026-05-01T12:00:00Z" in printed_by(
        capfd, "stats", path
    )


def printed_by(capfd: pytest.CaptureFixture[str], command: str, path: Path) -> str:
    """Return what a command printed, having said nothing else."""
    from broker.audit_command import main

    assert main([command, "--log", str(path)]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    return said.out


@pytest.mark.parametrize(
    "ts",
    [
        *(f"2026-01-01{separator}12:00:00.000000Z" for separator in "\x1b\r\n\x9b\u202e< "),
        "2026-W01-1T12:00:00.000000Z",
        "2026-01-01T12:00:00,000000Z",
        "2026-01-01T12:00:00.123+01Z",
        "2026-01-01T12:00:00.000000+",
        "2026-01-01T12:00:00.00000\u0660Z",
        "2026-01-01T12-00-00.000000Z",
        "2026-02-30T12:00:00.000000Z",
        "1969-12-31T23:59:59.000000Z",
    ],
    ids=ascii,
)
def test_a_time_has_one_form(path: Path, ts: str) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    record = json.loads(path.read_text().splitlines()[-1])
    assert decode(line_of(record).encode()) is not None
    assert decode(line_of(record | {"ts": ts}).encode()) is None


@pytest.mark.parametrize("reader", [entries, entries_backwards])
def test_what_is_no_record_is_said_whatever_times_are_asked_for(
    path: Path, capfd: pytest.CaptureFixture[str], reader: Callable[..., Iterator[Found]]
) -> None:
    trail = open_trail(path)
    run(trail)
    trail.close()
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    assert len(list(reader(named([str(path)]), "2000-01-01T00:00:00.000000Z"))) == 2
    assert "line 1: is no record" in capfd.readouterr().err
    assert not list(reader(sources_of(str(path)), "2999-01-01T00:00:00.000000Z"))
