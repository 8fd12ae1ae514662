"""What strace(1) saw of a process and all its threads, in the kernel's order, and a judge of that order.

Always true: a line of the trace counts for the thread that it names; a call that strace shows in two halves, because
another thread came between them, began at the first half and ended at the second. A thread stands still while its
line is written, so what one thread does because of another's call stands behind the end of that call.
"""

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

BOUND_S = 20

_STRACE = ("strace", "-f", "-q", "-y", "-s", "4000", "-e", "trace=fdatasync,execve,write")
_LINE = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<name>\w+)\()(?P<rest>.*)")
_RESULT = re.compile(r"\) += (-?\d+|\?)[^)]*(?:\([A-Za-z ]+\))*$")
_UNFINISHED = "<unfinished ...>"


class Seen(NamedTuple):
    """One system call; `began` and `ended` are places in the trace, `result` is None if it was not seen to return."""

    name: str
    text: str
    began: int
    ended: float
    result: int | None


def traced(log: Path, *, disk: str = "") -> tuple[str, ...]:
    """Return the words that make a command write its trace to `log`.

    `disk` is what is done to each fdatasync, as strace(1) says it: `delay_enter=MICROSECONDS`, `error=EIO`. Skips
    the test where nothing can be traced.
    """
    problem = _problem()
    if problem:
        pytest.skip(problem)
    return (*_STRACE, *(("-e", f"inject=fdatasync:{disk}") if disk else ()), "-o", str(log))


@functools.cache
def _problem() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed"
    words = [*_STRACE, "-e", "inject=fdatasync:delay_enter=1", "-o", "/dev/null", "true"]
    tried = subprocess.run(words, capture_output=True, timeout=BOUND_S, check=False)
    return f"strace cannot trace here: {tried.stderr.decode(errors='replace')}" if tried.returncode else ""


def seen(lines: Iterable[str]) -> list[Seen]:
    """Return the calls of a trace, in the order in which they began."""
    return sorted(_seen(lines), key=lambda call: call.began)


def _seen(lines: Iterable[str]) -> Iterator[Seen]:
    open_calls: dict[str, Seen] = {}
    for place, line in enumerate(lines):
        found = _LINE.fullmatch(line.rstrip())
        if found is None:
            continue  # the end of a thread, or a signal
        text = found["rest"]
        begun = Seen(found["name"] or "", text, place, float("inf"), None)
        if found["resumed"]:
            begun = open_calls.pop(found["thread"])
        elif text.endswith(_UNFINISHED):
            open_calls[found["thread"]] = begun
            continue
        result = _RESULT.search(text)
        returned = int(result[1]) if result and result[1] != "?" else None
        yield begun._replace(ended=place, result=returned)
    yield from open_calls.values()


def executions(calls: list[Seen], word: str) -> list[Seen]:
    """Return the executions of a program that has `word` among its arguments, tried ones included."""
    return [call for call in calls if call.name == "execve" and f', "{word}"' in call.text]


def fault_in(calls: list[Seen], trail: Path, word: str) -> str | None:
    """Return what is wrong with the order around the one command that has `word` as an argument, None if nothing is.

    Its attempt is written to `trail` with success, then an fdatasync of the trail begins, it succeeds, and after its
    return the execution returns: a program runs from there on, and until then it may wait at its start.
    """
    of_trail = [call for call in calls if re.match(rf"\d+<{re.escape(str(trail))}>", call.text)]
    written = [call for call in of_trail if call.name == "write" and _is_attempt(call.text, word)]
    if len(written) != 1 or len(executions(calls, word)) != 1:
        return f"{len(written)} attempts were written, {len(executions(calls, word))} programs executed"
    ((attempt,), (executed,)) = written, executions(calls, word)
    if not attempt.result or attempt.result < 0:
        return "the attempt was not written"
    synced = [call for call in of_trail if call.name == "fdatasync" and call.began > attempt.ended]
    if not any(call.result == 0 and call.ended < executed.ended for call in synced):
        return "no fdatasync stands between the attempt and the execution"
    return None


def _is_attempt(text: str, word: str) -> bool:
    plain = text.replace('\\"', '"')
    return '"record_type":"attempt"' in plain and f'"{word}"' in plain
