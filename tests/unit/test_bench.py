"""The bench runs: a smoke test of one figure, whose numbers mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.figures import Row, table

ROOT = Path(__file__).parents[2]


def test_the_bench_prints_a_table_of_ratios_and_writes_json(tmp_path: Path) -> None:
    record = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "run", "--dir", tmp_path, "--json", record]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True)
    (row,) = json.loads(record.read_text())["rows"]
    assert row["ratio"] == row["value"] / row["yardstick"] > 1
    assert f"{row['ratio']:.2f} x" in ended.stdout


def test_a_limit_is_a_most_a_least_or_a_difference() -> None:
    within = Row("a figure", 12.0, "ms", "a yardstick", 10.0, 1.3, 0.0)
    assert within.met
    assert not within._replace(limit=1.1).met
    assert not within._replace(at_least=True).met
    assert within._replace(limit=2.5, difference=True).met
    assert within._replace(limit=None).met is None
    assert "| 12.00 ms | a yardstick | 10.00 ms | 1.20 x | 1.3 x | kept | 0.0 |" in table([within])
