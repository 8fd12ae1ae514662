"""The layers of a call come on in the order that docs/containment.md tells, read from a trace of a real run."""

import re
import shutil
import subprocess

import pytest

from tests.support.command import COMMAND
from tests.support.documents import ROOT, section
from tests.support.place import Place

BOUND_S = 40.0
WORD = "traced"
CALLS = "landlock_restrict_self,seccomp,execve,prlimit64,setsid,unshare,umask,fchdir,close_range,clone,ioctl"
LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")

THREAD = ["unshare", "umask", "seccomp", "landlock_restrict_self", "clone"]
"""Steps 2 and 3: its umask, the filter for its number that also asks, the entry's domain; then the process."""
PROCESS = ["setsid", "fchdir", "close_range", "execve"]
"""Step 4."""


def trace(place: Place) -> list[tuple[str, str, str]]:
    """Return thread, call and the rest of each line of a traced run; a call that returned late has `-returned` to its name."""
    log = place.folder / "trace"
    words = ["strace", "-f", "-qq", "-s", "200", "-e", f"trace={CALLS}", "-o", str(log)]
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tried = subprocess.run([*words, "true"], capture_output=True, timeout=BOUND_S, check=False)
    if tried.returncode:
        pytest.skip(f"strace cannot trace here: {tried.stderr.decode(errors='replace')}")
    ended = subprocess.run(
        [*words, COMMAND, "run", f"echo {WORD}"],
        env=place.environment(),
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    assert ended.stdout.decode() == f"{WORD}\n", ended.stderr
    found = [LINE.match(line) for line in log.read_text(errors="replace").splitlines()]
    return [(line[1], line[3] or f"{line[2]}-returned", line[4]) for line in found if line]


def test_the_layers_come_on_in_the_order_that_is_told(place: Place) -> None:
    lines = trace(place)
    (started,) = [
        place for place, (_, name, rest) in enumerate(lines) if name == "execve" and f', "{WORD}"]' in rest
    ]
    process = lines[started][0]
    thread = next(
        who for who, name, rest in lines if name.startswith("clone") and rest.endswith(f"= {process}")
    )
    taken = [(name, rest) for who, name, rest in lines if who == thread and name in THREAD]
    made = [(name, rest) for name, rest in taken if name != "clone" or "CLONE_VFORK" in rest]
    assert [name for name, _ in made] == THREAD
    assert "NEW_LISTENER" in made[2][1]
    own = [name for who, name, _ in lines if who == process]
    assert own[: len(PROCESS)] == PROCESS

    runs = next(
        place for place, (who, name, _) in enumerate(lines) if who == process and name == "execve-returned"
    )
    let_through = next(
        place
        for place, (_, _, rest) in enumerate(lines)
        if started < place < runs and "SECCOMP_IOCTL_NOTIF_SEND" in rest
    )
    limited = [
        (place, who)
        for place, (who, name, rest) in enumerate(lines)
        if name == "prlimit64" and rest.startswith(f"{process},")
    ]
    assert limited
    assert all(started < place < let_through for place, _ in limited), "while the program waits in its exec"
    assert {who for _, who in limited} == {lines[let_through][0]}, "by the warden, which then lets it through"
    assert not {who for _, who in limited} & {thread, process}


def test_the_order_that_is_told_has_these_steps() -> None:
    told = section(ROOT / "docs" / "containment.md", "The order")
    steps = re.findall(r"(?m)^\d\. (.*(?:\n   .*)*)", told)
    marks = ["once", "umask", "domain of the entry", "waits in its exec", "limits"]
    assert len(steps) == len(marks)
    assert all(mark in step for mark, step in zip(marks, steps, strict=True))
