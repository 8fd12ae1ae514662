"""What a run of the bench found: one row a figure, each a ratio to a yardstick that was measured beside it."""

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One figure. `ratio` compares `value` with `yardstick`; `limit` is what it must not exceed, or, with `at_least`,
    must reach. `load` is the machine's when the figure was taken.
    """

    figure: str
    value: float
    unit: str
    against: str
    yardstick: float
    limit: float | None
    load: float
    at_least: bool = False
    difference: bool = False
    """Whether `limit` bounds the difference to the yardstick, not the ratio."""

    @property
    def ratio(self) -> float:
        """The figure by its yardstick."""
        return self.value / self.yardstick if self.yardstick else float("inf")

    @property
    def compared(self) -> float:
        """What the limit is about."""
        return self.value - self.yardstick if self.difference else self.ratio

    @property
    def met(self) -> bool | None:
        """Whether the limit is kept; None where there is none."""
        if self.limit is None:
            return None
        return self.compared >= self.limit if self.at_least else self.compared <= self.limit


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [
        "| figure | measured | yardstick | measured | ratio | limit | | load |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row.figure} | {_amount(row.value, row.unit)} | {row.against} | {_amount(row.yardstick, row.unit)} "
            f"| {_compared(row)} | {_limit(row)} | {_VERDICTS[row.met]} | {row.load:.1f} |"
        )
    return "\n".join(lines)


_VERDICTS = {True: "kept", False: "MISSED", None: ""}


def _amount(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"
    return f"{value:.1f} {unit}"


def _compared(row: Row) -> str:
    return f"{row.compared:+.2f} {row.unit}" if row.difference else f"{row.ratio:.2f} x"


def _limit(row: Row) -> str:
    if row.limit is None:
        return ""
    bound = f"{row.limit:+g} {row.unit}" if row.difference else f"{row.limit:.3g} x"
    return f"at least {bound}" if row.at_least else bound


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows as JSON, with what the machine is."""
    record = {
        "machine": {
            "cores": os.cpu_count(),
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "rows": [{**row._asdict(), "ratio": row.ratio, "met": row.met} for row in rows],
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
