"""`audit report`: one page that loads nothing and shows every text as text."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.messages import ResultCode
from tests.support.opened_trail import a_call, open_trail, printed, result, varied_trail


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
onload="document.body.append('wide: ' + this.contentDocument.documentElement.scrollWidth)"></iframe></body>"""


def test_a_report_fits_a_telephone(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trail = open_trail(path)
    trail.outcome(a_call("x" * 300), result(ResultCode.POLICY_DENIED, "y" * 300))
    trail.close()
    _report(path, tmp_path / "page.html", capsys)
    (tmp_path / "narrow.html").write_text(NARROW)
    (width,) = re.findall(r"wide: (\d+)", _dumped(tmp_path / "narrow.html", tmp_path))
    assert int(width) <= 420


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
