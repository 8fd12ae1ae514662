"""Globs as a shell would expand them, by the broker, and never outside the jail."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import globs
from broker.globs import expand
from broker.grammar import parse
from broker.jail import Jail
from broker.refusal import PolicyDenied


@pytest.fixture
def jail(tmp_path: Path) -> Iterator[Jail]:
    root = tmp_path / "jail"
    for folder in ("src/app", "docs", ".hidden", "a[b]"):
        (root / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("")
    for name in (
        "a.py",
        "b.py",
        "B.txt",
        ".dot.py",
        "-rf",
        "x y",
        "[ab]",
        "caf\u00e9",
        "src/m.py",
        "src/app/n.py",
        "a[b]/c",
    ):
        (root / name).write_text("")
    (root / "out").symlink_to("../outside")
    (root / "link").symlink_to("src")
    (root / "absolute").symlink_to(root / "src")
    (root / "nowhere").symlink_to("missing")
    jail = Jail(str(root))
    yield jail
    jail.close()


def words(jail: Jail, command: str, cwd: str | None = None) -> list[str]:
    with jail.locate(cwd) as located:
        return list(expand(parse(command), located, jail))[1:]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls *.py", ["a.py", "b.py"]), ("ls -l *.py x", ["-l", "a.py", "b.py", "x"]),
        ("ls ?.*", ["B.txt", "a.py", "b.py"]), ("ls .*", [".dot.py", ".hidden"]), ("ls .*.py", [".dot.py"]),
        ("ls [ab].py", ["a.py", "b.py"]), ("ls [!a].py", ["b.py"]), ("ls [^a].py", ["b.py"]),
        ("ls [a-b].py", ["a.py", "b.py"]), ("ls [[:upper:]]*", ["B.txt"]),
        ("ls [[:lower:]].py", ["a.py", "b.py"]), ("ls '[ab]'*", ["[ab]"]), ("ls 'x '*", ["x y"]),
        ("ls caf?", ["caf\u00e9"]), ("ls -*", ["./-rf"]), ("ls ?rf", ["./-rf"]), ("ls ./-*", ["./-rf"]),
        ("ls */*.py", ["absolute/m.py", "link/m.py", "src/m.py"]),
        ("ls **/*.py", ["absolute/m.py", "link/m.py", "src/m.py"]), ("ls src/*/n.py", ["src/app/n.py"]),
        ("ls src/*/", ["src/app/"]), ("ls a'['*/*", ["a[b]/c"]), ("ls nowher?", ["nowhere"]),
        ("ls ou?", ["out"]), ("ls link/*.py", ["link/m.py"]), ("ls ./src//*.py", ["./src//m.py"]),
        ("ls *.py *.txt", ["a.py", "b.py", "B.txt"]),
    ],
)  # fmt: skip
def test_a_pattern_becomes_the_names_it_matches(jail: Jail, command: str, expected: list[str]) -> None:
    assert words(jail, command) == expected


def test_a_pattern_is_read_from_the_working_directory(jail: Jail) -> None:
    assert words(jail, "ls *", "src") == ["app", "m.py"]
    assert words(jail, "ls ../*.py", "src") == ["../a.py", "../b.py"]
    assert words(jail, "ls *", "absolute/app") == ["n.py"]


def test_an_absolute_pattern_inside_the_jail_works(jail: Jail) -> None:
    assert words(jail, f"ls '{jail.root}'/src/*.py") == [f"{jail.root}/src/m.py"]


@pytest.mark.parametrize(
    "command",
    [
        "ls *.none",
        "ls none/*",
        "ls a.py/*",
        "ls out/*",
        "ls out/sec*",
        "ls */secret.txt",
        "ls */../../outside/*",
        "ls [z-a]*",
        "ls [[:none:]]*",
    ],
)
def test_a_pattern_that_matches_nothing_beneath_the_jail_is_denied(jail: Jail, command: str) -> None:
    with pytest.raises(PolicyDenied, match=r"column 4|link"):
        words(jail, command)


@pytest.mark.parametrize(
    "command", ["ls /*", "ls /etc/*", "ls ../*", "ls ../outside/*", "ls /proc/self/cwd/*", "ls src/../../*"]
)
def test_a_pattern_that_starts_outside_the_jail_is_denied(jail: Jail, command: str) -> None:
    with pytest.raises(PolicyDenied, match="path"):
        words(jail, command)


@pytest.mark.parametrize(
    "name", [b"bad\xff.q", b"bad\x1b[2J.q", b"bad\n.q", "bad\u202e.q".encode(), "bad\u200b.q".encode()]
)
def test_a_name_that_nobody_can_read_is_denied_not_left_out(jail: Jail, name: bytes) -> None:
    (Path(jail.root) / "good.q").write_text("")
    with open(os.path.join(os.fsencode(jail.root), name), "w"):
        pass
    with pytest.raises(PolicyDenied, match="characters"):
        words(jail, "ls *.q")
    assert words(jail, "ls good.*") == ["good.q"]


def test_too_many_results_are_denied(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "RESULTS", 5)
    assert words(jail, "ls *.py *.txt")
    with pytest.raises(PolicyDenied, match="too many"):
        words(jail, "ls *")
    with pytest.raises(PolicyDenied, match="too many"):
        words(jail, "ls *.py *.py *.py")


def test_too_many_folders_on_the_way_are_denied(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words(jail, "ls */c") == ["a[b]/c"]
    monkeypatch.setattr(globs, "RESULTS", 2)
    with pytest.raises(PolicyDenied, match="too many"):
        words(jail, "ls */c")


@pytest.mark.parametrize(("bound", "value"), [("NAMES", 3), ("DIRECTORIES", 2)])
def test_too_much_work_is_denied(jail: Jail, monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(globs, bound, value)
    with pytest.raises(PolicyDenied, match="too many names to look at"):
        words(jail, "ls */*/*")


def test_a_pattern_made_to_backtrack_stays_fast(jail: Jail) -> None:
    (Path(jail.root) / ("a" * 250)).write_text("")
    with pytest.raises(PolicyDenied, match="nothing"):
        words(jail, "ls " + "*a" * 100 + "b")
    assert words(jail, "ls " + "*a" * 100) == ["a" * 250]


@pytest.mark.parametrize(
    "pattern",
    ["?" * 60_000, "*?" * 30_000, "*?" * 2_000, "*/" * 30_000, "[a]" * 60, "*" * 60_000],
    ids=range(6),
)
def test_a_long_pattern_is_answered(jail: Jail, pattern: str) -> None:
    with pytest.raises(PolicyDenied):
        words(jail, f"ls {pattern}x")


def test_no_descriptor_is_left_open(jail: Jail) -> None:
    before = os.listdir("/proc/self/fd")
    words(jail, "ls */* * .*")
    with pytest.raises(PolicyDenied):
        words(jail, "ls */none")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "words_of_command",
    ["*", "*.py", "?.*", "[!a]*", "[ab]*", "'['*", "*[b]*", "*/*", "*'.'py", "src/*", "*/*/", "[[:punct:]]*",
     "[]a-]*", "[a-]*", '*"]"*', ".*y"],
)  # fmt: skip
def test_a_real_shell_expands_to_the_same_words(jail: Jail, words_of_command: str) -> None:
    script = f"printf '%s\\0' {words_of_command}"
    environment = {"LC_ALL": "C.UTF-8"}
    shell = subprocess.run(
        ["bash", "-c", script], cwd=jail.real, env=environment, capture_output=True, check=True, timeout=10
    )
    theirs = shell.stdout.decode().split("\0")[:-1]
    outside = [word for word in theirs if word.startswith("out/")]
    mine = [word.removeprefix("./") for word in words(jail, f"ls {words_of_command}")]
    assert mine == [word for word in theirs if word not in outside]
