"""What the attacks aim at: a broker with policy, trail, jail and home, another process of the same user, and listeners.

Always true: nothing that an attack may harm lies outside a folder of its own or was started by anybody else; each wait has
a bound.
"""

import contextlib
import json
import os
import pty
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import tty
from pathlib import Path
from typing import Any, Self

from broker.elf import loader_of
from broker.syscalls import NUMBER
from tests.adversarial.identity import Identity, interpreter_for
from tests.support.place import Place

MODULES = ("kit", "on_files", "on_processes", "on_kernel", "report")
_LOAD = """
import sys, types
for name, source in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""
SOURCE = _LOAD.format(
    sources={f"{__package__}.{name}": (Path(__file__).parent / f"{name}.py").read_text() for name in MODULES}
)
"""A program for `python -c`: the modules of the attacks, for an interpreter that cannot read this folder."""
BOUND_S = 60.0
_BROKER = (
    "import sys; sys.argv[0] = 'broker'; from broker.main import hardened_terminal_broker as main; main()"
)
_DECOY = "import ctypes; b = ctypes.create_string_buffer(b'private!'); print(ctypes.addressof(b), flush=True); input()"


class Target:
    """Everything that belongs to one user and could be harmed."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._interpreter = interpreter_for(identity)
        self.folder = Path(tempfile.mkdtemp(prefix="htm-attacked-"))
        (self.folder / "work").mkdir()
        self.place = Place(self.folder / "work")
        (self.place.folder / "home").mkdir()
        self.private = self.place.folder / "home" / "private.txt"
        self.private.write_text("nobody may read this\n")
        self.token = "htm" + secrets.token_hex(8)
        self._stack = contextlib.ExitStack()
        self.results: dict[str, Any] = {}
        self.before: dict[str, object] = {}
        self.typed = False
        self.stderr = ""

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._listen()
        self._give_away()
        self.decoy, address = self._start_decoy()
        self.targets = {
            "policy": str(self.place.policy),
            "trail": str(self.place.trail),
            "jail": str(self.place.jail),
            "folder": str(self.place.folder),
            "private": str(self.private),
            "token": self.token,
            "broker": 0,
            "decoy": self.decoy.pid,
            "address": address,
            "port": self.listeners[0].getsockname()[1],
            "udp_port": self.listeners[1].getsockname()[1],
            "unix_path": str(self.place.folder / "path.sock"),
            "loader": loader_of("/bin/true") or "/lib64/ld-linux-x86-64.so.2",
            "numbers": NUMBER,
            "socket": 3,
        }
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _listen(self) -> None:
        tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        path.bind(str(self.place.folder / "path.sock"))
        abstract.bind("\0" + self.token)
        self.listeners = [tcp, udp, path, abstract]
        for listener in self.listeners:
            self._stack.enter_context(listener)
            if listener is not udp:
                listener.listen(8)

    def _give_away(self) -> None:
        if self._identity.user is None:
            return
        self.folder.chmod(0o755)
        for path in [self.place.folder, *self.place.folder.rglob("*")]:
            os.chown(path, self._identity.user, self._identity.user, follow_symlinks=False)

    def _start(self, argv: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        user = self._identity.user
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        process = subprocess.Popen(argv, cwd="/", env=self.place.environment(), **identity, **options)
        self._stack.callback(self._bury, process)
        return process

    @staticmethod
    def _bury(process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        with process:
            process.wait(BOUND_S)

    def _start_decoy(self) -> tuple["subprocess.Popen[bytes]", int]:
        decoy = self._start(
            [self._interpreter, "-I", "-c", _DECOY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert decoy.stdout
        return decoy, int(decoy.stdout.readline())

    def attack_confined(self) -> None:
        """Try everything from within a frontend that the broker started."""
        argv = [self._interpreter, "-I", "-c", _BROKER, "--", self._interpreter, "-I", "-c", SOURCE]
        with self._terminal() as terminal:
            process = self._start(
                [*argv, json.dumps(self.targets)],
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._read_results(process)
            process.wait(BOUND_S)

    def attack_freely(self) -> None:
        """Try the same plainly, with a broker that serves the same kind of socket."""
        ours, theirs = socket.socketpair()
        with ours, theirs, self._terminal() as terminal:
            fd = theirs.fileno()
            broker = self._start(
                [self._interpreter, "-I", "-c", _BROKER, "--fd", str(fd)],
                pass_fds=[fd],
                stderr=subprocess.DEVNULL,
            )
            targets = self.targets | {"broker": broker.pid, "socket": ours.fileno()}
            process = self._start(
                [self._interpreter, "-I", "-c", SOURCE, json.dumps(targets)],
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[ours.fileno()],
            )
            self._read_results(process)

    @contextlib.contextmanager
    def _terminal(self) -> Any:
        controlling, terminal = pty.openpty()
        tty.setraw(terminal)
        try:
            yield terminal
        finally:
            self.typed = bool(select.select([terminal], [], [], 0)[0])
            os.close(terminal)
            os.close(controlling)

    def _read_results(self, process: "subprocess.Popen[bytes]") -> None:
        output, errors = process.communicate(timeout=BOUND_S)
        self.stderr = errors.decode(errors="replace")
        self.results = dict(json.loads(line) for line in output.splitlines())

    def traces(self) -> dict[str, object]:
        """Return what an attack could have changed: the files, the other process, and whether anybody called."""
        facts: dict[str, object] = {}
        for path in sorted(self.place.folder.rglob("*")):
            if self.place.trail.parent in path.parents or "state" in path.parts:
                continue
            status = path.lstat()
            owner = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink)
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            attributes = tuple(os.listxattr(path, follow_symlinks=False))
            facts[str(path)] = (owner, status.st_mtime_ns if content else 0, content, attributes)
        pid = self.decoy.pid
        facts["decoy"] = (
            self.decoy.poll(),
            os.getpriority(os.PRIO_PROCESS, pid) if self.decoy.returncode is None else None,
            os.sched_getscheduler(pid) if self.decoy.returncode is None else None,
        )
        facts["called"] = [bool(select.select([each], [], [], 0)[0]) for each in self.listeners]
        facts["shared"] = sorted(name for name in os.listdir("/dev/shm") if self.token in name)
        return facts
