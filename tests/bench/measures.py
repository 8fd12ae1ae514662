"""What every figure is given, and the figures of starting: to the answered tools list, and one command from start to end."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import Row
from tests.bench.rpc import Client, Server
from tests.bench.served import ECHO, a_place, server
from tests.bench.ways import Way, in_turns, load, process
from tests.support.command import COMMAND

PYTHON = sys.executable
BARE_PYTHON = (PYTHON, "-I", "-c", "pass")
BARE_SDK = (PYTHON, "-I", "-c", "import mcp.server.lowlevel, mcp.server.stdio")


class Plan(NamedTuple):
    """How much is measured. `folder` is the run's own; a figure makes what it needs in a new folder of it."""

    folder: Path
    peers: Sequence[Server]
    calls: int = 300
    starts: int = 25
    runs: int = 100
    memory_calls: int = 10_000
    volume_mb: int = 1000
    volume_rounds: int = 5
    programs: int = 10
    entries: int = 1000
    records: int = 1_000_000
    files: int = 1_000_000

    def quick(self) -> "Plan":
        """Return the same as a smoke test: nothing that it prints means anything."""
        return self._replace(
            calls=3,
            starts=1,
            runs=1,
            memory_calls=30,
            volume_mb=1,
            volume_rounds=1,
            programs=1,
            entries=10,
            records=100,
            files=100,
        )


def ready(started: Server) -> Way:
    """Return the way that starts a server, takes its tools list and ends it: the time to the list."""

    def way() -> float:
        with Client(started) as client:
            return client.ready_s

    return way


def cold_start(plan: Plan) -> list[Row]:
    """From nothing to the answered tools list."""
    place = a_place(plan.folder / "cold")
    yardstick = "python -I importing the SDK's server"
    ways = {
        "ours": ready(server(place)),
        yardstick: process(BARE_SDK, place.environment(), place.folder),
        **{peer.name: ready(peer) for peer in plan.peers},
    }
    medians = in_turns(ways, plan.starts)
    ours = medians.pop("ours") * 1e3
    return [
        Row(
            "cold start to the tools list",
            ours,
            "ms",
            name,
            seconds * 1e3,
            1.15 if name == yardstick else None,
            load(),
        )
        for name, seconds in medians.items()
    ]


def one_command(plan: Plan) -> list[Row]:
    """`hardened-terminal-mcp run`, the whole process."""
    place = a_place(plan.folder / "one")
    run = process((COMMAND, "run", ECHO), place.environment(), place.folder)
    run()  # the trail exists from here on, as it does for everybody but a first call
    yardstick = "python -I -c pass"
    medians = in_turns(
        {"ours": run, yardstick: process(BARE_PYTHON, place.environment(), place.folder)}, plan.runs
    )
    ours, bare = medians["ours"] * 1e3, medians[yardstick] * 1e3
    return [Row(f'run "{ECHO}", whole process', ours, "ms", yardstick, bare, 4.0, load())]


IMPORTS = {
    "an interpreter": "pass",
    "and typing, which msgspec needs": "import typing",
    "and msgspec, imported lean": "import broker.lean",
    "and what starting a frontend takes": "import broker.lean, broker.main, broker.serving",
    "and the rest of the broker": "import broker.lean, broker.main, broker.serving, broker.startup",
}
"""Each holds what the one before it holds."""


def start_budget(plan: Plan) -> list[Row]:
    """Where the time of `run` goes: interpreters that import more and more of a broker, as shares of the whole."""
    place = a_place(plan.folder / "imports")
    environment = place.environment()
    whole = f'run "{ECHO}", whole process'
    ways = {
        name: process((PYTHON, "-I", "-c", f"{code}\nimport os\nos._exit(0)"), environment, place.folder)
        for name, code in IMPORTS.items()
    }
    ways[whole] = process((COMMAND, "run", ECHO), environment, place.folder)
    medians = in_turns(ways, plan.runs)
    return [
        Row(name, medians[name] * 1e3, "ms", whole, medians[whole] * 1e3, None, load()) for name in IMPORTS
    ]
