"""A process that does what a broker does with a trail, until somebody kills it.

`python -m tests.faults.audit_writer TRAIL [RECORDS]`: it ends by itself after that many
commands.
"""

import sys
import time
from pathlib import Path

from tests.support.opened_trail import CALM, a_call, open_trail, run


def main() -> None:
    """Write until killed, or until enough is written."""
    path, *rest = sys.argv[1:]
    commands = int(rest[0]) if rest else 100_000
    trail = open_trail(Path(path), max_bytes=131_072, keep=10_000, durability="os")
    sys.stdout.write("open\n")
    sys.stdout.flush()
    for turn in range(commands):
        run(trail, f"echo {turn} " + "x" * (turn * 97 % 3_000 // 3))
        trail.outcome(a_call("id"), CALM)
        time.sleep(0.001)  # a pause as between calls, so that a test's trail stays small
    trail.close()


main()
