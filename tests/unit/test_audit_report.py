"""`audit report`: one page that loads nothing and shows every text as text."""

import errno
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from broker import audit_report
from broker.audit_command import main
from broker.refusal import StartupError
from protocol.messages import ResultCode
from tests.support.command import COMMAND
from tests.support.opened_trail import a_call, open_trail, printed, result, varied_trail, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return varied_trail(tmp_path / "audit.jsonl")


def _report(path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> str:
    printed(capsys, "report", "--log", str(path), "--html", str(target))
    return target.read_text()


HOSTILE = "echo <script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> </table> & \u202e"


def test_a_report_holds_no_address_and_escapes_every_text(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.outcome(a_call(HOSTILE), result(ResultCode.POLICY_DENIED, HOSTILE))
    trail.event("protocol_violation", HOSTILE)
    trail.close()
    page = _report(path, tmp_path / "page.html", capsys)
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;document.title" in page
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:|//)", page.replace(HOSTILE, ""))
    assert "default-src 'none'" in page
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "way", ["itself", "symlink", "hard link", "rotated", "another trail", "appended", "torn"]
)
def test_a_report_never_takes_the_place_of_records(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    link = tmp_path / "link.html"
    if way == "symlink":
        link.symlink_to(path)
    elif way == "hard link":
        link.hardlink_to(path)
    elif way == "another trail":
        link.write_bytes(path.read_bytes())
    elif way == "appended":
        link.symlink_to("/proc/self/fd/1")
    elif way == "torn":
        link = Path(f"{path}.torn")
    target = {"itself": path, "rotated": Path(f"{path}.000000000001")}.get(way, link)
    before = [file.read_bytes() for file in (path, Path(f"{path}.000000000001"))]
    if way == "appended":
        appended = 'exec "$0" audit report --log "$1" --html - >> "$1"'
        command = ["sh", "-c", appended, COMMAND, str(path)]
        ended = subprocess.run(command, capture_output=True, timeout=30, check=False)
        assert ended.returncode == 78
        assert b"is a file of an audit trail" in ended.stderr
    else:
        with pytest.raises(StartupError, match=f"^report {target}: is a file of an audit trail"):
            main(["report", "--log", str(path), "--html", str(target)])
    assert [file.read_bytes() for file in (path, Path(f"{path}.000000000001"))] == before
    assert verified(path).sound
    assert not list(tmp_path.glob(".audit-report-*"))


def test_a_report_does_not_take_the_place_of_a_trail_that_does_not_begin_as_one(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(StartupError, match="is a file of an audit trail"):
        main(["report", "--log", str(path), "--html", str(path)])
    assert path.read_bytes() == before


def test_a_report_is_whole_or_what_stood_there_stays(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("the page of yesterday")
    page.chmod(0o644)
    named = tmp_path / "named.html"
    named.symlink_to(page)

    def broken(_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broke:
        broke.setattr(audit_report, "_tiles", broken)
        with pytest.raises(OSError, match="No space") as caught:
            main(["report", "--log", str(path), "--html", str(named)])
    assert caught.value.filename is None, "the exit status is that of output that cannot be written"
    assert page.read_text() == "the page of yesterday"
    assert "Audit report" in _report(path, named, capsys)
    assert (page.stat().st_mode & 0o777, named.is_symlink()) == (0o600, True)
    assert not list(tmp_path.glob(".audit-report-*"))


def test_a_report_goes_to_standard_output_and_to_what_is_no_file(
    path: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("-", "/dev/stdout"):
        assert main(["report", "--log", str(path), "--html", target]) == 0
        page = capfdbinary.readouterr().out
        assert page.startswith(b"<!doctype html>"), target
        assert page.endswith(b"</html>\n"), target
    assert not (tmp_path / "-").exists()
    ended = subprocess.run(
        [COMMAND, "audit", "report", "--log", str(path), "--html", "/dev/full"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 74


@pytest.mark.parametrize("rows", ["0", "10001", "-1", "many", "9" * 5_000])
def test_a_report_of_no_rows_or_of_all_is_wrong_usage(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["report", "--log", str(path), "--html", str(tmp_path / "page.html"), f"--rows={rows}"])
    assert caught.value.code == 2
    assert "1 to 10000" in capsys.readouterr().err


def test_a_report_of_an_empty_trail_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_trail(tmp_path / "audit.jsonl").close()
    assert "no records" in _report(tmp_path / "audit.jsonl", tmp_path / "page.html", capsys)


def test_a_report_counts_starts_jails_and_what_was_only_asked(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.event("start", "jail /srv/<project>, policy /etc/policy.toml")
    trail.outcome(a_call("rm x"), result(ResultCode.POLICY_DENIED, "rm is on no list"))
    trail.close()
    page = _report(path, tmp_path / "page.html", capsys)
    tiles = re.findall(r'<b class="\w*">(\d+)</b><span class="soft">([^<]+)', page)
    assert {label: count for count, label in tiles} == {
        "calls": "8",
        "ran": "4",
        "refused": "2",
        "broke": "1",
        "cancelled": "0",
        "only asked (allowed dry runs)": "1",
        "sessions": "2",
        "events": "3",
    }
    assert (
        '<td class="number">1</td><td class="number">1</td><td class="text mono">/srv/&lt;project&gt;</td>'
        in page
    )
    assert "jail /srv/&lt;project&gt;, policy /etc/policy.toml" in page


def test_a_report_of_nothing_but_questions_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(tmp_path / "audit.jsonl")
    trail.outcome(a_call("ls", tool="explain_command"), result(reason="ls is allowed"))
    trail.close()
    assert "Calls by jail" in _report(tmp_path / "audit.jsonl", tmp_path / "page.html", capsys)


def _browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium is installed")


def _dumped(page: Path, folder: Path) -> str:
    """Return what a browser makes of a page."""
    options = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    more = " disable-component-update disable-sync allow-file-access-from-files"
    flags = [f"--{name}" for name in (options + more).split()]
    command = [_browser(), *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"file://{page}"]
    return subprocess.run(command, capture_output=True, timeout=50, check=True).stdout.decode()


NARROW = """<!doctype html><body><iframe src="page.html" width="420" height="800"
onload="document.body.append('wide: ' + this.contentDocument.documentElement.scrollWidth,
  ...Array.from(this.contentDocument.querySelectorAll('section'),
    part => ` ${part.querySelector('h2').textContent}: ${part.scrollWidth - part.clientWidth} hidden;`))"></iframe></body>"""


def test_a_report_fits_a_telephone(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trail = open_trail(path)
    trail.outcome(a_call("x" * 300), result(ResultCode.AUDIT_UNAVAILABLE, "it cannot be written " * 9))
    trail.close()
    _report(path, tmp_path / "page.html", capsys)
    (tmp_path / "narrow.html").write_text(NARROW)
    dumped = _dumped(tmp_path / "narrow.html", tmp_path)
    (width,) = re.findall(r"wide: (\d+)", dumped)
    assert int(width) <= 420
    hidden = dict(re.findall(r" (\w[\w ,()]+): (-?\d+) hidden;", dumped))
    assert "Refused and broken, by reason" in hidden
    assert {name for name, width in hidden.items() if int(width) > 0} <= {"Newest 10 records"}, hidden


def test_a_report_works_in_a_browser_and_runs_nothing_but_its_own_script(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.outcome(a_call(HOSTILE), result(ResultCode.POLICY_DENIED, HOSTILE))
    trail.close()
    _report(path, tmp_path / "page.html", capsys)
    page = _dumped(tmp_path / "page.html", tmp_path)
    assert re.search(r'id="shown"[^>]*>(\d+) of \1 rows<', page), "the page's own script ran"
    assert "<title>Audit report</title>" in page, "and no other"
