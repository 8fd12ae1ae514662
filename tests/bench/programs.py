"""Everyday programs on a clone of this repository: confined, and the same command line without us."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.figures import Row
from tests.bench.measures import Plan
from tests.bench.served import SHIPPED, Broker, a_place
from tests.bench.ways import in_turns, load
from tests.support.place import Place

ROOT = Path(__file__).parents[2]
SHORT = ("git status --short", "git log --oneline -20", "grep -r import .", "grep -rc self broker")
LONG = (
    "python3 -m pytest -n0 -q -p no:cacheprovider tests/unit/test_grammar.py tests/unit/test_parse_corpus.py "
    "tests/unit/test_protocol_framing.py"
)
"""Tests of pure functions, some seconds of them: ours may not run a broker within a broker."""
ALLOWED_MS = 2.0
ALLOWED_RATIO = 1.1


def policy() -> str:
    """Return the shipped policy, with this very Python allowed to run the tests of the jail."""
    prefixes = sorted({sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)})
    folders = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    rule = f"""
[rules.python3]
arguments = "any"
writes = true
temporary = true
may_run = ["python3"]
read = {prefixes!r}
limits = {{ timeout_s = 120, cpu_s = 120 }}

[environment]
path = {folders!r}
"""
    text = SHIPPED.read_text(encoding="utf-8")
    return text.replace('  "git",\n]', '  "git", "python3",\n]', 1) + rule


def programs(plan: Plan) -> list[Row]:
    """Each command in turns, confined and not. Nothing where this is no clone, or without git."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return []
    place = a_place(plan.folder / "programs", policy())
    shutil.rmtree(place.jail)
    subprocess.run(["git", "clone", "--quiet", "--local", "--no-hardlinks", ROOT, place.jail], check=True)
    with Broker(place) as broker:
        rows = [_row(broker, place, command, plan.programs * 5) for command in SHORT]
        return [*rows, _row(broker, place, LONG, plan.programs, bearable_ms=0.0)]


def _row(broker: Broker, place: Place, command: str, rounds: int, bearable_ms: float = ALLOWED_MS) -> Row:
    words = shlex.split(command)
    path = str(Path(sys.executable).parent) + ":/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(place.outside), "LANG": "C.UTF-8"}
    words[0] = shutil.which(words[0], path=path) or words[0]

    def free() -> None:
        subprocess.run(words, check=True, capture_output=True, env=environment, cwd=place.jail)

    medians = in_turns({"confined": lambda: broker.run(command), "free": free}, rounds)
    confined, bare = medians["confined"] * 1e3, medians["free"] * 1e3
    limit = ALLOWED_RATIO + bearable_ms / bare
    return Row(
        f"{command.partition(' -n0')[0]}, confined",
        confined,
        "ms",
        "the same, not confined",
        bare,
        limit,
        load(),
    )
