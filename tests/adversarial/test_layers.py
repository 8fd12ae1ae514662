"""Each layer alone: an attack that every layer together stops, and that gets through once its own layer is taken away.

The second half shows that the first one tests this layer, and not another that happens to stand in front of
it.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from broker import canary, confinement, containment, execution, kernel, landlock, nursery, run, seccomp
from broker.canary import Facts
from broker.census import Census
from broker.confinement import Layers
from broker.containment import InForce
from broker.job import Completed
from broker.landlock import EXECUTE, READ, Rule
from broker.profile import Profile
from broker.refusal import StartupError
from broker.schema import Limits
from broker.syscalls import NUMBER
from protocol.messages import ResultCode
from tests.support.confined import LEAST, PYTHON, Confined
from tests.support.processes import alive, children, marked, unique_seconds
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not canary.facts().scoped, reason="this kernel lacks Landlock ABI 6")

ESCAPED = "ESCAPED"
WRITING = Profile(writes=True)
Patch = pytest.MonkeyPatch
Weaken = Callable[[Patch], None]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of this user outside the jail."""
    file = tmp_path / "outside"
    file.write_text("the canary")
    file.chmod(0o600)
    return file


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this user."""
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    with subprocess.Popen([*bare, "sleep", "60"]) as process:
        yield process
        process.kill()


def in_force(**layers: bool) -> Weaken:
    """Put some of the layers on only."""

    def weaken(patch: Patch) -> None:
        def chosen(mode: str, warn: object) -> InForce:
            found: Facts = canary.facts()
            return InForce(found.landlock_abi, scoped=True, files=True, filters=True, asks=True)._replace(
                **layers
            )

        patch.setattr(execution, "layers_in_force", chosen)

    return weaken


def unscoped(patch: Patch) -> None:
    """Let signals leave every domain."""
    in_force(scoped=False)(patch)
    patch.setattr(landlock, "_SCOPES", 0)


def without_verdict(name: str) -> Weaken:
    """Let one system call through both filters."""

    def weaken(patch: Patch) -> None:
        assembled = seccomp.assemble
        patch.setattr(seccomp, "assemble", lambda verdicts: assembled({**verdicts, name: seccomp.ALLOW}))
        made_anew(patch)

    return weaken


def made_anew(patch: Patch) -> None:
    """Keep no filter: the real ones are kept for all starts of a process."""
    for kept in ("common_filter", "_usual_template", "_thread_template"):
        patch.setattr(seccomp, kept, getattr(seccomp, kept).__wrapped__)


def with_rule(rule: Rule) -> Weaken:
    """Let Landlock grant one thing more."""

    def weaken(patch: Patch) -> None:
        built = landlock.Rulesets.build
        patch.setattr(
            landlock.Rulesets,
            "build",
            lambda self, rules, *, network: built(self, (*rules, rule), network=network),
        )

    return weaken


def with_layers(change: Callable[[Layers], Layers]) -> Weaken:
    """Change what a profile becomes."""

    def weaken(patch: Patch) -> None:
        derived = confinement.layers_for
        patch.setattr(containment, "layers_for", lambda *inputs: change(derived(*inputs)))

    return weaken


def nothing(_: Patch) -> None:
    """Take nothing away."""


class Attack(NamedTuple):
    """Code that prints `ESCAPED` if it got through; names in braces are filled in by `Range`.

    `weaken` takes the layer away, `behind` one that stands in front of it, in both halves.
    """

    layer: str
    code: str
    weaken: Weaken
    profile: Profile = LEAST
    behind: Weaken = nothing
    may_run: tuple[str, ...] = ()
    needs_root: bool = False


CHMOD = "fchmodat" if os.uname().machine == "aarch64" else "chmod"
"""What libc calls for chmod(3)."""

RAW = "import ctypes; call = ctypes.CDLL(None, use_errno=True).syscall; "

ATTACKS = [
    Attack(
        "Landlock, reading",
        "open({outside!r}).read(); print('ESCAPED')",
        in_force(files=False),
    ),
    Attack(
        "Landlock, writing",
        "open({outside!r}, 'w').close(); print('ESCAPED')",
        in_force(files=False),
        WRITING,
    ),
    Attack(
        "Landlock, the jail without writes",
        "open('made', 'w').close(); print('ESCAPED')",
        in_force(files=False),
    ),
    Attack(
        "Landlock, execution of what may not run",
        "import os; os.spawnv(os.P_WAIT, '/usr/bin/env', ['env', 'echo', 'ESCAPED'])",
        with_rule(Rule("/usr", READ | EXECUTE)),
        may_run=("true",),
    ),
    Attack(
        "Landlock, execution of what the jail holds",
        "import os, shutil; shutil.copy('/usr/bin/true', 'own'); os.chmod('own', 0o700); "
        "print('ESCAPED' if os.spawnv(os.P_WAIT, 'own', ['own']) == 0 else '')",
        with_layers(
            lambda layers: layers._replace(rules=(*layers.rules, Rule(layers.rules[0].path, EXECUTE)))
        ),
        WRITING,
        may_run=("true",),
    ),
    Attack(
        "Landlock, signals",
        "import os; os.kill({victim}, 0); print('ESCAPED')",
        unscoped,
    ),
    Attack(
        "seccomp, one exec only",
        "import os; os.execv({python!r}, ['python', '-I', '-S', '-c', 'print(\"ESCAPED\")'])",
        with_layers(lambda layers: layers._replace(filter=layers.filter._replace(programs=True))),
    ),
    Attack(
        "seccomp, new processes",
        "import os; os.fork() or os._exit(0); os.wait(); print('ESCAPED')",
        with_layers(lambda layers: layers._replace(filter=layers.filter._replace(programs=True))),
    ),
    Attack(
        "seccomp, sockets that Landlock does not see",
        "import _socket; _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9)); "
        "print('ESCAPED')",
        with_layers(lambda layers: layers._replace(filter=layers.filter._replace(network=True))),
    ),
    Attack(
        "Landlock, TCP behind an open socket filter",
        "import _socket; s = _socket.socket(); s.connect(('127.0.0.1', {port})); print('ESCAPED')",
        with_layers(lambda layers: layers._replace(network=True)),
        behind=without_verdict("socket"),
    ),
    Attack(
        "seccomp, another process's limits",
        "import resource; resource.prlimit({victim}, resource.RLIMIT_CORE, (0, 0)); print('ESCAPED')",
        without_verdict("prlimit64"),
    ),
    Attack(
        "seccomp, another process's processors",
        "import os; os.sched_setaffinity({victim}, {{0}}); print('ESCAPED')",
        without_verdict("sched_setaffinity"),
    ),
    Attack(
        "seccomp, another process's priority",
        "import os; os.setpriority(os.PRIO_PROCESS, {victim}, 19); print('ESCAPED')",
        without_verdict("setpriority"),
    ),
    Attack(
        "seccomp, shared memory",
        RAW + "print('ESCAPED' if call({shmget}, 0, 4096, 0o1600) >= 0 else ctypes.get_errno())",
        without_verdict("shmget"),
    ),
    Attack(
        "seccomp, namespaces",
        RAW + "print('ESCAPED' if call({unshare}, 0x10000000) == 0 else ctypes.get_errno())",
        without_verdict("unshare"),
    ),
    Attack(
        "seccomp, files in memory",
        "import os; os.memfd_create('x'); print('ESCAPED')",
        without_verdict("memfd_create"),
    ),
    Attack(
        "seccomp, modes without writes",
        "import os; os.chmod('own', 0o777); print('ESCAPED')",
        without_verdict(CHMOD),
    ),
    Attack(
        "the warden, modes outside with writes",
        "import os; os.chmod({outside!r}, 0o777); print('ESCAPED')",
        without_verdict(CHMOD),
        WRITING,
    ),
    Attack(
        "the warden, times outside with writes",
        "import os; os.utime({outside!r}, (1, 1)); print('ESCAPED')",
        without_verdict("utimensat"),
        WRITING,
    ),
    Attack(
        "the warden, modes by a descriptor of what may be read",
        "import os; os.fchmod(os.open({readable!r}, os.O_RDONLY), 0o777); print('ESCAPED')",
        without_verdict("fchmod"),
        Profile(writes=True),
    ),
    Attack(
        "the warden, modes through a link in the jail",
        "import os; os.symlink({outside!r}, 'link'); os.chmod('link', 0o777); print('ESCAPED')",
        without_verdict(CHMOD),
        WRITING,
    ),
    Attack(
        "seccomp, attributes of files outside",
        "import os; os.listxattr({outside!r}); print('ESCAPED')",
        without_verdict("listxattr"),
    ),
    Attack(
        "seccomp, a lease on a file that may be read",
        "import fcntl; f = open({readable!r}); fcntl.fcntl(f, 1024, fcntl.F_RDLCK); print('ESCAPED')",
        without_verdict("fcntl"),
    ),
    Attack(
        "seccomp, a file outside that is opened neither to read nor to write",
        "import os; os.listxattr(os.open({outside!r}, 3)); print('ESCAPED')",
        without_verdict("openat"),
    ),
    Attack(
        "seccomp, an operation on a file that nobody needs",
        "import fcntl; fcntl.ioctl(open({readable!r}), 2, bytes(4)); print('ESCAPED')",  # FIGETBSZ, of every file system
        without_verdict("ioctl"),
    ),
    Attack(
        "set-id bits",
        "import os; os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o4700)); "
        "print('ESCAPED' if os.stat('made').st_mode & 0o4000 else '')",
        without_verdict("openat"),
        WRITING,
    ),
    Attack(
        "no capability",
        "open('foreign').read(); print('ESCAPED')",
        lambda patch: patch.setattr(nursery, "shed_rights", lambda identity: kernel.set_no_new_privs()),
        needs_root=True,
    ),
]


@pytest.fixture
def listener() -> Iterator[int]:
    """A server on loopback; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Range:
    """Where attacks take place."""

    def __init__(self, folder: Path, outside: Path, victim: int, port: int) -> None:
        self.folder, self.outside, self.victim, self.port = folder, outside, victim, port
        self.readable = folder / "readable"
        self.readable.write_text("may be read")

    def attempt(self, attack: Attack) -> Completed:
        """Carry out `attack` and return how it ended."""
        with Confined(self.folder) as confined:
            (confined.root / "own").write_text("x")
            if attack.needs_root:
                foreign = confined.root / "foreign"
                foreign.write_text("x")
                foreign.chmod(0)
                os.chown(foreign, 12345, 12345)
            code = attack.code.format(
                outside=str(self.outside),
                readable=str(self.readable),
                victim=self.victim,
                port=self.port,
                python=PYTHON,
                shmget=NUMBER["shmget"],
                unshare=NUMBER["unshare"],
            )
            may_run = confined.programs(*attack.may_run)
            profile = msgspec.structs.replace(attack.profile, read=(str(self.readable),), may_run=may_run)
            return confined.python(code, profile=profile)


@pytest.fixture
def shooting_range(tmp_path: Path, outside: Path, victim: subprocess.Popen[bytes], listener: int) -> Range:
    return Range(tmp_path, outside, victim.pid, listener)


def _skip_unless_possible(attack: Attack) -> None:
    if attack.needs_root and os.geteuid() != 0:
        pytest.skip("an ordinary user has no capability to lose")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.layer)
def test_the_layer_stops_the_attack(shooting_range: Range, attack: Attack, monkeypatch: Patch) -> None:
    _skip_unless_possible(attack)
    attack.behind(monkeypatch)
    assert ESCAPED not in shooting_range.attempt(attack).stdout


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.layer)
def test_the_attack_gets_through_without_its_layer(
    shooting_range: Range, attack: Attack, monkeypatch: Patch
) -> None:
    _skip_unless_possible(attack)
    attack.behind(monkeypatch)
    attack.weaken(monkeypatch)
    monkeypatch.setattr(execution, "prove", lambda *_: None)
    ended = shooting_range.attempt(attack)
    assert ESCAPED in ended.stdout, ended.stderr


def test_the_proof_at_start_notices_a_layer_that_is_not_on(tmp_path: Path, monkeypatch: Patch) -> None:
    with_rule(Rule("/proc", READ))(monkeypatch)
    with pytest.raises(StartupError, match="a file outside was read"):
        Confined(tmp_path)


def test_the_proof_at_start_notices_a_second_exec(tmp_path: Path, monkeypatch: Patch) -> None:
    with_layers(lambda layers: layers._replace(filter=layers.filter._replace(programs=True)))(monkeypatch)
    with pytest.raises(StartupError, match="a second program was started"):
        Confined(tmp_path)


def test_the_proof_at_start_notices_a_thread_that_a_signal_reaches(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(seccomp, "_signal_verdicts", dict)
    made_anew(monkeypatch)
    with pytest.raises(StartupError, match="a signal reached the broker"):
        Confined(tmp_path)


def test_a_domain_that_does_not_hold_signals_stops_the_start(tmp_path: Path, monkeypatch: Patch) -> None:
    files_only = 1
    monkeypatch.setattr(
        landlock.Rulesets,
        "scope_only",
        lambda self: kernel.landlock_create_ruleset(self.abi, files_only << 12, 0, 0),
    )
    with pytest.raises(StartupError, match="signals are not kept within"):
        Confined(tmp_path)


@pytest.mark.parametrize("limited", [True, False])
def test_limits_alone_bound_a_file(tmp_path: Path, monkeypatch: Patch, limited: bool) -> None:
    if not limited:
        monkeypatch.setattr(run, "rlimits_for", lambda _: ())
    with Confined(tmp_path) as confined:
        bounds = Limits(file_bytes=1000)
        confined.run("dd", "if=/dev/zero", "of=file", "bs=500", "count=9", profile=WRITING, limits=bounds)
        assert ((confined.root / "file").stat().st_size <= 1000) is limited


@pytest.mark.parametrize("counted", [True, False])
def test_the_count_alone_ends_a_bomb(tmp_path: Path, monkeypatch: Patch, counted: bool) -> None:
    if not counted:
        monkeypatch.setattr(Census, "exceeds", lambda *_: False)
    bomb = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 2 & done; wait; echo all lived"
    with Confined(tmp_path) as confined:
        profile = Profile(may_run=confined.programs("sleep"))
        ended = confined.run("sh", "-c", bomb, profile=profile, limits=Limits(processes=10, timeout_s=20.0))
    assert (ended.code is ResultCode.EXECUTOR_ERROR) is counted
    assert ("all lived" in ended.stdout) is not counted


@pytest.mark.parametrize("killed", [True, False])
def test_the_kill_of_the_domain_alone_ends_daemons(tmp_path: Path, monkeypatch: Patch, killed: bool) -> None:
    marker = unique_seconds()
    if not killed:
        monkeypatch.setattr(run.Call, "_kill_domain", lambda _: None)
    with Confined(tmp_path) as confined:
        profile = Profile(may_run=confined.programs("sleep", "setsid", "sh"))
        confined.run("sh", "-c", f"setsid sleep {marker} & sleep 0.2", profile=profile)
        if killed:
            eventually(lambda: not marked(marker), "the daemon is gone")
        assert bool(marked(marker)) is not killed
    eventually(lambda: not marked(marker), "the reaper took the rest")


@pytest.mark.parametrize("reaped", [True, False])
def test_the_reaper_alone_ends_what_a_killed_broker_leaves(tmp_path: Path, reaped: bool) -> None:
    marker = unique_seconds()
    idle = "" if reaped else "nursery._REAPER = nursery._REAPER.replace('kill -9 -1', ':')\n"
    code = (
        "import sys; from pathlib import Path; from tests.support.confined import Confined\n"
        f"from broker import nursery\n{idle}"
        f"Confined(Path({str(tmp_path)!r})).start('sleep', {marker!r})\n"
        "print('started', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"started\n"
        eventually(lambda: marked(marker), "it runs")
        reaper = children(broker.pid) - set(marked(marker))
        broker.kill()
        broker.wait()
    eventually(lambda: not any(alive(pid) for pid in reaper), "the reaper did its work")
    if reaped:
        eventually(lambda: not marked(marker), "it is gone")
    survivors = marked(marker)
    assert bool(survivors) is not reaped
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
