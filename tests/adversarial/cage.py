"""A broker under test in a place of its own: a jail, its sibling `outside` with a canary, and everything that watches them.

Always true: a run returns what the caller was told and every trace of an escape that was found, and leaves jail and
outside as they were for the next; every wait has a bound; nothing is killed but by id, and only what the call left behind.
"""

import array
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Self

from protocol.client import BrokerClient, BrokerGone
from protocol.messages import CommandResult
from tests.adversarial import cases, evidence
from tests.adversarial.ground import Ground
from tests.adversarial.identity import Identity, interpreter_for
from tests.adversarial.programs_on_path import POLICY_PATH, STANDINS, program_files
from tests.adversarial.witness import Act, Witness, is_loader
from tests.support import processes

LAUNCHER = Path(__file__).parent / "launcher.py"
BOUND_S = 25
_BURIAL_S = 1.0
_MAIN = "from broker.main import hardened_terminal_broker as main; main()"
_DESCRIPTORS = 64


class Seen(NamedTuple):
    """What a run told its caller, what it executed, and the traces of an escape."""

    result: CommandResult
    ran: frozenset[str]
    traces: list[str]

    @property
    def refused(self) -> bool:
        """Whether the gate said no, before anything ran."""
        return self.result.code in {"POLICY_DENIED", "PARSE_ERROR", "CWD_ESCAPE"}

    @property
    def failed(self) -> bool:
        """Whether the broker itself failed, so that an absence of traces says nothing."""
        return self.result.code in {"INTERNAL_ERROR", "AUDIT_UNAVAILABLE"}

    @property
    def output(self) -> str:
        """Everything that the caller was told."""
        return _output(self.result)


def _output(result: CommandResult) -> str:
    return result.stdout + result.stderr + result.policy_reason


class Cage(Ground):
    """One broker under one policy as one identity.

    `policy` is the text of a policy file, `runnable` what its entries may start besides themselves (None: not judged), `path`
    where it looks programs up.
    """

    def __init__(
        self,
        policy: str,
        identity: Identity,
        *,
        runnable: tuple[str, ...] | None = (),
        path: str = POLICY_PATH,
    ) -> None:
        super().__init__(policy, identity)
        self.variables: dict[str, str] = {}
        self.path = path
        self.scripts_may_run = runnable is None or "sh" in runnable
        self._any_may_run = runnable is None
        self._runnable = frozenset(file for name in runnable or () for file in program_files(name, path))
        self._encodings = evidence.Encodings(self.canary)
        self._machine = evidence.Machine()
        self._witness: Witness | None = None
        self._listeners: list[socket.socket] = []
        self._process: subprocess.Popen[bytes] | None = None

    # The broker

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.base, ignore_errors=True)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._process
        return self._process.pid

    @property
    def watched(self) -> bool:
        """Whether the kernel reports what runs, and the network is our own."""
        return self._witness is not None

    def environment(self) -> dict[str, str]:
        """The broker's environment; nothing of it but PATH and LANG may reach a command."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.outside),
            "XDG_STATE_HOME": str(self.base / "state"),
            "XDG_CONFIG_HOME": str(self.base / "config"),
            "HTMCP_POLICY_FILE": str(self.base / "policy.toml"),
            "HTMCP_JAIL_ROOT": str(self.jail),
            "HTMCP_AUDIT_LOG": str(self.base / "state" / "audit.jsonl"),
            "HTM_CANARY": self.canary,
        } | self.variables

    def start(self) -> None:
        """Start the broker and shake hands."""
        ours, theirs = socket.socketpair()
        argv = [interpreter_for(self.identity), "-I", "-c", _MAIN, "--fd", str(theirs.fileno())]
        self._launch(argv, theirs.fileno())
        theirs.close()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", BOUND_S, 0))
        try:
            self.client = BrokerClient(ours, "adversary")
        except BrokerGone as gone:
            ours.close()
            self._end()
            raise AssertionError((self.base / "stderr.txt").read_text()) from gone
        self._hung_up = False
        self._acts()
        self._known = _pids()

    def _launch(self, argv: list[str], *passed_fds: int, cwd: Path | None = None) -> None:
        control, far_end = socket.socketpair()
        specification = {
            "argv": argv,
            "cwd": str(cwd or self.base),
            "environment": self.environment(),
            "outside": str(self.outside),
            "scratch": str(self.base / "scratch"),
            "standins": [str(self.base / "standins"), STANDINS],
            "user": self.identity.user,
        }
        launch = [sys.executable, "-I", str(LAUNCHER), str(far_end.fileno()), json.dumps(specification)]
        with (self.base / "stderr.txt").open("ab") as log:
            self._process = subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(far_end.fileno(), *passed_fds),
            )
        far_end.close()
        self._take_watches(control)

    def _take_watches(self, control: socket.socket) -> None:
        control.settimeout(BOUND_S)
        rights = array.array("i", [0] * _DESCRIPTORS)
        raw, ancillary, _, _ = control.recvmsg(65_536, socket.CMSG_SPACE(len(rights) * rights.itemsize))
        control.close()
        assert raw, (self.base / "stderr.txt").read_text()
        received = array.array("i")
        for _, _, data in ancillary:
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
        self.facts = json.loads(raw)
        descriptors = list(received)
        self._witness = Witness(descriptors.pop(0)) if self.facts["fanotify"] else None
        self._listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def stop(self) -> None:
        """Close the connection, and see the broker end."""
        self.hang_up()
        self._end()

    def hang_up(self) -> None:
        """Close the connection, as a frontend does that goes away."""
        if not self._hung_up:
            self._hung_up = True
            self.client.close()

    def _end(self) -> None:
        assert self._process
        with self._process as process:
            try:
                process.wait(timeout=BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        for watch in [self._witness, *self._listeners]:
            if watch is not None:
                watch.close()

    def traces_of(self, argv: list[str], cwd: Path | None = None) -> list[str]:
        """Run a program without any broker, and return the traces that it left: what we would see if nothing confined it."""
        self._known = _pids()
        self._launch(argv, cwd=cwd)
        assert self._process
        self._process.wait(timeout=BOUND_S)
        output = (self.base / "stderr.txt").read_text()
        try:
            return self._traces(output, self._judge_acts(self._acts(), (os.path.basename(argv[0]),))[1])
        finally:
            self._end()

    # One run

    def run_case(self, case: cases.Case, command: str) -> Seen:
        """Run one spelling of a case in a jail that holds the case's own files."""
        mark = "" if self.scripts_may_run else self.mark
        if case.files:
            self.prepare(lambda: cases.lay_out(case.files, self.jail, self.outside, mark))
        text, cwd = (cases.placed(part, self.jail, self.outside) for part in (command, case.cwd or ""))
        try:
            return self.run(text, cwd or None, programs=(case.program, *(case.argv or ())[:1]))
        finally:
            self.restore(changed=bool(case.files))

    def hold(self, case: cases.Case) -> Seen:
        """Run a case with the gate open: the broker lives, nothing escapes, and only what no gate lets through is refused."""
        seen = self.run_case(case, case.spellings[-1])
        assert not seen.failed, seen
        assert not seen.traces, seen
        assert seen.refused == (case.id in cases.GATE_ALONE), seen
        return seen

    def run(self, command: str, cwd: str | None = None, *, programs: tuple[str, ...] = ()) -> Seen:
        """Run one command and look for every trace of an escape."""
        self._acts()
        result = self.client.run(command, cwd)
        ran, traces = self._judge_acts(self._acts(), programs)
        return Seen(result, ran, self._traces(_output(result), traces))

    def _traces(self, output: str, acts: list[str]) -> list[str]:
        changes = evidence.differences(self._outside_before, evidence.fingerprint(self.outside))
        return [
            *acts,
            *(f"the canary is in the output: {name}" for name in self._encodings.found_in(output)),
            *(["a program printed its mark that is on no list"] if self.mark in output else []),
            *(f"outside: {change}" for change in changes),
            *(f"machine: {change}" for change in self._machine.changes()),
            *self._contacts(),
            *self._survivors(),
        ]

    def _acts(self) -> list[Act]:
        return self._witness.acts() if self._witness else []

    def _judge_acts(self, acts: list[Act], programs: tuple[str, ...]) -> tuple[frozenset[str], list[str]]:
        own = os.getpid()
        ran = frozenset(act.path for act in acts if act.kind == "ran" and not is_loader(act.path))
        traces = []
        for act in acts:
            if act.pid == own:
                continue
            if act.kind in {"opened", "read"}:
                traces.append(f"{act.kind} outside: {act.path}")
            elif act.kind == "wrote" and act.pid != self.pid and not self._is_ours_to_write(act.path):
                traces.append(f"wrote {act.path}")
        if self._any_may_run:
            return ran, traces
        started = {file for name in programs for file in program_files(name, self.path)}
        unlisted = ran - self._runnable - started
        return ran, traces + [f"ran {path}, which is on no list" for path in sorted(unlisted)]

    def _is_ours_to_write(self, path: str) -> bool:
        """Whether a run may write there, if its policy lets it write at all: what else it wrote, `fingerprint` tells."""
        return path.startswith((f"{self.jail}/", "/tmp/htmcp-"))

    def _contacts(self) -> list[str]:
        found = []
        while ready := select.select(self._listeners, [], [], 0)[0]:
            for listener in ready:
                if listener.type == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recv(65_536)
            found += [f"reached the listener at {listener.getsockname()}" for listener in ready]
        return found

    def _survivors(self) -> list[str]:
        """Return the processes that a call left behind, after the kernel had time to bury the dead; and end them."""
        deadline = time.monotonic() + _BURIAL_S
        suspects: set[int] = set()
        while True:
            suspects |= _pids() - self._known  # looked for anew each time: what dies may have begun another
            left = [pid for pid in suspects if self._is_of_a_command(pid)]
            if not left or time.monotonic() > deadline:
                break
            select.select([], [], [], 0.01)
        self._known |= suspects
        words = [f"process {pid} was left: {processes.command_line(pid)}" for pid in left]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return words

    def _is_of_a_command(self, pid: int) -> bool:
        """Whether a living process works in our place, or has what every command of this broker has in its environment."""
        try:
            works_here = os.readlink(f"/proc/{pid}/cwd").startswith(f"{self.base}/")
            return works_here or f"={self.base}/".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}
