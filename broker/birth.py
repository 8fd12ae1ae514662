"""The birth of a frontend: a program started by a one-shot thread that confined itself, outside the commands' domain.

Always true: the frontend can read its own installation and nothing else, write to no file, execute nothing
after its own start, make no process, open no socket, signal nobody, and has no capability. It is not in the
domain that the reaper ends, so that it can still answer its client when the broker is gone: a process that it
could make would outlive both.
"""

import _thread
import fcntl
import os
import resource
import select
import sys
from _queue import SimpleQueue
from collections.abc import Mapping
from typing import Final

from broker import kernel, limits, seccomp, shebang
from broker.canary import layers_in_force
from broker.confinement import DEVICES, SYSTEM_FILES, SYSTEM_FOLDERS, runnable
from broker.containment import InForce
from broker.landlock import READ, READ_DIR, READ_FILE, Rule, Rulesets
from broker.limits import RLimits
from broker.nursery import shed_rights
from broker.owned_fd import OwnedFd
from broker.refusal import StartupError
from broker.spawn import encoded, spawn

OPEN_FILES: Final = 256
THREADS: Final = 64
ASKS_MS: Final = 50
"""How often a start that asks nothing is looked at: it may have failed."""
PYTHON_MEMORY_BYTES: Final = 2 * 1024**3

_LIBRARIES: Final = (
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
)
_PACKAGES: Final = ("frontend", "protocol")
"""What a frontend imports of this project: where the project lies open in a folder, it gets these of it."""
_FREE_FROM: Final = 64


def spawn_frontend(
    argv: tuple[str, ...], environment: Mapping[str, str], fds: tuple[int, ...], mode: str = "required"
) -> tuple[int, int]:
    """Start `argv` confined, with `fds` as its descriptors 0, 1, 2 ... and no other. Returns its pid and a pidfd.

    `mode` is `[containment] mode`. Raises StartupError.
    """
    started = _with_interpreter(argv)
    path = os.fsencode(started[0])
    in_force = layers_in_force(mode, None)
    answer: SimpleQueue[tuple[int, int] | StartupError] = SimpleQueue()
    listener: SimpleQueue[int] = SimpleQueue()

    def body() -> None:
        try:
            listener.put(_confine(started, path, in_force))
            pid = _spawn(path, started, environment, fds)
            answer.put((pid, os.pidfd_open(pid)))
        except OSError as error:
            answer.put(StartupError(f"the frontend {argv[0]} cannot be started: {error.strerror}"))
            listener.put(-1)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the caller waiting
            answer.put(StartupError(f"the frontend {argv[0]} cannot be started: {type(error).__name__}"))
            listener.put(-1)

    kernel.close_on_exec(3)
    _thread.start_new_thread(body, ())
    _let_one_through(listener.get(), answer)
    born = answer.get()
    if isinstance(born, StartupError):
        raise born
    limits.apply(born[0], _rlimits(argv), THREADS)
    return born


def _with_interpreter(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is executed for `argv`: for a script its interpreter, which env would otherwise look up
    and execute.
    """
    path = _located(argv[0])
    try:
        interpreter = shebang.read(path)
    except (OSError, shebang.ShebangError) as error:
        raise StartupError(f"the frontend {argv[0]} cannot be started: {error}") from None
    if interpreter is None:
        return (path, *argv[1:])
    return (_located(interpreter.program), *interpreter.arguments, path, *argv[1:])


def _located(program: str) -> str:
    """Return the path of `program` as execvp(3) would find it. Raises StartupError."""
    if "/" in program:
        return os.path.abspath(program)
    for folder in os.get_exec_path():
        path = os.path.join(folder, program)
        if folder and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise StartupError(f"the frontend {program} was not found along PATH")


def _confine(argv: tuple[str, ...], path: bytes, in_force: InForce) -> int:
    """Confine this thread. Returns where it asks before it makes a process, -1 where the kernel cannot ask."""
    shed_rights(None)
    rulesets = Rulesets(in_force.landlock_abi)
    if in_force.files:
        ruleset = OwnedFd(rulesets.build(_rules(argv, os.fsdecode(path)), network=False))
        kernel.landlock_restrict_self(ruleset.fd)
    if in_force.filters:
        kernel.seccomp_filter(seccomp.common_filter())
        listener_fd = kernel.seccomp_listener(seccomp.spawn_asks()) if in_force.asks else -1
        # last, as no filter that asks can be put on after it
        kernel.seccomp_filter(seccomp.filter_for(seccomp.FilterRules(kernel.address_of(path), asks=False)))
        return listener_fd
    return -1


def _let_one_through(listener_fd: int, answer: "SimpleQueue[tuple[int, int] | StartupError]") -> None:
    """Let the thread make the frontend's process, and nobody another ever after: without a listener the kernel
    answers ENOSYS (seccomp(2)). By its arguments the first such clone cannot be told from the next.
    """
    if listener_fd < 0:
        return
    asked = select.poll()
    asked.register(listener_fd, select.POLLIN)
    try:
        while answer.empty():  # it may fail before it asks
            if asked.poll(ASKS_MS):
                kernel.seccomp_continue(listener_fd, kernel.seccomp_receive(listener_fd))
                return
    except OSError:
        return  # the thread itself says what is wrong: without the listener it gets no further
    finally:
        os.close(listener_fd)


def _spawn(path: bytes, argv: tuple[str, ...], environment: Mapping[str, str], fds: tuple[int, ...]) -> int:
    root_fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    # none is one of the targets
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FREE_FROM) for fd in (*fds, root_fd)]
    os.close(root_fd)
    try:
        return spawn(path, argv, encoded(environment), copies[:-1], copies[-1])
    finally:
        for fd in copies:
            os.close(fd)


def _rlimits(argv: tuple[str, ...]) -> RLimits:
    pairs = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, OPEN_FILES)]
    if argv[0] == sys.executable:
        pairs.append((resource.RLIMIT_AS, PYTHON_MEMORY_BYTES))
    return tuple((kind, limits.lowered(kind, value)) for kind, value in pairs)


def _rules(argv: tuple[str, ...], path: str) -> tuple[Rule, ...]:
    own = _python_places() if argv[0] == sys.executable else _program_places(argv)
    return (*own, *DEVICES, *runnable([os.path.realpath(path)]))


def _program_places(argv: tuple[str, ...]) -> tuple[Rule, ...]:
    """Any program: the system, and the files that the operator named on its command line."""
    named = [os.path.abspath(word) for word in argv if os.path.isfile(word)]
    return (
        *(Rule(place, READ) for place in (*SYSTEM_FOLDERS, *SYSTEM_FILES)),
        *(Rule(file, READ_FILE) for file in named),
    )


def _python_places() -> tuple[Rule, ...]:
    """This Python: its library, that of its environment, and of any other folder of its path our packages
    alone.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = [
        f"{prefix}/{lib}"
        for prefix in (sys.prefix, sys.base_prefix)
        for lib in ("lib", "lib64", "pyvenv.cfg")
    ]
    rules = [Rule(place, READ) for place in (*_LIBRARIES, *libraries, f"/etc/{version}")]
    for folder in sys.path:
        if os.path.isabs(folder) and not any(f"{folder}/".startswith(f"{place}/") for place in libraries):
            rules.append(Rule(folder, READ_DIR))  # the import system lists it
            rules += [Rule(f"{folder}/{package}", READ) for package in _PACKAGES]
    return tuple(rules)
