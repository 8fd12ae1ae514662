"""The raw calls: that they do what their manual pages say, to the calling thread alone."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from broker import kernel
from broker.landlock import READ, Rule, Rulesets
from broker.refusal import StartupError
from broker.seccomp import ASK, FORBIDDEN, assemble
from broker.syscalls import numbers

BOUND_S = 10.0


def in_thread(action: Callable[[], object]) -> object:
    """Run `action` in a thread that ends afterwards, with whatever it did to itself."""
    results: list[object] = []

    def body() -> None:
        try:
            results.append(action())
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(BOUND_S)
    (result,) = results
    return result


def refusal(action: Callable[[], object]) -> int | None:
    try:
        action()
    except OSError as error:
        return error.errno
    return None


def test_openat2_opens_beneath_and_closes_on_exec(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    folder_fd = os.open(tmp_path, os.O_PATH)
    opened = kernel.openat2(folder_fd, "file", os.O_RDONLY, kernel.RESOLVE_BENEATH)
    assert os.read(opened, 9) == b"x"
    assert not os.get_inheritable(opened)
    os.close(opened)
    os.close(folder_fd)


@pytest.mark.parametrize("path", ["..", "../other", "/etc/passwd", "up", "absolute"])
def test_openat2_refuses_a_way_out(tmp_path: Path, path: str) -> None:
    (tmp_path / "up").symlink_to("../..")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    folder_fd = os.open(tmp_path, os.O_PATH)
    assert refusal(lambda: kernel.openat2(folder_fd, path, os.O_PATH, kernel.RESOLVE_BENEATH)) == errno.EXDEV
    os.close(folder_fd)


def test_openat2_refuses_links_that_the_kernel_makes_up(tmp_path: Path) -> None:
    root_fd = os.open("/", os.O_PATH)
    assert (
        refusal(lambda: kernel.openat2(root_fd, "proc/self/exe", os.O_PATH, kernel.RESOLVE_NO_MAGICLINKS))
        == errno.ELOOP
    )
    os.close(root_fd)


def test_a_call_that_fails_raises_with_the_kernel_errno() -> None:
    assert refusal(lambda: kernel.call("close_range", 2, 1, 0)) == errno.EINVAL
    assert refusal(lambda: kernel.prctl(-1)) == errno.EINVAL


def test_a_thread_can_have_a_folder_and_umask_of_its_own(tmp_path: Path) -> None:
    before = Path.cwd()

    def move() -> str:
        kernel.unshare_umask()
        os.chdir(tmp_path)
        os.umask(0)
        return os.getcwd()

    assert in_thread(move) == str(tmp_path)
    assert Path.cwd() == before
    previous = os.umask(0o022)
    os.umask(previous)
    assert previous != 0


def test_landlock_confines_the_calling_thread_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for file in (inside, outside):
        file.write_text("x")
    ruleset_fd = Rulesets(kernel.landlock_abi()).build((Rule(str(inside), READ),), network=False)

    def confined() -> tuple[str, int | None]:
        kernel.set_no_new_privs()
        kernel.landlock_restrict_self(ruleset_fd)
        return inside.read_text(), refusal(outside.read_text)

    assert in_thread(confined) == ("x", errno.EACCES)
    assert outside.read_text() == "x"
    os.close(ruleset_fd)


def test_a_ruleset_ignores_places_that_do_not_exist(tmp_path: Path) -> None:
    ruleset_fd = Rulesets(kernel.landlock_abi()).build((Rule(str(tmp_path / "none"), READ),), network=False)
    os.close(ruleset_fd)


def test_seccomp_confines_the_calling_thread_alone() -> None:
    def confined() -> int | None:
        kernel.set_no_new_privs()
        kernel.seccomp_filter(assemble({"uname": FORBIDDEN, "umount2": FORBIDDEN, "kcmp": FORBIDDEN}))
        return refusal(lambda: kernel.call("kcmp", os.getpid(), os.getpid(), 99, 0, 0))

    assert in_thread(confined) == errno.EPERM
    assert refusal(lambda: kernel.call("kcmp", os.getpid(), os.getpid(), 99, 0, 0)) != errno.EPERM


def test_a_question_gets_its_answer_from_another_thread() -> None:
    listeners: list[int] = []
    installed = threading.Event()

    def ask() -> int | None:
        kernel.set_no_new_privs()
        listeners.append(kernel.seccomp_listener(assemble({"kcmp": ASK})))
        installed.set()
        return refusal(lambda: kernel.call("kcmp", 1, 2, 3, 4, 5, patient=True))

    results: list[int | None] = []
    thread = threading.Thread(target=lambda: results.append(ask()))
    thread.start()
    assert installed.wait(BOUND_S)
    question = kernel.seccomp_receive(listeners[0])
    assert question.pid == thread.native_id
    assert question.arguments[:5] == (1, 2, 3, 4, 5)
    kernel.seccomp_waits(listeners[0], question)
    kernel.seccomp_answer(listeners[0], question, errno.EDOM)
    thread.join(BOUND_S)
    assert results == [errno.EDOM]
    assert refusal(lambda: kernel.seccomp_waits(listeners[0], question)) == errno.ENOENT
    os.close(listeners[0])


def test_capabilities_are_gone_from_the_calling_thread_alone() -> None:
    def status() -> dict[str, str]:
        lines = Path("/proc/thread-self/status").read_text().splitlines()
        return dict(line.split(":\t") for line in lines if line.startswith("Cap"))

    def shed() -> dict[str, str]:
        kernel.drop_bounding_capabilities()
        kernel.drop_capabilities()
        return status()

    before = status()
    after = in_thread(shed)
    assert isinstance(after, dict)
    sets = {"CapInh", "CapPrm", "CapEff", "CapAmb"} | ({"CapBnd"} if os.geteuid() == 0 else set())
    assert {int(after[name], 16) for name in sets} == {0}
    assert status() == before


def test_an_address_is_where_the_bytes_are() -> None:
    data = b"some path"
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(kernel.address_of(data))
        assert memory.read(len(data) + 1) == data + b"\0"


def test_an_undumpable_process_shows_its_memory_to_nobody() -> None:
    # PR_GET_DUMPABLE is 3; the process answers for itself, as root may look at any other
    code = "from broker import kernel; print(kernel.prctl(3)); kernel.forbid_inspection(); print(kernel.prctl(3))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert done.stdout == "1\n0\n"


@pytest.mark.parametrize("machine", ["riscv64", "i686", ""])
def test_a_machine_without_numbers_is_refused_by_name(machine: str) -> None:
    with pytest.raises(StartupError, match="x86_64 and aarch64"):
        numbers(machine)


def test_another_system_is_refused_by_name() -> None:
    code = (
        "import sys; sys.platform = 'darwin'\n"
        "from broker.refusal import StartupError\n"
        "try:\n import broker.syscalls\nexcept StartupError as error:\n print(error)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert "this is darwin" in ended.stdout


def test_tasks_are_counted_as_the_kernel_counts_them() -> None:
    counted = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    assert abs(kernel.tasks() - counted) < 100
