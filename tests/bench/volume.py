"""A gigabyte of output from one command: how long it takes beside `cat FILE > /dev/null`, and how much memory."""

from pathlib import Path

from tests.bench.calls import resident_mib
from tests.bench.figures import Row
from tests.bench.measures import Plan
from tests.bench.served import Broker, a_place
from tests.bench.ways import in_turns, load, process

_LINE = b"2026-01-01T00:00:00Z worker-%06d INFO request handled in 12 ms, 4096 bytes sent, status 200\n"
_BLOCK = b"".join(_LINE % number for number in range(11_000))[:1_000_000]


def a_log(path: Path, size_mb: int) -> Path:
    """Write `size_mb` million bytes of log lines."""
    with path.open("wb") as file:
        for _ in range(size_mb):
            file.write(_BLOCK)
    return path


def volume(plan: Plan) -> list[Row]:
    """`cat` of a big file through the broker, and the same to nowhere."""
    place = a_place(plan.folder / "volume")
    log = a_log(place.jail / "big.log", plan.volume_mb)
    with Broker(place) as broker:
        broker.call()
        before = resident_mib(broker.pid)
        ways = {
            "ours": lambda: broker.run("cat big.log"),
            "cat": process(("cat", str(log)), place.environment(), place.folder),
        }
        medians = in_turns(ways, plan.volume_rounds)
        peak = resident_mib(broker.pid, "VmHWM")
    log.unlink()
    what = f"{plan.volume_mb} MB of output"
    ours, cat = medians["ours"] * 1e3, medians["cat"] * 1e3
    return [
        Row(what, ours, "ms", "cat FILE > /dev/null", cat, 4.0, load()),
        Row(f"broker's peak memory, {what}", peak, "MiB", "before it", before, 16, load(), difference=True),
    ]
