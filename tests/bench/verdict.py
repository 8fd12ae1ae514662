"""What a verdict costs: `python -m tests.bench.verdict` prints it beside `shlex.split` of the same commands.

A verdict is parse, choose, locate and permit with the shipped policy over a real folder: all that `explain_command` does but
the audit record. The commands are the everyday ones of the corpus that the policy allows, each judged in a warm process.
"""

import json
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from broker import policy_file
from tests.support.gate import DEFAULT_POLICY, permitted, policy_over, verdict

DATA = Path(__file__).parent.parent / "adversarial" / "data"
ROUNDS = 15


def everyday(jail: Path) -> list[str]:
    """Lay the fixture out in `jail`; return the everyday commands."""
    for file in json.loads((DATA / "benign_fixture.json").read_text())["files"]:
        path = jail / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if "content" in file:
            path.write_text(file["content"])
    lines = (DATA / "benign.jsonl").read_text().splitlines()
    return [json.loads(line)["command"].replace("{JAIL}", str(jail)) for line in lines]


def microseconds(call: Callable[[], object]) -> float:
    """Return the best of `ROUNDS` runs: the cost without what else the machine does."""
    best = float("inf")
    for _ in range(ROUNDS):
        since = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - since)
    return best * 1e6


def main() -> None:
    """Print the medians over all commands, their ratio, and what reading the policy costs."""
    with tempfile.TemporaryDirectory() as folder:
        jail = Path(folder)
        raw = DEFAULT_POLICY.read_bytes()
        commands = everyday(jail)
        policy = policy_over(jail, raw)
        allowed = [command for command in commands if verdict(policy, command)[0]]
        verdicts = [microseconds(lambda command=command: permitted(policy, command)) for command in allowed]
        splits = [microseconds(lambda command=command: shlex.split(command)) for command in allowed]
        median, split = statistics.median(verdicts), statistics.median(splits)
        print(f"commands              {len(allowed)}")
        print(
            f"verdict, median       {median:8.1f} µs   (95th of 100: {statistics.quantiles(verdicts, n=20)[-1]:.1f})"
        )
        print(f"shlex.split, median   {split:8.1f} µs")
        print(f"ratio                 {median / split:8.2f}")
        versions = [
            raw + b"\n" * count for count in range(1, ROUNDS + 1)
        ]  # the same bytes are not read twice
        load = microseconds(lambda: policy_file.load(versions.pop(), "policy.toml"))
        print(f"policy_file.load      {load / 1000:8.2f} ms")
        print(f"self-tests            {microseconds(policy.self_test) / 1000:8.2f} ms")


if __name__ == "__main__":
    main()
