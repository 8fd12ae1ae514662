"""One hooked broker with its frontend, watched from outside until nothing is left of it.

Always true: every wait has a bound; the marker stands in the command line of every process of the run.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, NamedTuple

from tests.support import processes, trail
from tests.support.command import COMMAND
from tests.support.place import Place

HERE = Path(__file__).parent
FRONTEND = (HERE / "calling_frontend.py").read_text(encoding="utf-8")
BOUND_S = 15.0
"""Within this an envelope or the end of the stream must have come: nothing here takes half a second on an idle machine."""
GONE_S = 1.0
CODES = {"OK", "EXECUTOR_ERROR", "INTERNAL_ERROR"}


class Fault(NamedTuple):
    """Which fault hits whom at which step, with how many calls in flight."""

    step: str
    when: str = "after"
    victim: str = "broker"
    kind: str = "SIGKILL"
    calls: int = 1

    @property
    def times(self) -> int:
        """How often the step is reached before the fault: with many calls, others are ahead of it and behind it."""
        return 1 if self.step == "frame read" else min(self.calls, 3)


class HookedRun:
    """A broker that a fault will hit, and what its client saw."""

    def __init__(self, place: Place, fault: Fault) -> None:
        self.marker = processes.unique_seconds()
        self.fault = fault
        # prints first, so that there is output to read; its child leaves the session and would outlive it
        command = f"sh -c 'echo begun; setsid sleep {self.marker} & echo more; sleep 0.02'"
        hooked = [str(HERE / "hooked_broker.py"), fault.step, fault.when, fault.victim, fault.kind]
        frontend = [sys.executable, "-I", "-c", FRONTEND, str(fault.calls), command]
        self.process = subprocess.Popen(
            [sys.executable, "-I", *hooked, str(fault.times), "--", *frontend],
            env=place.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.codes: list[str] = []
        self.errors: list[str] = []
        self.last_word: str | None = None
        self.answered = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_replies, args=(self.process.stdout,)),
            threading.Thread(target=self._read_errors, args=(self.process.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def _read_replies(self, stdout: IO[str]) -> None:
        for line in stdout:
            word, _, code = line.strip().partition(" ")
            if word == "reply":
                self.codes.append(code)
            else:
                self.last_word = word
                self.answered.set()
        self.answered.set()  # the stream is closed: the frontend is gone

    def _read_errors(self, stderr: IO[str]) -> None:
        for line in stderr:
            word, _, pid = line.strip().partition(" ")
            self.errors.append(line.strip())
            if word == "stopped":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    @property
    def struck(self) -> bool:
        """Whether the step was reached and the fault done."""
        return "struck" in self.errors

    def finish(self) -> None:
        """Wait for the answers or their end, close the frontend's stdin, and see that nothing is left in time."""
        try:
            assert self.answered.wait(BOUND_S), "the client has neither its answers nor a closed stream"
            self.process.stdin.close()
            self.process.wait(BOUND_S)
            processes.wait_until_nothing_left(self.marker, bound_s=GONE_S)
            for thread in self._threads:
                thread.join(GONE_S)
                assert not thread.is_alive(), "a stream of the dead is still open"
        finally:
            self.process.kill()
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def survive(self) -> None:
        """`finish`, and what must hold whatever the fault was. Raises AssertionError, naming the fault."""
        try:
            self.finish()
            assert self.struck, f"the step was never reached: {self.errors}"
            assert set(self.codes) <= CODES, self.codes
            assert len(self.codes) == self.fault.calls or self.last_word != "done"
            assert [word for word in self.errors if word.startswith("Traceback")] == []
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(
                f"{self.fault}: {error}\n{self.codes} {self.last_word} {self.errors}"
            ) from error


def operate(place: Place, *arguments: str) -> str:
    """Run the installed command in the same place; return what it printed. Raises for a status other than 0."""
    done = subprocess.run(
        [COMMAND, *arguments],
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    return done.stdout


def check_fresh_start(place: Place) -> None:
    """A new broker serves; then the chain is whole and each attempt has its one outcome."""
    assert operate(place, "run", "echo again") == "again\n"
    operate(place, "audit", "verify")
    records = trail.calls(place.trail)
    attempts = [record["event_id"] for record in records if record["record_type"] == "attempt"]
    outcomes = [record["event_id"] for record in records if record["record_type"] == "outcome"]
    assert len(set(attempts)) == len(attempts)
    assert len(set(outcomes)) == len(outcomes)
    assert set(attempts) <= set(outcomes)
