"""`hardened-terminal-mcp audit`: its forms of output, its help, and how it ends when it is interrupted."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from broker import arguments, run
from broker.audit_command import _parser, main
from broker.audit_selection import moment
from broker.audit_show import Style, style_of, table_lines
from broker.cells import cells
from broker.refusal import StartupError
from frontend.tools import CANCELLED_EARLY
from protocol.messages import ResultCode
from tests.support import opened_trail
from tests.support.opened_trail import a_call, open_trail, printed, records, result
from tests.support.opened_trail import run as ran

COMMANDS = ("verify", "show", "stats", "report", "repair")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return opened_trail.varied_trail(tmp_path / "audit.jsonl")


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the one who runs the tests may have set."""
    monkeypatch.delenv("COLUMNS", raising=False)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


READERS = [
    ["verify"],
    ["verify", "--json"],
    ["stats"],
    ["stats", "--json"],
    ["show"],
    ["show", "-n", "0"],
    ["show", "--json"],
    ["report", "--html", "page.html"],
]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_command_that_is_interrupted_does_not_end_as_if_all_were_well(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(os, "pread", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        main([*arguments, "--log", str(path)])
    assert "OK" not in capsys.readouterr().out
    assert not Path("page.html").exists()


def test_following_is_ended_by_an_interrupt_and_ends_well(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", _interrupt)
    assert main(["show", "-f", "--log", str(path)]) == 0


def test_following_from_no_row_shows_only_what_is_new(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    opened_trail.while_following(monkeypatch, lambda: ran(trail, "echo new"))
    shown = printed(capsys, "show", "--log", str(path), "-f", "-n", "0").splitlines()
    trail.close()
    assert [line.split()[-1] for line in shown] == ["COMMAND", "new"]


def test_sums_as_json_are_those_of_the_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "stats", "--log", str(path), "--json"))
    assert {name: found[name] for name in ("calls", "ran", "refused", "broke", "cancelled", "asked")} == {
        "calls": 6,
        "ran": 4,
        "refused": 1,
        "broke": 0,
        "cancelled": 0,
        "asked": 1,
    }
    assert found["codes"] == {"OK": 4, "POLICY_DENIED": 1, "(dry run)": 1}
    assert found["reasons"] == [{"code": "POLICY_DENIED", "reason": "rm is on no list", "calls": 1}]
    assert found["programs"][0] == {
        "program": "git",
        "calls": 3,
        "ran": 3,
        "refused": 0,
        "broke": 0,
        "cancelled": 0,
        "asked": 0,
        "exit_not_0": 0,
        "p50_ms": 3,
        "p95_ms": 3,
        "max_ms": 3,
        "output_bytes": 36,
    }
    assert len(found["slowest"]) == 4
    assert sum(moment["ran"] for moment in found["over_time"]) == 4
    assert len(found["over_time"][0]["time"]) == len("2026-01-31 12:00")
    assert found["jails"] == [{"jail": "(began earlier)", "calls": 6, "refused": 1}]
    empty = json.loads(printed(capsys, "stats", "--log", str(path), "--json", "--since", "2999-01-01"))
    assert (empty["calls"], empty["first"], empty["programs"]) == (0, None, [])


def test_report_and_repair_as_json_say_what_was_done(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    found = json.loads(printed(capsys, "report", "--log", str(path), "--html", str(page), "--json"))
    assert found == {"html": str(page), "characters": len(page.read_text())}
    found = json.loads(printed(capsys, "repair", "--log", str(path), "--json"))
    assert (found["sealed"], "nothing to repair" in found["said"]) == ([], True)
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    found = json.loads(printed(capsys, "repair", "--log", str(path), "--json"))
    assert len(found["sealed"]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["report", "--log", str(path), "--html", "-", "--json"])
    assert caught.value.code == 2


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "show"])
def test_as_json_a_trail_that_cannot_be_read_is_one_object_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    missing = tmp_path / "none\u202e.jsonl"
    page = ["--html", str(tmp_path / "x.html")] if command == "report" else []
    with pytest.raises(StartupError) as caught:
        main([command, "--json", "--log", str(missing), *page])
    said = capsys.readouterr().out
    assert said.rstrip("\n").isprintable()
    assert json.loads(said) == {"error": str(caught.value)}


def test_records_as_json_are_nothing_else_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StartupError):
        main(["show", "--json", "--log", str(tmp_path / "none.jsonl")])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--log", "its trail.jsonl"], "audit repair --log 'its trail.jsonl'\n"),
        (["its trail.jsonl"], "audit repair --log FILE, for the trail"),
        ([], "audit repair\n"),
    ],
)
def test_the_next_step_is_about_the_trail_that_was_verified(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("HTMCP_AUDIT_LOG", str(path.parent / "its trail.jsonl"))
    Path("its trail.jsonl").write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    assert said in printed(capsys, "verify", *options, status=1)


@pytest.mark.parametrize("width", [40, 60, 80, 110, 140])
def test_a_table_counts_a_wide_character_as_two_cells(width: int) -> None:
    entry = opened_trail.an_outcome(
        command_raw="cat 漢字 " * 40, code="POLICY_DENIED", policy_reason="理由は秘密" * 40
    )
    lines = list(table_lines(entry, Style(width)))
    assert [width - cells(line) for line in lines if line.endswith("…")] in ([0, 0], [0, 1], [1, 0], [1, 1])
    assert len(lines) == 2


def test_sums_and_verdicts_fit_the_columns_whatever_is_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("漢字" * 40)
    folder.mkdir()
    path = opened_trail.varied_trail(folder / "audit.jsonl")
    trail = open_trail(path)
    ran(trail, "漢字漢字漢字漢字漢字漢字 " + "字" * 50)
    trail.outcome(a_call("rm x"), result(ResultCode.POLICY_DENIED, "理由は" * 50))
    trail.close()
    head = records(path)[-1]["hash"]
    monkeypatch.setenv("COLUMNS", "120")  # room for the folders above, in which nothing can be broken
    for command in ("stats", "verify"):
        assert max(map(cells, printed(capsys, command, "--log", str(path)).splitlines())) <= 120, command
    path.write_bytes(path.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    said = printed(capsys, "verify", "--log", str(path), "--head", head, status=1)
    assert max(map(cells, said.splitlines())) <= 120
    assert "MISSING" in said


def test_an_event_is_shown_with_how_many_records_it_is_about(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.event("gap", "records could not be written", 1_234)
    trail.close()
    assert "records could not be written (count 1,234)" in printed(capsys, "show", "--log", str(path))
    printed(capsys, "report", "--log", str(path), "--html", str(tmp_path / "page.html"))
    assert "records could not be written (count 1,234)" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "999999w", "9999-12-31T23:59-14:00"])
def test_a_time_that_no_calendar_has_is_wrong_usage(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show", "--since", text])
    assert caught.value.code == 2
    assert f"{text!r} is no time; 2h," in capsys.readouterr().err


def test_times_are_compared_as_text_so_a_year_has_four_digits() -> None:
    assert moment("0300-01-01") == "0300-01-01T00:00:00.000000Z"
    assert moment("2026-01-31T12:00+02:00") == "2026-01-31T10:00:00.000000Z"


def test_without_a_standard_output_nothing_is_printed_and_nothing_fails(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    page = ["--html", str(tmp_path / "page.html")]
    for command in COMMANDS:
        assert main([command, "--log", str(path), *(page if command == "report" else [])]) == 0
    assert style_of(None) == Style()


def test_a_jail_that_no_broker_had_is_said_and_so_are_those_that_there_are(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in (*range(8), 3):
        trail = open_trail(path)
        trail.event("start", f"jail /srv/{number}, policy /etc/policy.toml")
        trail.close()
    assert main(["show", "--log", str(path), "--jail", "/nonexistent"]) == 0
    said = capfd.readouterr().err
    assert (
        "no broker had the jail /nonexistent; the newest others are /srv/4, /srv/5, /srv/6, /srv/7, /srv/3"
        in said
    )
    assert main(["show", "--log", str(path), "--jail", "/srv/0"]) == 0
    assert capfd.readouterr().err == ""


def test_sums_of_one_jail_name_it_for_sessions_that_began_before_too(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.event("start", "jail /srv/one, policy /etc/policy.toml")
    ran(trail)
    trail.close()
    since = records(path)[-1]["ts"]
    for wanted in (["--since", since, "--jail", "/srv/one"], ["--program", "ls", "--jail", "/srv/one"]):
        found = json.loads(printed(capsys, "stats", "--log", str(path), "--json", *wanted))
        assert [(jail["jail"], jail["calls"]) for jail in found["jails"]] == [("/srv/one", 1)]


def test_what_the_client_cancelled_did_not_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path)
    for reason in (run.CANCELLED, "cancelled by the client before it started", "it could not be started"):
        trail.outcome(a_call("sleep 9"), result(ResultCode.EXECUTOR_ERROR, reason))
    trail.outcome(a_call("sleep 9"), result(ResultCode.PARSE_ERROR, CANCELLED_EARLY))
    trail.close()
    said = printed(capsys, "stats", "--log", str(path))
    assert "0 ran, 0 refused, 1 broke, 3 cancelled, 0 only asked" in said
    assert re.search(r"^  \(cancelled\) +3$", said, re.MULTILINE)
    assert "cancelled by the client" not in said
    printed(capsys, "report", "--log", str(path), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert page.count('<td class="code cancelled">EXECUTOR_ERROR</td>') == 2
    assert page.count('<td class="code broke">EXECUTOR_ERROR</td>') == 2, "one by reason, one record"


def test_an_unknown_option_is_answered_with_the_usage_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["stats", "--unheard-of"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: hardened-terminal-mcp audit stats ")
    assert "unrecognized arguments: --unheard-of" in said


def _helps(width: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the help of every command as it is shown on so many columns."""
    monkeypatch.setenv("COLUMNS", str(width))
    helps = {"": arguments.parser({}).format_help(), "broker": arguments.broker_parser().format_help()}
    for name, parser in (("", arguments.parser({})), ("audit ", _parser())):
        (commands,) = (action for action in parser._actions if action.dest in ("name", "==SUPPRESS=="))
        assert commands.choices
        for command, shown in dict[str, Any](commands.choices).items():
            helps[name + command] = shown.format_help()
    return helps


def test_every_audit_command_has_help_with_examples_and_exit_statuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helps = _helps(120, monkeypatch)
    for name in COMMANDS:
        examples = helps[f"audit {name}"].partition("examples:")[2]
        assert f"hardened-terminal-mcp audit {name}" in examples, name
        assert "exit status: 0 " in examples, name
        for line in examples.splitlines():
            if line.startswith("  hardened-terminal-mcp audit "):
                _parser().parse_args(shlex.split(line.replace("HASH", "0" * 64).partition("|")[0])[2:])


@pytest.mark.parametrize("width", [60, 80])
def test_help_is_folded_to_the_width_and_its_examples_can_still_be_copied(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    whole = _helps(500, monkeypatch)
    for name, text in _helps(width, monkeypatch).items():
        _, _, ending = text.partition("examples:")
        assert ending, name
        too_long = [line for line in ending.splitlines() if len(line) > width and '"' not in line]
        assert not too_long, name
        commands = re.sub(r" \\\n +", " ", ending)
        for line in whole[name].partition("examples:")[2].partition("\n\n")[0].splitlines():
            assert line.strip().partition("   ")[0] in commands, name


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_folder_whose_name_is_no_text_is_said_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, form: list[str]
) -> None:
    folder = Path(f"{tmp_path}/n\udcff")
    folder.mkdir(mode=0o700)
    trail = opened_trail.varied_trail(folder / "audit.jsonl")
    trail.write_bytes(trail.read_bytes().replace(b"rm -r x", b"ls -r x", 1))
    page = ["--html", f"{folder}/p\udcfe.html"] if command == "report" else []
    status = 1 if command == "verify" else 0
    said = printed(capsys, command, *form, "--log", str(trail), *page, status=status)
    assert said.encode()
    if command in ("verify", "repair", "report"):
        assert "n\\udcff" in said.replace(r"\\u", r"\u")
    with pytest.raises(StartupError) as caught:
        main([command, *form, "--log", f"{trail}.none", *page])
    assert "n\\udcff" in str(caught.value)
    if form and command != "show":
        assert json.loads(capsys.readouterr().out) == {"error": str(caught.value)}


@pytest.mark.parametrize("command", ["show", "stats", "verify"])
@pytest.mark.parametrize("columns", ["9" * 5_000, "9" * 30, "0", "1", "\u00b2", "-5", "wide"])
def test_any_width_is_taken_or_left(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    columns: str,
) -> None:
    whole = printed(capsys, command, "--log", str(path))
    monkeypatch.setenv("COLUMNS", columns)
    said = printed(capsys, command, "--log", str(path))
    assert columns == "1" or said == whole


@pytest.mark.parametrize("digits", [18, 19, 30, 5_000])
def test_more_rows_than_any_trail_has_are_all(
    path: Path, capsys: pytest.CaptureFixture[str], digits: int
) -> None:
    some = printed(capsys, "show", "--log", str(path), "-n", "9" * digits)
    assert some == printed(capsys, "show", "--log", str(path), "-n", "0")
