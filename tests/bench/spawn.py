"""What confinement costs: a confined `true` against a bare one, bubblewrap, and fork with the same layers.

    python -m tests.bench.spawn [--runs N]

All ways take turns in one run, in a new order each time, so that a busy machine is busy for all of them.
Ratios are medians over the median of a bare `subprocess.run`. Also: the same with 300 MiB more in the
broker, and with a thousand other profiles prepared, which must change nothing.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue

from broker import kernel, limits, seccomp
from broker.confinement import layers_for
from broker.job import AT_ONCE, Completed, Job
from broker.landlock import Rulesets
from broker.owned_fd import OwnedFd
from broker.policy import Permitted
from broker.profile import Profile
from broker.schema import Limits
from tests.support.confined import Confined, Kept

MEMORY_BYTES = 300 * 1024**2
OTHER_PROFILES = 1000
BWRAP = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)
Way = Callable[[], object]
"""Does it once. A way that returns seconds has measured itself."""


class Forker:
    """A small process of its own that forks, confines and executes `true` when asked, and says how long that took.

    Of its own, as a fork makes every page of its parent copy-on-write: in this process it would slow the
    others down.
    """

    def __init__(self, confined: Confined, ballast_bytes: int) -> None:
        program = confined.program("true")
        address = kernel.address_of(program.path)
        self._path = program.path
        layers = layers_for(Profile(), program, address, confined.executor.containment.places)
        self._ruleset = OwnedFd(Rulesets(kernel.landlock_abi()).build(layers.rules, network=False))
        self._filters = seccomp.common_filter(), seccomp.filter_for(layers.filter._replace(asks=False))
        self._rlimits = limits.rlimits_for(Limits())
        asks, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            ballast = b"x" * ballast_bytes
            while os.read(asks, 1):
                os.write(answers, struct.pack("d", self._timed()))
            os._exit(len(ballast) and 0)

    def close(self) -> None:
        """End it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def __call__(self) -> float:
        os.write(self._ask, b"x")
        return float(struct.unpack("d", os.read(self._answer, 8))[0])

    def _timed(self) -> float:
        since = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            self._become_true()
        os.waitpid(pid, 0)
        return time.perf_counter() - since

    def _become_true(self) -> None:
        try:
            os.setsid()
            os.chdir("/")
            limits.apply(os.getpid(), self._rlimits, 64)
            kernel.set_no_new_privs()
            kernel.landlock_restrict_self(self._ruleset.fd)
            for instructions in self._filters:
                kernel.seccomp_filter(instructions)
            os.execve(self._path, ["true"], {"PATH": "/usr/bin"})
        finally:
            os._exit(127)


def confined_true(confined: Confined) -> Way:
    """Return the way of a call, from the executor's start to its readiness for the next one."""
    permitted = Permitted(confined.program("true"), ("true",), {}, Profile(), Limits(), "a measurement")
    ended: SimpleQueue[Completed] = SimpleQueue()

    def way() -> None:
        job = Job(permitted, confined.jail.fd, Kept(), Kept())
        confined.executor.start(job, AT_ONCE, ended.put)
        ended.get()

    return way


def measure(ways: dict[str, Way], runs: int) -> dict[str, float]:
    """Return the median of each way in milliseconds; all take turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name in random.sample(sorted(ways), len(ways)):
            since = time.perf_counter()
            told = ways[name]()
            taken[name].append(told if isinstance(told, float) else time.perf_counter() - since)
    return {name: statistics.median(times) * 1e3 for name, times in taken.items()}


def report(title: str, medians: dict[str, float]) -> None:
    """Print milliseconds and ratios."""
    bare = medians["bare subprocess.run"]
    print(title)
    for name, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"  {name:34} {median:7.3f} ms {median / bare:6.2f} x")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=int, default=300)
    runs: int = options.parse_args().runs
    true = shutil.which("true") or "/bin/true"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        confined = stack.enter_context(Confined(Path(folder)))
        small, large = (stack.enter_context(closing(Forker(confined, size))) for size in (0, MEMORY_BYTES))
        own: dict[str, Way] = {
            "bare subprocess.run": lambda: subprocess.run([true], check=True),
            "subprocess.run with two pipes": lambda: subprocess.run([true], check=True, capture_output=True),
            "confined, every layer": confined_true(confined),
        }
        others: dict[str, Way] = {"fork with the same layers": small}
        if shutil.which("bwrap") and subprocess.run([*BWRAP, true], check=False).returncode == 0:
            others["bubblewrap, every namespace"] = lambda: subprocess.run([*BWRAP, true], check=True)
        report(f"median of {runs} runs", measure(own | others, runs))
        ballast = b"x" * MEMORY_BYTES
        report(
            f"with {MEMORY_BYTES // 1024**2} MiB more in the broker",
            measure(own | {"fork with the same layers": large}, runs // 3),
        )
        del ballast
        for number in range(OTHER_PROFILES):
            confined.executor.containment.prepare(Profile(read=(f"/usr/{number}",)), confined.program("true"))
        report(f"with {OTHER_PROFILES} other profiles", measure(own, runs // 3))


if __name__ == "__main__":
    main()
