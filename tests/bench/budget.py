"""Where the time of one `echo hi` through MCP goes, part by part: each part measured alone, in turns with the whole."""

import statistics
import threading
from contextlib import ExitStack
from typing import Self

from broker import configuration, startup
from broker.audit_record import Call, new_event_id
from broker.execution import Executor
from broker.job import AT_ONCE, Completed, Job
from broker.output import OutputFilter
from broker.pipeline import Admitted, Pipeline
from protocol.messages import CommandResult, ExplainRequest, ResultCode, RunRequest
from tests.bench.calls import BARE, WARM_UP, bare_echo
from tests.bench.figures import Row
from tests.bench.measures import Plan
from tests.bench.rpc import Client
from tests.bench.served import ECHO, Broker, a_place, server
from tests.bench.ways import Way, in_turns, load, seconds
from tests.support.place import Place

WHOLE = "echo hi through MCP"


class Parts:
    """The parts of a broker in this process, without its loop: what a call passes through."""

    def __init__(self, place: Place) -> None:
        settings = configuration.read(place.environment())
        self._jail = startup.open_jail(settings.file, settings.environ)
        self._gate = startup.build_gate(settings, self._jail)
        home = startup.empty_home(settings.environ)
        file = settings.file
        self._executor = Executor(self._jail, file.containment, file.environment, home, startup.warn)
        self._trail = startup.open_trail(self._gate, settings.environ)
        self._pipeline = Pipeline(self._gate, self._trail, self._executor)
        self._ids = 0
        self._admitted = self._admit()
        self._position = self._trail.attempt(self._call)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admitted.located.close()
        self._executor.close()
        self._trail.close()

    @property
    def _call(self) -> Call:
        return self._admitted.call

    def _admit(self) -> Admitted:
        self._ids += 1
        admitted = self._pipeline.admit(RunRequest(self._ids, ECHO))
        assert isinstance(admitted, Admitted)
        return admitted

    def gate(self) -> None:
        """Parse, choose, locate, permit."""
        self._admit().located.close()

    def explain(self) -> None:
        """All of an explain but its way there and back."""
        self._ids += 1
        self._pipeline.answer_explain(ExplainRequest(self._ids, ECHO))

    def attempt(self) -> None:
        """Write the attempt."""
        self._call.event_id = new_event_id()
        self._position = self._trail.attempt(self._call)

    def sync(self) -> None:
        """Wait until what was written last is on disk."""
        self._trail.sync(self._position)

    def outcome(self) -> None:
        """Write the outcome."""
        reason = self._admitted.permitted.reason
        self._trail.outcome(self._call, CommandResult(True, ResultCode.OK, "hi\n", "", 0, 3, reason))

    def _filters(self) -> tuple[OutputFilter, OutputFilter]:
        redactor = self._gate.redactor
        return OutputFilter(redactor, 100_000), OutputFilter(redactor, 100_000)

    def redact(self) -> None:
        """Pass the output on: decode, clean, redact, cap."""
        stdout, stderr = self._filters()
        stdout.feed(b"hi\n")
        stdout.close()
        stderr.close()

    def run(self) -> None:
        """Confine a thread, start the program, read it, end it and all that it left."""
        ended = threading.Event()
        permitted, fd = self._admitted.permitted, self._admitted.located.fd

        def done(completed: Completed) -> None:
            assert completed.code is ResultCode.OK, completed
            ended.set()

        self._executor.start(Job(permitted, fd, *self._filters()), AT_ONCE, done)
        assert ended.wait(10)


def budget(plan: Plan) -> list[Row]:
    """The parts of a call, as shares of the whole."""
    with ExitStack() as stack:
        mcp = stack.enter_context(Client(server(a_place(plan.folder / "whole"))))
        broker = stack.enter_context(Broker(a_place(plan.folder / "without_mcp")))
        parts = stack.enter_context(Parts(a_place(plan.folder / "parts")))

        def explained() -> None:
            assert broker.client.explain(ECHO).ok

        ways: dict[str, Way] = {
            "mcp": mcp.call,
            "broker": broker.call,
            "explained": explained,
            "explain": parts.explain,
            "gate": parts.gate,
            "run": parts.run,
            "redact": parts.redact,
            BARE: bare_echo,
        }
        in_turns(ways, min(WARM_UP, plan.calls))
        ms = {name: taken * 1e3 for name, taken in in_turns(ways, plan.calls).items()}
        ms |= {name: taken * 1e3 for name, taken in _audit(parts, plan.calls).items()}
    return [Row(name, value, "ms", WHOLE, ms["mcp"], None, load()) for name, value in _parts(ms)]


def _audit(parts: Parts, calls: int) -> dict[str, float]:
    """Attempt, sync and outcome, in their order each time: a sync is of what was just written."""
    steps: dict[str, Way] = {"attempt": parts.attempt, "sync": parts.sync, "outcome": parts.outcome}
    rounds = [{name: seconds(step) for name, step in steps.items()} for _ in range(calls)]
    return {name: statistics.median(once[name] for once in rounds) for name in steps}


def _parts(ms: dict[str, float]) -> list[tuple[str, float]]:
    parts = [
        ("client, SDK, frontend and its hop to the broker", ms["mcp"] - ms["broker"]),
        ("client's hop to the broker and back, the broker's loop", ms["explained"] - ms["explain"]),
        ("gate: parse, choose, locate, permit", ms["gate"]),
        ("attempt, written", ms["attempt"]),
        ("attempt, on disk", ms["sync"]),
        ("confine, spawn, read, end", ms["run"] - ms["redact"]),
        ("redact and cap", ms["redact"]),
        ("outcome, written", ms["outcome"]),
    ]
    rest = ms["mcp"] - sum(value for _, value in parts)
    return [*parts, ("the rest: waiting for one another", rest), (f"for comparison: {BARE}", ms[BARE])]
