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


def _browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium is installed")


def test_a_report_works_in_a_browser_and_runs_nothing_but_its_own_script(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(path)
    trail.outcome(a_call(HOSTILE), result(ResultCode.POLICY_DENIED, HOSTILE))
    trail.close()
    _report(path, tmp_path / "page.html", capsys)
    options = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    flags = [f"--{name}" for name in (options + " disable-component-update disable-sync").split()]
    command = [_browser(), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, f"file://{tmp_path / 'page.html'}"], capture_output=True, timeout=50, check=True
    )
    page = done.stdout.decode()
    assert re.search(r'id="shown"[^>]*>(\d+) of \1 rows<', page), "the page's own script ran"
    assert "<title>Audit report</title>" in page, "and no other"
