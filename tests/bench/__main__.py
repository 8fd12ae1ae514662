"""All figures of speed in one run: `python -m tests.bench` prints them beside their yardsticks, as ratios.

    python -m tests.bench [FIGURE ...] [--peers DIR] [--json FILE] [--quick]

Times of a busy machine mean nothing, ratios little: the last column is the load while the row was taken. `--peers DIR`
installs three other servers in folders of DIR and measures them in the same run. docs/performance.md explains the table.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import budget, calls, measures, programs, scale, volume
from tests.bench.figures import Row, table, write
from tests.bench.measures import Plan
from tests.bench.peers import installed
from tests.bench.ways import load

FIGURES: dict[str, Callable[[Plan], list[Row]]] = {
    "latency": calls.latency,
    "budget": budget.budget,
    "throughput": calls.throughput,
    "cold-start": measures.cold_start,
    "run": measures.one_command,
    "run-budget": measures.start_budget,
    "memory": calls.memory,
    "volume": volume.volume,
    "programs": programs.programs,
    "scale": scale.scale,
}


def main() -> None:
    """Measure, print and write."""
    options = _options()
    chosen = options.figures or list(FIGURES)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        peers = installed(options.peers.resolve(), Path(folder)) if options.peers else []
        plan = Plan(Path(folder), peers)
        for name in chosen:
            print(f"{name} ... load {load():.2f}", flush=True)
            rows += FIGURES[name](plan.quick() if options.quick else plan)
    print(table(rows))
    if options.json:
        write(options.json, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", choices=[[], *FIGURES], help=", ".join(FIGURES)
    )
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", help="measure three other servers too, installed in DIR"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument(
        "--dir", metavar="DIR", help="where jails and trails are made (default: the temporary folder)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test: its numbers mean nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
