"""`hardened-terminal-mcp audit`: what it prints, what it exits with, and what it never does."""

import json
import re
from pathlib import Path

import pytest

from broker import audit_jails
from broker.audit_command import main
from broker.audit_reading import entries, entries_backwards, named, sources_of
from broker.audit_record import EventLine
from broker.audit_selection import EVENTS
from broker.audit_show import Style, headings, table_lines
from broker.audit_tally import Tally
from broker.refusal import StartupError
from protocol.messages import ResultCode
from tests.support.documents import ROOT
from tests.support.opened_trail import (
    a_call,
    an_outcome,
    files_of,
    open_trail,
    printed,
    records,
    result,
    run,
    varied_trail,
    while_following,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return varied_trail(tmp_path / "audit.jsonl")


def test_verify_says_what_was_read_and_the_head_to_note(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(capsys, "verify", "--log", str(path))
    assert said.startswith("OK ")
    assert records(path)[-1]["hash"] in said


def test_verify_names_file_line_and_reason_of_the_first_fault(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    said = printed(capsys, "verify", "--log", str(path), status=1)
    assert f"BROKEN  {path}, line 2: its hash does not fit" in said


def test_verify_with_a_head_says_where_it_stands_or_that_it_is_missing(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = records(path)[-1]["hash"]
    assert f"record {len(records(path))}" in printed(capsys, "verify", "--log", str(path), "--head", head)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    said = printed(capsys, "verify", "--log", str(path), "--head", head, status=1)
    assert said.endswith("the end was cut off, or written anew\n")


def test_a_head_that_may_have_stood_in_a_file_that_is_gone_is_not_said_to_be_cut_off(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = records(path)[0]["hash"]
    Path(files_of(path)[0]).unlink()
    first = records(path)[0]["seq"]
    said = printed(capsys, "verify", "--log", str(path), "--head", head, status=1)
    assert said.endswith(f"or it stood before record {first}\n")


def test_verify_takes_files_in_the_order_they_are_named(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = f"{path}.000000000001"
    assert "OK " in printed(capsys, "verify", older, str(path))
    assert "BROKEN" in printed(capsys, "verify", str(path), older, status=1)
    assert "what stood before" in printed(capsys, "verify", str(path))


def test_verify_says_that_a_last_line_is_torn(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with path.open("ab") as file:
        file.write(b'{"seq":%d,"ts":' % (len(records(path)) + 1))
    assert "torn" in printed(capsys, "verify", "--log", str(path))


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the one who runs the tests may have set."""
    monkeypatch.delenv("COLUMNS", raising=False)


def test_show_prints_one_row_for_a_call_and_says_what_has_no_outcome(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heading, *rows = printed(capsys, "show", "--log", str(path)).splitlines()
    assert heading.split() == ["TIME", "(UTC)", "VERDICT", "EXIT", "TOOK", "OUT", "ERR", "SESSION", "COMMAND"]
    assert [row[21:].split()[0] for row in rows] == [
        "OK",
        "OK",
        "OK",
        "rotated",
        "continued",
        "POLICY_DENIED",
        "└",
        "OK",
        "OK",
        "no",
    ]
    assert "rm is on no list" in rows[6]
    assert "(dry run) ls src" in rows[7]
    session = records(path)[0]["session"][-8:]
    assert rows[8].split()[2:] == ["OK", "0", "3", "ms", "12", "B", "0", "B", session, "ls", "src"]


@pytest.mark.parametrize("options", [[], ["--program", "ls"], ["--code", "POLICY_DENIED"], ["--since", "1h"]])
def test_all_rows_are_the_same_as_the_newest_so_many(
    path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    some = printed(capsys, "show", "--log", str(path), "-n", "1000", *options)
    assert printed(capsys, "show", "--log", str(path), "-n", "0", *options) == some


@pytest.mark.parametrize(
    ("options", "commands"),
    [
        (["--program", "git"], ["git log -0", "git log -1", "git log -2"]),
        (["--program", "git", "-n", "1"], ["git log -2"]),
        (["--code", "policy_denied"], ["rm -r x"]),
        (["--tool", "explain"], ["ls src"]),
        (["--text", "on no list"], ["rm -r x"]),
        (["--session", "no such session"], []),
        (["--jail", "/srv/no-such-jail"], []),
        (["--until", "2000-01-01"], []),
        (["--since", "2h", "--program", "rm"], ["rm -r x"]),
        (["--since", "2999-01-01"], []),
        (["--event", "rotated"], []),
    ],
)
def test_show_selects(
    path: Path, capsys: pytest.CaptureFixture[str], options: list[str], commands: list[str]
) -> None:
    said = printed(capsys, "show", "--log", str(path), "--json", *options)
    found = [json.loads(line) for line in said.splitlines()]
    assert [r["command_raw"] for r in found if r["record_type"] == "outcome"] == commands


@pytest.mark.parametrize("tool", ["explain", "explain_command"])
def test_a_tool_is_selected_by_the_name_that_records_have_too(
    path: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    rows = printed(capsys, "show", "--log", str(path), "--tool", tool).splitlines()[1:]
    assert rows
    assert all("(dry run)" in row or "└" in row for row in rows)


@pytest.mark.parametrize("form", [[], ["--json"], ["-n0"]])
def test_show_says_on_stderr_that_nothing_matches(
    path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    assert main(["show", "--log", str(path), "--program", "nope", *form]) == 0
    told = capsys.readouterr()
    assert told.err == "hardened-terminal-mcp: no record matches these options\n"
    assert told.out.count("\n") == (0 if form == ["--json"] else 1)
    assert main(["show", "--log", str(path), *form]) == 0
    assert capsys.readouterr().err == ""


def test_show_as_json_prints_the_lines_as_they_stand_in_the_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(capsys, "show", "--log", str(path), "--json", "-n", "0")
    assert said == Path(f"{path}.000000000001").read_text() + path.read_text()


def test_a_row_lets_nothing_through_to_the_terminal() -> None:
    hostile = "echo \x1b[2J\x07 \u202egnp.exe \u200b\r\n\x9b31m"
    entry = an_outcome(command_raw=hostile, code="POLICY_DENIED", policy_reason=hostile)
    lines = list(table_lines(entry, Style()))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[2J" in lines[0]


@pytest.mark.parametrize("width", [10, 40, 60, 80, 100, 120, 200])
def test_a_narrow_table_leaves_out_columns_and_shortens_the_command(width: int) -> None:
    style = Style(width)
    entry = an_outcome(
        command_raw="git log --oneline " + "x" * 300, code="POLICY_DENIED", policy_reason="y" * 300
    )
    row, reason = table_lines(entry, style)
    at = headings(style).index("COMMAND")
    assert row[at:].startswith("git log"[: max(width - at - 1, 0)])
    assert row.endswith("…")
    assert len(row) == max(width, at + 1)
    assert len(reason) <= max(width, at)
    assert at <= 19 or width - at >= 24


def test_a_wide_table_has_all_columns_and_an_endless_one_shortens_nothing() -> None:
    for width in (0, 110):
        assert headings(Style(width)).split()[2:] == [
            "VERDICT",
            "EXIT",
            "TOOK",
            "OUT",
            "ERR",
            "SESSION",
            "COMMAND",
        ]
    assert headings(Style(100)).split()[-2:] == ["ERR", "COMMAND"]
    assert headings(Style(60)).split() == ["UTC", "VERDICT", "EXIT", "COMMAND"]
    assert headings(Style(40)).split() == ["VERDICT", "COMMAND"]
    (row,) = table_lines(an_outcome(command_raw="x" * 500), Style())
    assert row.endswith("x" * 500)


def test_what_goes_into_a_pipe_is_shortened_only_if_columns_says_so(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = open_trail(path)
    run(trail, "echo " + "x" * 300)
    trail.close()
    assert "x" * 300 in printed(capsys, "show", "--log", str(path))
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, printed(capsys, "show", "--log", str(path)).splitlines())) == 60


def test_a_row_is_cut_to_the_terminal_and_coloured() -> None:
    entry = an_outcome(command_raw="x" * 500)
    (row,) = table_lines(entry, Style(100, colour=True))
    assert "\x1b[32mOK" in row
    assert len(re.sub(r"\x1b\[\d+m", "", row)) == 100


def test_show_follows_what_is_written_into_the_next_file_too(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = open_trail(path)
    steps = [
        lambda: run(trail, "echo 1"),
        lambda: (run(trail, "echo 2"), trail.rotate()),
        lambda: run(trail, "echo 3"),
    ]
    while_following(monkeypatch, *steps)
    said = printed(capsys, "show", "--log", str(path), "--follow", "-n", "1")
    trail.close()
    assert [line.split()[-2:] for line in said.splitlines()[2:] if "echo" in line] == [
        ["echo", "1"],
        ["echo", "2"],
        ["echo", "3"],
    ]


def two_projects(path: Path) -> Path:
    """Write a trail of two brokers, each in its own jail, whose records alternate."""
    trails = []
    for name in ("one", "two"):
        trails.append(open_trail(path))
        trails[-1].event("start", f"jail /srv/{name}, policy /etc/policy, two.toml")
    for turn in range(3):
        for name, trail in zip(("one", "two"), trails, strict=True):
            run(trail, f"echo {name}-{turn}")
    for trail in trails:
        trail.close()
    return path


@pytest.mark.parametrize("rows", ["0", "4"])
def test_show_tells_the_calls_of_one_project_by_its_jail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    path = two_projects(tmp_path / "audit.jsonl")
    shown = printed(capsys, "show", "--log", str(path), "-n", rows, "--jail", "/srv/two/")
    assert [line.split()[-1] for line in shown.splitlines()[1:]] == ["two-0", "two-1", "two-2"]
    session = shown.splitlines()[1].split()[-3]
    start = printed(capsys, "show", "--log", str(path), "--event", "start", "--session", session)
    assert [line.split()[3:6] for line in start.splitlines()[1:]] == [[session, "jail", "/srv/two,"]]


def test_stats_count_calls_by_jail_and_an_allowed_dry_run_as_nothing_that_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two_projects(tmp_path / "audit.jsonl")
    said = printed(capsys, "stats", "--log", str(path))
    assert re.search(r"^ +3 +0  /srv/one$", said, re.MULTILINE)
    assert re.search(r"^  start +2$", said, re.MULTILINE)
    only_asked = open_trail(tmp_path / "asked.jsonl")
    only_asked.outcome(a_call("ls", tool="explain_command"), result(reason="ls is allowed"))
    only_asked.close()
    said = printed(capsys, "stats", "--log", str(tmp_path / "asked.jsonl"))
    assert "0 ran, 0 refused, 0 broke, 0 cancelled, 1 only asked whether they may" in said
    assert re.search(r"^  \(dry run\) +1$", said, re.MULTILINE)
    assert not re.search(r"^  OK ", said, re.MULTILINE)


def test_the_sessions_of_a_jail_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_jails, "_SESSIONS", 3)
    jail = audit_jails.Jail("/srv/x")
    starts = [
        EventLine(
            seq=number,
            ts="2026-01-01T00:00:00.000000Z",
            event_id="1",
            event="start",
            detail="jail /srv/x, policy /etc/p",
            session=f"session-{number}",
            policy_sha256="",
        )
        for number in range(5)
    ]
    assert all(jail.had(start) for start in starts)
    assert [jail.had(an_outcome(session=f"session-{number}")) for number in range(5)] == [False] * 2 + [
        True
    ] * 3


def test_stats_fit_the_columns_that_there_are(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = open_trail(path)
    trail.outcome(a_call("rm " + "x" * 90), result(ResultCode.POLICY_DENIED, "y" * 200))
    trail.close()
    monkeypatch.setenv("COLUMNS", "60")
    said = printed(capsys, "stats", "--log", str(path))
    assert max(map(len, said.splitlines())) == 60
    assert "PROGRAM                 CALLS  REFUSED    BROKE   EXIT>0\n" in said


def test_verify_as_json_says_whether_all_is_sound_and_where_it_is_not(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed(capsys, "verify", "--log", str(path), "--json"))
    assert (found["sound"], found["head"], found["fault"]) == (True, records(path)[-1]["hash"], None)
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    found = json.loads(printed(capsys, "verify", "--log", str(path), "--json", status=1))
    assert (found["sound"], found["fault"]["line"]) == (False, 2)
    assert "audit repair" in printed(capsys, "verify", "--log", str(path), status=1)


@pytest.mark.parametrize("command", ["show", "stats", "report"])
def test_a_file_that_is_no_trail_is_not_shown_as_an_empty_one(tmp_path: Path, command: str) -> None:
    (tmp_path / "readme").write_text("# a readme\nof two lines\n")
    page = ["--html", str(tmp_path / "x.html")] if command == "report" else []
    with pytest.raises(StartupError, match="readme: is no audit trail"):
        main([command, "--log", str(tmp_path / "readme"), *page])
    (tmp_path / "readme").write_text("")
    assert main([command, "--log", str(tmp_path / "readme"), *page]) == 0


def test_a_fault_is_said_of_the_file_that_it_is_about(path: Path, tmp_path: Path) -> None:
    missing, page = tmp_path / "no.jsonl", tmp_path / "none" / "x.html"
    with pytest.raises(StartupError, match=f"^audit log {missing}: No such file"):
        main(["verify", "--log", str(path), str(missing)])
    with pytest.raises(StartupError, match=f"^report {page}: No such file"):
        main(["report", "--log", str(path), "--html", str(page)])
    with pytest.raises(StartupError, match=f"^audit log {tmp_path}: not a regular file"):
        main(["verify", "--log", str(path), str(tmp_path)])
    with pytest.raises(StartupError, match=r"No such file or directory; the first server or `run` begins it"):
        main(["show", "--log", str(missing)])


def test_stats_sum_up_calls_codes_reasons_and_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "stats", "--log", str(path))
    assert "6 calls (1 dry run)" in said
    assert "4 ran, 1 refused, 0 broke, 0 cancelled, 1 only asked whether they may" in said
    assert re.search(r"^git +3 ", said, re.MULTILINE)
    assert re.search(r"1 +POLICY_DENIED +rm is on no list", said)
    assert "█" in said


def test_a_tally_is_bounded_whatever_names_callers_invent() -> None:
    tally = Tally()
    for number in range(12_000):
        day = f"{1900 + number // 336}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"
        reason = f"name{number} is on no list"
        called = {"argv": (f"name{number}",), "code": "POLICY_DENIED", "policy_reason": reason}
        tally.add(an_outcome(ts=f"{day}T00:00:00.000000Z", **called))
    assert tally.calls == 12_000
    assert len(tally.programs) <= 1_001
    assert len(tally.reasons) <= 2_001
    assert sum(program.calls for program in tally.programs.values()) == 12_000
    series = tally.series(60)
    assert len(series) <= 61
    assert sum(moment.total for moment in series) == 12_000


def test_durations_are_known_within_a_tenth() -> None:
    tally = Tally()
    for ms in range(1, 1001):
        tally.add(an_outcome(seq=ms, argv=("ls",), duration_ms=ms))
    durations = tally.programs["ls"].durations
    assert durations.percentile_ms(0.5) == pytest.approx(500, rel=0.1)
    assert durations.percentile_ms(0.95) == pytest.approx(950, rel=0.1)
    assert durations.longest_ms == 1000


def test_lines_are_the_same_read_backwards(path: Path) -> None:
    forwards = list(entries(sources_of(str(path))))
    assert list(entries_backwards(sources_of(str(path))))[::-1] == forwards
    assert len(forwards) == len(records(path))


def test_since_begins_in_the_middle_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path, durability="os")
    for _ in range(1_000):
        run(trail)
    trail.close()
    since = records(path)[1_234]["ts"]
    found = [entry.seq for _, entry in entries(named([str(path)]), since)]
    assert found == list(range(1_235, 2_001))


def test_a_trail_that_cannot_be_read_is_said_in_one_line(tmp_path: Path) -> None:
    for log in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(StartupError, match=str(log)):
            main(["show", "--log", str(log)])


def test_without_a_file_the_settings_say_which_trail(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTMCP_AUDIT_LOG", str(path))
    assert "OK " in printed(capsys, "verify")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["unheard-of"], "verify, show, stats, report, repair"),
        (["verify", "--head", "xyz"], "64 hexadecimal digits"),
        (["show", "--since", "soon"], "2h, 2026-01-31"),
        (["show", "--code", "nonsense"], "nonsense is no result code; one of OK, POLICY_DENIED,"),
        (["show", "--tool", "grep"], "run, explain"),
        (["show", "--event", "nonsense"], "start, policy, torn"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_what_is_right(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err.replace("'", ""), "some versions of Python quote what they name"


def test_the_start_of_a_broker_is_shown_only_if_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path)
    trail.event("start", "jail /srv/project, policy /etc/policy.toml")
    run(trail, "echo 1")
    trail.close()
    for rows in ("50", "0"):
        assert "/srv/project" not in printed(capsys, "show", "--log", str(path), "-n", rows)
        asked = printed(capsys, "show", "--log", str(path), "-n", rows, "--event", "start")
        session = records(path)[-1]["session"][-8:]
        assert [line.split()[2:6] for line in asked.splitlines()[1:]] == [
            ["start", session, "jail", "/srv/project,"]
        ]
    assert "/srv/project" in printed(capsys, "show", "--log", str(path), "--json")


def test_the_events_that_can_be_asked_for_are_those_that_are_written() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "broker").glob("*.py"))
    written = re.findall(r'(?:event_line|[^_]event)\("(\w+)"|event="(\w+)"', sources)
    assert {one or other for one, other in written} == set(EVENTS)
