"""The filter that an operator tries on own files."""

import io
import sys
from pathlib import Path

import pytest

from broker.redact_command import main
from broker.refusal import StartupError
from tests.support.random_text import filled

SECRET = filled("ghp_{base62:36}")


class _Binary(io.TextIOWrapper):
    """Standard input or output over bytes."""


def _run(monkeypatch: pytest.MonkeyPatch, arguments: list[str], data: bytes = b"") -> tuple[int, str, str]:
    out, err = io.BytesIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdin", _Binary(io.BytesIO(data)))
    stdout = _Binary(out, write_through=True)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", err)
    return main(arguments), out.getvalue().decode(), err.getvalue()


def test_standard_input_comes_out_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, [], f"a {SECRET} b\n".encode()) == (0, "a [REDACTED:github_token] b\n", "")


def test_explain_says_what_was_where_and_not_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "plain\n" * 50_000 + f"x {SECRET}\n"
    status, out, err = _run(monkeypatch, ["--explain"], text.encode())
    assert status == 0
    assert out.endswith("x [REDACTED:github_token]\n")
    assert err == "line 50001, column 3: github_token, 40 bytes\n"


def test_list_names_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _err = _run(monkeypatch, ["--list"])
    names = out.split()
    assert status == 0
    assert {"github_token", "jwt", "private_key", "password", "aws_secret_access_key"} <= set(names)
    assert names == sorted(set(names))


def test_files_come_out_redacted_one_after_the_other_and_standard_input_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, last = tmp_path / "first.log", tmp_path / "last.log"
    first.write_text(f"a {SECRET}\n")
    last.write_text("no secret, no newline")
    status, out, err = _run(monkeypatch, ["--explain", str(first), "-", str(last)], f"b {SECRET}\n".encode())
    marker = "[REDACTED:github_token]"
    assert (status, out) == (0, f"a {marker}\nb {marker}\nno secret, no newline")
    assert (
        err
        == f"{first}: line 1, column 3: github_token, 40 bytes\nline 1, column 3: github_token, 40 bytes\n"
    )


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = tmp_path / "there.log"
    there.write_text("x\n")
    status, out, err = _run(monkeypatch, [f"{tmp_path}/missing", str(tmp_path), str(there)])
    assert (status, out) == (1, "x\n")
    assert [line.rpartition(": ")[2] for line in err.splitlines()] == [
        "No such file or directory",
        "Is a directory",
    ]


def test_the_name_of_a_file_steers_no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there, missing = tmp_path / "a\x1b[2J\nb", tmp_path / "c\x9b2J"
    there.write_text(f"a {SECRET}\n")
    _, _, err = _run(monkeypatch, ["--explain", str(there), str(missing)])
    assert err.splitlines() == [
        rf"{tmp_path}/a\x1b[2J\nb: line 1, column 3: github_token, 40 bytes",
        rf"hardened-terminal-mcp: {tmp_path}/c\x9b2J: No such file or directory",
    ]


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--policy"]])
def test_wrong_arguments_are_status_2_and_show_the_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_missing_policy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartupError, match="No such file"):
        _run(monkeypatch, ["--policy", "/nonexistent/policy.toml"])


def test_the_policys_patterns_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    policy = f"{tmp_path}/policy.toml"
    with open(policy, "w") as file:
        file.write('[redaction]\nextra_patterns = [{ name = "internal_id", regex = "INT-[0-9]{8}" }]\n')
    assert _run(monkeypatch, ["--policy", policy], b"INT-12345678\n")[1] == "[REDACTED:internal_id]\n"
    assert "internal_id" in _run(monkeypatch, [f"--policy={policy}", "--list"])[1].split()
