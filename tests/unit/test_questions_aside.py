"""What a program asks after its start is answered in threads of its own run: whatever it waits for, the others go on."""

import ctypes
import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from unittest.mock import Mock

import msgspec
import pytest

from broker import attendants, canary, kernel, metadata, warden
from broker.asker import Asker
from broker.execution import CLOSE_S
from broker.job import Completed, Recorded
from broker.owned_fd import OwnedFd
from broker.profile import Profile
from broker.schema import Limits
from protocol.messages import ResultCode
from tests.support.confined import BOUND_S, PYTHON, Confined
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not canary.facts().scoped, reason="this kernel lacks Landlock ABI 6")

WRITES = Profile(writes=True)
STUCK_MODE = 0o611
"""Changes to it are those that never end here."""
ASK = f"""
import _thread, os, sys, time
open("a", "w").close()
for _ in range(int(sys.argv[1])):
    _thread.start_new_thread(os.chmod, ("a", {STUCK_MODE}))
time.sleep(60)
"""
CHANGE = "import os; open('b', 'w').close(); os.chmod('b', 0o640); print(oct(os.stat('b').st_mode))"
CHANGED = "0o100640\n"


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Confined]:
    with Confined(tmp_path) as confined:
        yield confined


class Stuck:
    """Answers that do not come before `end`: as where a file system or the asker's memory does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._change = metadata.change
        monkeypatch.setattr(metadata, "change", self._changed)

    def _changed(self, asker: Asker, question: kernel.Question, roots: tuple[str, ...]) -> None:
        if STUCK_MODE in question.arguments:
            with self._lock:
                self.count += 1
            self._over.wait(4 * BOUND_S)
        self._change(asker, question, roots)

    def end(self) -> None:
        self._over.set()


@pytest.fixture
def stuck(confined: Confined, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    confined.run("true")
    stuck = Stuck(monkeypatch)
    yield stuck
    stuck.end()


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def asks(confined: Confined, times: int, timeout_s: float, code: str = ASK) -> "SimpleQueue[Completed]":
    """Start a run that asks so many times, all at once, for what does not come."""
    profile = msgspec.structs.replace(WRITES, read=(sys.base_prefix,))
    words = (PYTHON, "-I", "-S", "-c", code, str(times))
    return confined.start(*words, profile=profile, limits=Limits(timeout_s=timeout_s))[1]


def test_a_run_whose_questions_are_stuck_holds_up_no_other_and_has_few_threads(
    confined: Confined, stuck: Stuck
) -> None:
    before = threads()
    ended = asks(confined, 40, timeout_s=BOUND_S / 2)
    eventually(lambda: stuck.count == attendants.MOST, "as many as may be are stuck")
    assert confined.run("true").exit_code == 0
    assert confined.python(CHANGE, profile=WRITES).stdout == CHANGED
    profile = Profile(may_run=confined.programs("echo"))
    assert confined.run("sh", "-c", "/usr/bin/echo on", profile=profile).stdout == "on\n"
    assert stuck.count == attendants.MOST
    assert ended.get(timeout=BOUND_S).code is ResultCode.TIMEOUT
    stuck.end()
    eventually(lambda: threads() <= before, "the threads that were stuck end with their run")


def test_a_run_goes_on_while_fewer_of_its_questions_are_stuck_than_it_has_threads(
    confined: Confined, stuck: Stuck
) -> None:
    go_on = "while not os.path.exists('go'): time.sleep(0.01)"
    code = ASK.replace("time.sleep(60)", f"{go_on}\n{CHANGE}\nsys.stdout.flush()\nos._exit(0)")
    ended = asks(confined, attendants.MOST - 1, timeout_s=BOUND_S, code=code)
    eventually(lambda: stuck.count == attendants.MOST - 1, "all but one are stuck")
    (confined.root / "go").touch()
    assert ended.get(timeout=BOUND_S).stdout == CHANGED


def test_closing_ends_every_run_in_time_whatever_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confined = Confined(tmp_path)
    stuck = Stuck(monkeypatch)
    waits: SimpleQueue[Callable[[], object]] = SimpleQueue()
    recorded = Recorded(lambda: None, lambda resume: waits.put(resume) or True)
    try:
        ends = [asks(confined, 2 * attendants.MOST, timeout_s=4 * BOUND_S)]
        ends.append(confined.start("true", recorded=recorded)[1])
        waits.get(timeout=BOUND_S)
        eventually(lambda: stuck.count == attendants.MOST, "all that may be are stuck")
        since = time.monotonic()
        confined.close()
        assert time.monotonic() - since < CLOSE_S
        assert ["cancelled" in ended.get(timeout=BOUND_S).reason for ended in ends] == [True, True]
    finally:
        stuck.end()


def test_what_ended_runs_have_left_stuck_counts_against_their_entry_alone_and_until_it_is_free(
    confined: Confined, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warden, "_MOST_LEFT", attendants.MOST)
    monkeypatch.setattr(warden, "_ENDING_S", 0.0)
    assert asks(confined, attendants.MOST, timeout_s=0.5).get(timeout=BOUND_S).code is ResultCode.TIMEOUT
    assert stuck.count == attendants.MOST
    eventually(
        lambda: "Resource temporarily" in confined.python(CHANGE, profile=WRITES).stderr, "they are counted"
    )
    profile = Profile(writes=True, may_run=confined.programs("chmod"))
    chmod = confined.run("sh", "-c", ": >c; chmod 640 c", profile=profile)
    assert chmod.exit_code == 0, "another entry has threads of its own"
    stuck.end()
    eventually(lambda: confined.python(CHANGE, profile=WRITES).stdout == CHANGED, "they are free again")


def test_where_no_thread_can_be_had_a_question_is_refused_and_a_later_one_is_not(
    confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = Mock(side_effect=RuntimeError("can't start new thread"))
    with monkeypatch.context() as without:
        without.setattr("broker.attendants._thread.start_new_thread", none)
        ended = confined.run("chmod", "640", ".", profile=WRITES)
    assert "Resource temporarily unavailable" in ended.stderr
    assert confined.python(CHANGE, profile=WRITES).stdout == CHANGED


def test_who_refuses_a_question_does_not_wait_for_one_that_a_thread_of_its_run_has_taken() -> None:
    nothing_asked, asks = os.pipe()
    try:
        # to take a question from a pipe would fail, and from a listener it would wait
        attendants.Attendants(OwnedFd(nothing_asked), Mock(), Mock()).refuse(errno.EAGAIN)
    finally:
        os.close(asks)


OTHER_MOUNT = Path("/dev/shm")
POINTER_INTO_A_FILE = """
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDONLY)
name = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
address = ctypes.addressof(ctypes.c_char.from_buffer(name))
open("a", "w").close()
for look in (None, 0):
    if look is not None:
        name[look]
    failed = libc.chmod(ctypes.c_void_p(address), 0o640)
    print(errno.errorcode[ctypes.get_errno()] if failed else "changed")
"""


@pytest.mark.parametrize(
    ("where", "answers"), [("shm", ["EFAULT", "changed"]), ("jail", ["changed", "changed"])]
)
def test_memory_that_is_a_file_of_an_unknown_mount_is_read_but_not_fetched(
    confined: Confined, tmp_path: Path, where: str, answers: list[str]
) -> None:
    if not os.path.ismount(OTHER_MOUNT):
        pytest.skip(f"{OTHER_MOUNT} is no mount")
    path = OTHER_MOUNT / f"htmcp-test-{os.getpid()}" if where == "shm" else confined.root / "name"
    path.write_bytes(b"a\0" + bytes(5000))
    try:
        ended = confined.python(
            POINTER_INTO_A_FILE, str(path), profile=Profile(writes=True, read=(str(path),))
        )
    finally:
        path.unlink()
    assert ended.stdout.split() == answers, ended.stderr


def test_memory_of_many_mappings_costs_one_look_at_the_list_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a name"
    file.write_bytes(bytes(mmap.PAGESIZE))
    size = 16 * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    begin = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    for number in range(0, 16, 2):
        libc.mprotect(begin + number * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    with file.open("rb") as opened:
        fixed = mmap.MAP_PRIVATE | 0x10  # MAP_FIXED
        libc.mmap(begin + 3 * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ, fixed, opened.fileno(), 0)
    lists, files = [], []

    def noted(path: str, mode: str) -> object:
        lists.append(path)
        return open(path, mode)

    monkeypatch.setattr("broker.asker.open", noted, raising=False)
    monkeypatch.setattr("broker.asker.on_known_mount", lambda path, _: not files.append(path))
    monkeypatch.setattr("broker.kernel.seccomp_waits", lambda *_: None)
    asker = Asker(-1, kernel.Question(0, os.getpid(), 0, ()), frozenset)
    try:
        assert asker.read_exactly(begin, size) == bytes(size)
        assert lists == [f"/proc/{os.getpid()}/maps"]
        assert files == [str(file)]
        libc.munmap(begin + 8 * mmap.PAGESIZE, mmap.PAGESIZE)
        with pytest.raises(OSError, match="Bad address"):
            asker.read_exactly(begin + 7 * mmap.PAGESIZE, 3 * mmap.PAGESIZE)
    finally:
        libc.munmap(begin, size)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns what is opened, and which links are read."""
    looks: list[str] = []
    opened, read = os.open, os.readlink

    def noted(path: str | bytes, *how: object, **where: object) -> int:
        looks.append(f"open {path!s}")
        return opened(path, *how, **where)  # type: ignore[arg-type]

    def noted_link(path: str, **where: int) -> str:
        looks.append(f"readlink {path}")
        return read(path, **where)

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(os, "readlink", noted_link)
    return looks


def test_an_absolute_path_is_answered_without_a_look_at_the_working_directory(
    confined: Confined, looks: list[str]
) -> None:
    (confined.root / "a").touch()
    profile = Profile(writes=True, may_run=confined.programs("chmod"))
    script = f"/usr/bin/chmod 640 {confined.root}/a; cd /; /usr/bin/chmod 604 {confined.root}/a"
    assert confined.run("sh", "-c", script, profile=profile).exit_code == 0
    assert any(look.endswith("/mem") for look in looks)
    assert not any(look.endswith("/cwd") for look in looks)


def test_a_descriptor_of_a_file_outside_is_refused_by_its_name_and_not_opened(
    confined: Confined, looks: list[str]
) -> None:
    code = """
import os
for path in ("/etc/passwd", "b"):
    fd = os.open(path, os.O_RDONLY | os.O_CREAT)
    try:
        os.fchmod(fd, 0o640)
        print("changed", fd)
    except PermissionError:
        print("refused", fd)
"""
    refused, changed = confined.python(code, profile=WRITES).stdout.splitlines()
    assert (refused.split()[0], changed.split()[0]) == ("refused", "changed")
    descriptors = [look.rpartition("/")[2] for look in looks if look.startswith("open") and "/fd/" in look]
    assert descriptors == changed.split()[1:]
