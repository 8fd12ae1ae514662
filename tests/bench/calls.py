"""The figures of calls: one after another, many at once, and what ten thousand of them leave in the broker's memory."""

import os
import statistics
import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.bench.figures import Row
from tests.bench.measures import PYTHON, Plan
from tests.bench.peers import NODE_PEER
from tests.bench.rpc import Client
from tests.bench.served import Broker, a_place, server
from tests.bench.ways import Way, in_turns, load

WARM_UP = 10
IN_A_ROW = 10
"""A server in use: what stands in the processor's caches is its own. Of `each after another's` it is another's."""
IN_FLIGHT = 16
FLIGHT_CALLS = 320
BARE = "bare subprocess.run with pipes"
MIB = 1024.0


VARIABLES = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/"}
"""As many as a command of ours gets: with a LANG, `echo` reads its locale first."""


def bare_echo() -> None:
    """Run `echo hi` as anybody would who guards nothing."""
    subprocess.run(["echo", "hi"], check=True, capture_output=True, env=VARIABLES)


def latency(plan: Plan) -> list[Row]:
    """`echo hi`, one call at a time: through MCP, through the broker alone, bare, and through each peer."""
    with ExitStack() as stack:
        ours = stack.enter_context(Client(server(a_place(plan.folder / "mcp"))))
        broker = stack.enter_context(Broker(a_place(plan.folder / "broker")))
        peers = [stack.enter_context(Client(peer)) for peer in plan.peers]
        ways: dict[str, Way] = {"mcp": ours.call, "broker": broker.call, BARE: bare_echo}
        ways |= {peer.server.name: peer.call for peer in peers}
        in_turns(ways, min(WARM_UP, plan.calls))
        one_by_one = in_turns(ways, plan.calls)
        rows = _latency_rows("", in_turns(ways, max(1, plan.calls // IN_A_ROW), IN_A_ROW))
    return rows + _latency_rows(", each after another's", one_by_one)


def _latency_rows(how: str, seconds: dict[str, float]) -> list[Row]:
    medians = {name: taken * 1e3 for name, taken in seconds.items()}
    mcp, alone, bare = (medians.pop(name) for name in ("mcp", "broker", BARE))
    rows = [
        Row(f"echo hi through MCP{how}", mcp, "ms", BARE, bare, 2.6, load()),
        Row(f"echo hi through the broker alone{how}", alone, "ms", BARE, bare, 2.0, load()),
    ]
    peers = medians.items()
    return rows + [
        Row(f"echo hi through MCP{how}", mcp, "ms", name, peer, 1.0, load()) for name, peer in peers
    ]


def throughput(plan: Plan) -> list[Row]:
    """Calls a second with 16 in flight; against a bare loop of one at a time where no peer is measured."""
    calls = min(FLIGHT_CALLS, plan.calls)
    with ExitStack() as stack:
        ours = stack.enter_context(Client(server(a_place(plan.folder / "flight"))))
        peers = [stack.enter_context(Client(peer)) for peer in plan.peers]
        rates: dict[str, list[float]] = {}
        for _ in range(5):
            for client in (ours, *peers):
                rates.setdefault(client.server.name, []).append(client.flight(calls, IN_FLIGHT))
            bare = in_turns({BARE: bare_echo}, max(1, calls // 5))[BARE]
            rates.setdefault(f"{BARE}, one at a time", []).append(1 / bare)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    own = medians.pop("ours")
    return [
        Row(
            "calls a second, 16 in flight",
            own,
            "/s",
            name,
            rate,
            1.0 if name == NODE_PEER else None,
            load(),
            at_least=True,
        )
        for name, rate in medians.items()
    ]


def resident_mib(pid: int, field: str = "VmRSS") -> float:
    """Return a field of /proc/PID/status in MiB (proc_pid_status(5)); VmHWM is the most that it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / MIB
    raise ValueError(field)


def bare_python_mib() -> float:
    """Return what an interpreter holds that does nothing but wait."""
    command = (PYTHON, "-I", "-c", "print(flush=True); input()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        held = resident_mib(process.pid)
        process.stdin.write(b"\n")
    return held


def memory(plan: Plan) -> list[Row]:
    """The broker's resident memory, idle and after many calls."""
    bare = bare_python_mib()
    with Client(server(a_place(plan.folder / "memory"))) as client:
        idle = resident_mib(client.pid)
        client.flight(100, IN_FLIGHT)
        warm = resident_mib(client.pid)
        client.flight(plan.memory_calls, IN_FLIGHT)
        after = resident_mib(client.pid)
    python = "bare python, idle"
    calls = f"{plan.memory_calls:,} calls"
    return [
        Row("broker's memory, idle", idle, "MiB", python, bare, 20, load(), difference=True),
        Row(f"broker's memory, after {calls}", after, "MiB", python, bare, 20, load(), difference=True),
        Row(
            f"broker's memory, after {calls}",
            after,
            "MiB",
            "the same after 100",
            warm,
            1,
            load(),
            difference=True,
        ),
    ]
