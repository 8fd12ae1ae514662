"""How fast the audit trail is, as ratios to what the machine does without it: `python -m tests.bench.audit [FOLDER]`.

As in the broker, one thread writes attempts and outcomes, and is told when an attempt is on disk; as many calls as there
are callers are under way at once.
Beside each figure stands a bare loop of write(2), and fdatasync(2) after every attempt, of the same bytes by one
caller. Verifying is set against SHA-256 over the same file. `--kills N` kills N writers at random moments instead,
and verifies what they leave.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

from broker.audit_reading import sources_of
from broker.audit_record import Call
from broker.audit_sync import Position
from broker.audit_verify import verify
from tests.support.opened_trail import CALM, a_call, open_trail, records, run

SECONDS = 2.0
CALLERS = (1, 16, 64)


def main() -> int:
    """Measure, or kill. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="where to write (default: a new temporary folder)")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill N writers instead")
    parser.add_argument(
        "--records", type=int, default=200_000, metavar="N", help="records to open and verify"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.kills:
            return _kill(Path(folder), options.kills)
        _measure_writing(Path(folder))
        _measure_reading(Path(folder), options.records)
    return 0


def _measure_writing(folder: Path) -> None:
    print(f"{'durability':10} {'callers':>7} {'records/s':>10} {'bare':>10} {'ratio':>6} {'to 1 caller':>11}")
    for durability in ("sync", "os"):
        bare = _bare(folder, sync=durability == "sync")
        first = 0.0
        for callers in CALLERS:
            rate = _rate(folder / f"{durability}{callers}.jsonl", durability, callers)
            first = first or rate
            row = f"{durability:10} {callers:>7} {rate:>10,.0f} {bare:>10,.0f}"
            print(f"{row} {rate / bare:>6.2f} {rate / first:>11.2f}", flush=True)


def _rate(path: Path, durability: str, callers: int) -> float:
    """Return records a second."""
    trail = open_trail(path, durability=durability)
    on_disk: SimpleQueue[int] = SimpleQueue()
    running: dict[int, tuple[Call, Position]] = {}

    def begin(number: int) -> None:
        call = a_call()
        position = trail.attempt(call)
        running[number] = call, position
        if not trail.later(position, lambda: on_disk.put(number)):
            on_disk.put(number)

    since, count = time.monotonic(), 0
    for number in range(callers):
        begin(number)
    while time.monotonic() < since + SECONDS:
        number = on_disk.get()
        call, position = running[number]
        trail.sync(position)
        trail.outcome(call, CALM)
        begin(number)
        count += 2
    rate = count / (time.monotonic() - since)
    trail.close()
    return rate


def _bare(folder: Path, *, sync: bool) -> float:
    """Return lines a second: two writes of a record's size, and a sync after the first."""
    path = folder / "sample.jsonl"
    trail = open_trail(path)
    run(trail)
    trail.close()
    attempt, outcome = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    fd = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    since, count = time.monotonic(), 0
    while time.monotonic() < since + SECONDS:
        os.write(fd, attempt)
        if sync:
            os.fdatasync(fd)
        os.write(fd, outcome)
        count += 2
    rate = count / (time.monotonic() - since)
    os.close(fd)
    return rate


def _measure_reading(folder: Path, wanted: int) -> None:
    path = folder / "long.jsonl"
    trail = open_trail(path, durability="os")
    for _ in range(wanted // 2):
        call = a_call()
        trail.attempt(call)
        trail.outcome(call, CALM)
    trail.close()
    size = path.stat().st_size
    print(f"\n{wanted:,} records, {size / 1e6:,.0f} MB")
    _measure_opening(path)
    alone = min(_seconds(lambda: _hash(path)) for _ in range(3))
    ours = min(_seconds(lambda: verify(sources_of(str(path)))) for _ in range(3))
    print(
        f"verify {size / ours / 1e6:,.0f} MB/s, SHA-256 alone {size / alone / 1e6:,.0f} MB/s, ratio {alone / ours:.2f}"
    )


def _measure_opening(path: Path) -> None:
    short = path.with_name("short.jsonl")
    open_trail(short).close()
    empty = min(_seconds(lambda: open_trail(short).close()) for _ in range(20))
    long = min(_seconds(lambda: open_trail(path).close()) for _ in range(20))
    print(f"open: empty {empty * 1000:.2f} ms, long {long * 1000:.2f} ms")


def _hash(path: Path) -> None:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            digest.update(block)


def _seconds(act: "object") -> float:
    since = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - since


def _kill(folder: Path, kills: int) -> int:
    path = folder / "audit.jsonl"
    command = [sys.executable, "-m", "tests.faults.audit_writer", str(path)]
    living: list[subprocess.Popen[bytes]] = []
    for turn in range(kills):
        while len(living) < 4:
            living.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        writer = living.pop(0)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        time.sleep(random.uniform(0, 0.03))
        with writer:
            writer.send_signal(signal.SIGKILL)
        if turn % 100 == 99:
            print(f"{turn + 1} kills", flush=True)
    for writer in living:
        with writer:
            writer.kill()
    open_trail(path).close()
    verdict = verify(sources_of(str(path)))
    found = records(path)
    attempts = {r["event_id"] for r in found if r["record_type"] == "attempt"}
    outcomes = {r["event_id"] for r in found if r["record_type"] == "outcome"}
    closed = sum(r.get("code") == "INTERNAL_ERROR" for r in found)
    print(f"{kills} kills: {verdict.records:,} records, {closed} attempts closed, fault: {verdict.fault}")
    return 0 if verdict.sound and attempts <= outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
