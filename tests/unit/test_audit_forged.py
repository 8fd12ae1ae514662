"""A trail that somebody forged: whoever reads it gets no control sequence, no end by an internal error, and is told."""

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.audit_command import main
from broker.audit_jails import Jail
from broker.audit_record import EventLine, digest
from broker.audit_tally import Tally
from broker.refusal import StartupError
from tests.support.opened_trail import an_outcome, line_of, open_trail, varied_trail

STEERING = "\x1b[31m\x9b2J\u202e<script>"
READERS = (["show"], ["show", "--json"], ["show", "-n", "0"], ["stats"], ["report", "--html", "page.html"])
MORE_READERS = (
    ["stats", "--json"],
    ["show", "--event", "start"],
    ["show", "--jail", "/none"],
    ["verify"],
    ["repair"],
)
TEXTS = (
    "code",
    "tool",
    "session",
    "event_id",
    "cwd",
    "policy_sha256",
    "policy_reason",
    "command_raw",
    "event",
    "detail",
)


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trail to add lines to."""
    monkeypatch.chdir(tmp_path)
    return varied_trail(tmp_path / "audit.jsonl")


def read(trail: Path, reader: list[str]) -> int:
    return main([reader[0], "--log", str(trail), *reader[1:]])


def forge(trail: Path, kind: str, **fields: Any) -> int:
    """Add a record of a kind with `fields` in the place of its own; return its line number."""
    lines = trail.read_text().splitlines()
    record = next(found for found in map(json.loads, lines) if found["record_type"] == kind)
    trail.write_text("\n".join((*lines, line_of(record | fields), "")))
    return len(lines) + 1


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
@pytest.mark.parametrize("kind", ["attempt", "outcome", "event"])
@pytest.mark.parametrize("field", TEXTS)
def test_no_field_of_a_forged_record_steers_a_terminal(
    forged: Path, capfd: pytest.CaptureFixture[str], field: str, kind: str, reader: list[str]
) -> None:
    forge(forged, kind, **{field: STEERING})
    assert read(forged, reader) == 0
    said = capfd.readouterr()
    page = Path("page.html").read_text() if reader[0] == "report" else ""
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out + said.err + page) is None
    assert STEERING[-8:] not in page.partition("<main>")[2].rpartition("</main>")[0]


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
@pytest.mark.parametrize(
    "fields",
    [
        {"ts": "<script>"},
        {"ts": ""},
        {"ts": "0001-01-01T00:00:00.000000Z"},
        {"ts": "2026-13-01T00:00:00.000000Z"},
        {"ts": "2026-01-01T00:00:00.000000Z" + STEERING},
        {"ts": "2026-01-01\x1b00:00:00.000000Z"},
        {"ts": "2026-01-01\u202e00:00:00.000000Z"},
        {"seq": -1},
        {"duration_ms": -1},
        {"duration_ms": 10**400},
        {"stdout_bytes": 10**400},
        {"exit_code": -(10**400)},
        {"command_raw": 5},
    ],
    ids=lambda fields: f"{next(iter(fields))} {str(next(iter(fields.values())))[:20]!r}",
)
def test_a_record_that_no_broker_writes_is_left_out_and_its_line_is_named(
    forged: Path, capfd: pytest.CaptureFixture[str], fields: dict[str, Any], reader: list[str]
) -> None:
    line = forge(forged, "outcome", **fields)
    assert read(forged, reader) == 0
    said = capfd.readouterr()
    assert f"audit log {forged}, line {line}: is no record" in said.err
    assert said.err.count("\n") == 1
    assert STEERING not in said.out


@pytest.mark.parametrize("reader", READERS, ids=" ".join)
@pytest.mark.parametrize(
    "line", ['{"a":' + "[" * 100_000 + "]" * 100_000 + "}", '{"seq":1,"x":"\udcff"}', "", "x"]
)
def test_a_line_that_nobody_can_decode_is_named(
    forged: Path, capfd: pytest.CaptureFixture[str], line: str, reader: list[str]
) -> None:
    before = forged.read_bytes()
    forged.write_bytes(before + line.encode("utf-8", "surrogateescape") + b"\n")
    assert read(forged, reader) == 0
    number = len(before.splitlines()) + 1
    assert f"line {number}: is no record" in capfd.readouterr().err


@pytest.mark.parametrize("reader", [*READERS, *MORE_READERS], ids=" ".join)
@pytest.mark.parametrize("detail", [f"jail /{STEERING}, policy /{STEERING}", STEERING])
def test_no_jail_that_a_forged_start_names_steers_a_terminal(
    forged: Path, capfd: pytest.CaptureFixture[str], detail: str, reader: list[str]
) -> None:
    session = json.loads(forged.read_text().splitlines()[0])["session"]
    forge(forged, "event", event="start", detail=detail, session=session)
    forge(forged, "outcome", session=session)
    read(forged, reader)
    said = capfd.readouterr()
    page = Path("page.html").read_text() if reader[0] == "report" else ""
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out + said.err + page) is None
    assert STEERING[-8:] not in page.partition("<main>")[2].rpartition("</main>")[0]


@pytest.mark.parametrize("place", [0, -1])
def test_a_start_behind_a_record_of_endless_depth_is_refused_with_its_reason(
    forged: Path, place: int
) -> None:
    lines = forged.read_bytes().splitlines()
    body = lines[place].rpartition(b',"hash":"')[0]
    deep = body.replace(b',"session":', b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"session":') + b"}"
    lines[place] = b'%b,"hash":"%b"}' % (deep[:-1], digest(deep).encode())
    forged.write_bytes(b"".join(line + b"\n" for line in (lines[:1] if place == 0 else lines)))
    with pytest.raises(StartupError, match=r"audit log .*record"):
        open_trail(forged)


@pytest.mark.parametrize(
    "reader", [["verify"], ["verify", "--json"], ["repair"], ["repair", "--json"]], ids=" ".join
)
@pytest.mark.parametrize("whole", [True, False])
def test_the_hash_that_a_forged_first_record_names_steers_no_terminal(
    forged: Path, capfd: pytest.CaptureFixture[str], reader: list[str], whole: bool
) -> None:
    Path(f"{forged}.000000000001").unlink()
    named = "\\u001b[31m\u202e\u009b2J".encode().ljust(64, b"0")
    first = forged.read_bytes().splitlines()[0]
    body = b'%b,"prev":"%b"' % (first.partition(b',"prev":"')[0], named)
    line = b'%b,"hash":"%b"}\n' % (body, digest(body + b"}").encode())
    forged.write_bytes(line if whole else line + b"nonsense\n")
    main([*reader, "--log", str(forged)])
    said = capfd.readouterr()
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out + said.err) is None


LONG = "x" * 100_000


def _an_event(**fields: Any) -> EventLine:
    plain = {"seq": 1, "ts": "2026-01-01T00:00:00.000000Z", "event_id": "1", "detail": "", "session": "1"}
    return EventLine(**{"event": "start", "policy_sha256": "", **plain, **fields})


@pytest.mark.parametrize(
    "forge",
    [
        lambda n: an_outcome(session=f"{n}{LONG}"),
        lambda n: an_outcome(argv=(f"{n}{LONG}",)),
        lambda n: an_outcome(code=f"{n}{LONG}"),
        lambda n: an_outcome(code="POLICY_DENIED", policy_reason=f"{n}{LONG}"),
        lambda n: an_outcome(duration_ms=n, command_raw=f"{n}{LONG}"),
        lambda n: _an_event(event=f"{n}{LONG}"),
        lambda n: _an_event(session=f"{n}{LONG}"),
        lambda n: _an_event(session=str(n), detail=f"jail /{n}{LONG}, policy /x"),
        lambda n: _an_event(session=str(n), detail=f"jail /{LONG}, policy /x"),
    ],
)
def test_sums_keep_no_name_without_end(forge: Callable[[int], Any]) -> None:
    tally, jail = Tally(), Jail("/" + LONG)
    tracemalloc.start()
    try:
        for number in range(200):
            tally.add(forge(number))
            jail.had(forge(number))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("field", ["event_id", "command_raw", "policy_reason", "code", "session", "cwd"])
@pytest.mark.parametrize("kind", ["attempt", "outcome"])
def test_a_page_of_records_without_end_takes_no_more_memory_than_one_of_long_ones(
    forged: Path, field: str, kind: str
) -> None:
    lines = forged.read_text().splitlines()
    record = next(found for found in map(json.loads, lines) if found["record_type"] == kind)
    with forged.open("a") as file:
        for number in range(40):
            file.write(line_of(record | {"seq": number + 1, field: f"{number}{'x' * 900_000}"}) + "\n")
    tracemalloc.start()
    try:
        assert read(forged, ["report", "--html", "page.html"]) == 0
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()
    assert Path("page.html").stat().st_size < 1_000_000
