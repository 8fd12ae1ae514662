"""Ways to do a thing, timed in turns: each figure and its yardstick share whatever else the machine does."""

import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Way = Callable[[], object]
"""Does it once. What it returns as a float is taken as its seconds; otherwise the call is timed."""


def in_turns(ways: Mapping[str, Way], rounds: int, in_a_row: int = 1) -> dict[str, float]:
    """Return the median of each way in seconds; every round does each way `in_a_row` times, in a new order."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(sorted(ways), len(ways)):
            taken[name] += [seconds(ways[name]) for _ in range(in_a_row)]
    return {name: statistics.median(times) for name, times in taken.items()}


def seconds(way: Way) -> float:
    """Return how long it takes once."""
    since = time.perf_counter()
    own = way()
    return own if isinstance(own, float) else time.perf_counter() - since


def process(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Way:
    """Return the way that runs `argv` to its end with its output thrown away. It raises CalledProcessError."""

    def way() -> None:
        subprocess.run(
            argv, env=environment, cwd=cwd, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    return way


def load() -> float:
    """Return how many processes wanted to run in the last minute, on average (proc_loadavg(5))."""
    return os.getloadavg()[0]
