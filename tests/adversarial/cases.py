"""The hostile commands of the data files, and the jail that each of them is run in.

Always true: a case is data; `{JAIL}` and `{OUT}` in it stand for the jail and its sibling `outside`. Its `source` says where
it comes from.
"""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.repository import begin, git

DATA = Path(__file__).parent / "data"


class Case(NamedTuple):
    """One line of a data file. `spellings` are texts for the same argv."""

    id: str
    program: str
    command: str
    argv: tuple[str, ...] | None
    cwd: str | None
    files: tuple[dict[str, Any], ...]
    kind: str
    expected: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Return the case of a decoded line."""
        argv = tuple(row["argv"]) if "argv" in row else None
        files = tuple(row.get("files", ()))
        return cls(
            row["id"],
            row["program"],
            row["command"],
            argv,
            row.get("cwd"),
            files,
            row["kind"],
            row["expected"],
        )

    @property
    def spellings(self) -> tuple[str, ...]:
        """The command as it was found, and its words quoted anew, so that the grammar lets every word through."""
        if self.argv is None:
            return (self.command,)
        return tuple(dict.fromkeys((self.command, shlex.join(self.argv))))


def load(*names: str) -> list[Case]:
    """Return the cases of the data files of these names, in order."""
    rows = [
        json.loads(line) for name in names for line in (DATA / name).read_text(encoding="utf-8").splitlines()
    ]
    return [Case.of(row) for row in rows]


def not_run(about: str) -> dict[str, str]:
    """Return the names of what is not run everywhere, or not as it stands, each with its reason."""
    rows = [json.loads(line) for line in (DATA / "not_run.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row["reason"] for row in rows if row["about"] == about}


GATE_ALONE = not_run("case")
"""Cases that the gate refuses under every policy, so that no kernel ever sees them."""

REFUSED_BY_DESIGN = not_run("refused by design")
"""Cases that the shipped policy should allow by their data's label, and does not."""

HOSTILE = load("gtfobins.jsonl", "cves.jsonl")
PROGRAMS = sorted({case.program for case in HOSTILE} | {case.argv[0] for case in HOSTILE if case.argv})

BASE_FILES = {
    "README.md": "# demo\n\nalpha TODO beta\nA small project.\n",
    "a.txt": "alpha\nbeta\ngamma\n",
    "b.txt": "alpha\ndelta\ngamma\n",
    "src/app.py": "def main():\n    return 0\n",
    "data.csv": "name,size\nalpha,1\nbeta,2\n",
    "data.json": '{"name": "alpha", "sizes": [1, 2]}\n',
}


def build_template(folder: Path) -> None:
    """Fill `folder` with the base fixture: a repository with one commit, a tag, a branch and a changed file."""
    for name, content in BASE_FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    begin(folder)
    git(folder, "tag", "v1.0")
    git(folder, "branch", "feature")
    with (folder / "README.md").open("a") as file:
        file.write("one more line\n")


def lay_out(files: tuple[dict[str, Any], ...], jail: Path, outside: Path, mark: str) -> None:
    """Write a case's own files into the jail. A shell script among them prints `mark`, if there is one, when it runs."""
    for file in files:
        path = jail / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_file():
            path.unlink()
        if "symlink" in file:
            path.symlink_to(placed(file["symlink"], jail, outside))
            continue
        path.write_text(_telling(placed(file["content"], jail, outside), mark))
        path.chmod(int(file["mode"], 8))


def _telling(content: str, mark: str) -> str:
    if not (mark and content.startswith("#!/bin/sh\n")):
        return content
    split = f'{mark[:4]}""{mark[4:]}'  # so that the script's text is not its trace
    return f"{content}\necho {split}; echo {split} >&2\n"


def placed(text: str, jail: Path, outside: Path) -> str:
    """Return `text` with the placeholders filled in."""
    return text.replace("{JAIL}", str(jail)).replace("{OUT}", str(outside))


def empty(folder: Path) -> None:
    """Remove everything beneath `folder`, whatever modes a program gave it."""
    folder.chmod(0o755)
    for entry in folder.iterdir():
        remove(entry)


def remove(path: Path) -> None:
    """Remove a file or a folder, whatever modes a program gave it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        _open_up(path)
        shutil.rmtree(path)


def _open_up(folder: Path) -> None:
    folder.chmod(0o755)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _open_up(entry)
