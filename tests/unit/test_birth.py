"""A frontend is born confined: what it inherits, what it can read, and that it can do nothing else."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from broker.execution import spawn_frontend
from broker.refusal import StartupError
from tests.support.processes import alive
from tests.support.waiting import eventually

BOUND_S = 20
ENVIRONMENT = {"LANG": "C.UTF-8"}


def output_of(*argv: str) -> str:
    """Start `argv` as a frontend, and return what it wrote to its streams until it ended."""
    read_fd, write_fd = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    pid, pidfd = spawn_frontend(argv, ENVIRONMENT, (null, write_fd, write_fd))
    os.close(write_fd)
    os.close(null)
    with os.fdopen(read_fd, "rb") as stream:
        text = stream.read().decode()
    os.waitpid(pid, 0)
    os.close(pidfd)
    return text


def attempt(code: str) -> str:
    """Run Python code as a frontend; it prints WORKED, or the error."""
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    wrapped = f"try:\n{indented}    print('WORKED')\nexcept BaseException as error:\n    print(type(error).__name__)\n"
    return output_of(sys.executable, "-I", "-c", wrapped).strip()


def test_a_frontend_finds_what_it_imports() -> None:
    assert attempt("import protocol.client, frontend, msgspec") == "WORKED"


def test_a_frontend_finds_mcp() -> None:
    assert attempt("import mcp.server.lowlevel") == "WORKED"


def test_a_frontend_can_make_threads() -> None:
    assert attempt("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()") == "WORKED"


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd')",
        "open('/proc/self/environ')",
        f"open({str(Path(__file__).parent.parent.parent / 'policy.toml')!r})",
        f"open({__file__!r})",
        "open('/tmp/made', 'w')",
        "import os; os.mkdir('/tmp/made')",
        "import os; os.listdir('/')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os, sys; os.execv(sys.executable, ['python'])",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.kill(os.getppid(), 0)",
        "import os; os.kill(-1, 0) or os.kill(os.getppid(), 0)",
        "import os; os.sched_setaffinity(os.getppid(), {0})",
        "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
        "import resource, os; resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "import os, sys; os.chmod(sys.executable, 0o755)",
        "import os; os.utime(os.devnull)",
        "import os; os.memfd_create('x')",
        "import os; os.fstat(3)",
    ],
)
def test_a_frontend_can_not(code: str) -> None:
    assert attempt(code) in {"PermissionError", "OSError", "BlockingIOError"}


def test_a_frontend_gets_no_more_than_its_broker_may_have_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    most = {resource.RLIMIT_NOFILE: 100, resource.RLIMIT_AS: 1_000 * 1024**2}
    monkeypatch.setattr("broker.limits.resource.getrlimit", lambda kind: (0, most.get(kind, -1)))
    code = "import resource; print(*map(resource.getrlimit, (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)))"
    said = output_of(sys.executable, "-I", "-c", code)
    assert said.strip() == f"{(100, 100)} {(1_000 * 1024**2, 1_000 * 1024**2)}"


def test_a_frontend_has_no_capability() -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user has none to lose")
    code = "import os; os.setuid(1)"
    assert attempt(code) == "PermissionError"


def test_a_frontend_gets_its_descriptors_in_order_and_no_other() -> None:
    pipes = [os.pipe() for _ in range(4)]
    for read_fd, write_fd in pipes:
        os.set_inheritable(read_fd, True)
        os.set_inheritable(write_fd, True)
    code = (
        "import os\n"
        "[os.write(fd, b'%d' % fd) for fd in range(1, 4)]\n"
        "for fd in range(4, 200):\n"
        "    try: os.fstat(fd)\n"
        "    except OSError: continue\n"
        "    os.write(1, b' and %d' % fd)"
    )
    null = os.open(os.devnull, os.O_RDONLY)
    ends = [write_fd for _, write_fd in pipes]
    pid, pidfd = spawn_frontend(
        (sys.executable, "-I", "-c", code), ENVIRONMENT, (null, ends[2], ends[0], ends[1])
    )
    os.waitpid(pid, 0)
    got = [os.read(read_fd, 100) for read_fd, _ in (pipes[2], pipes[0], pipes[1])]
    for fd in (null, pidfd, *(fd for pair in pipes for fd in pair)):
        os.close(fd)
    assert got == [b"1", b"2", b"3"]


def test_any_program_can_be_a_frontend() -> None:
    assert output_of("sh", "-c", "echo hello").strip() == "hello"


def test_a_script_frontend_starts_by_its_interpreter_and_reads_what_it_was_named(tmp_path: Path) -> None:
    script, data, other = tmp_path / "script", tmp_path / "data", tmp_path / "other"
    script.write_text('#!/bin/sh\nread x <"$1" && echo "$x"\nread x <"$2" || echo refused\n')
    script.chmod(0o755)
    data.write_text("named\n")
    other.write_text("not named\n")
    assert (
        output_of(str(script), str(data), f"{tmp_path}/../{tmp_path.name}/./other", "x").split()[0] == "named"
    )
    shown = output_of("sh", "-c", f"read x <{other} || echo refused")
    assert "refused" in shown


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "/etc/passwd"])
def test_what_is_no_program_is_a_startup_error(program: str) -> None:
    with pytest.raises(StartupError, match=program):
        spawn_frontend((program,), ENVIRONMENT, (0, 1, 2))


def test_a_frontend_can_be_ended_by_its_pidfd() -> None:
    pid, pidfd = spawn_frontend(("sleep", "60"), ENVIRONMENT, (0, 1, 2))
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(pidfd)
    eventually(lambda: not alive(pid), "it is gone")
