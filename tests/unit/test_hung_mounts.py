"""A place outside that does not answer holds up the program that asks for it, and nobody else."""

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from broker import canary, kernel, landlock
from broker.elf import loader_of
from broker.profile import Profile
from broker.refusal import PolicyDenied
from tests.support.confined import Confined
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not canary.facts().scoped, reason="this kernel lacks Landlock ABI 6")


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Confined]:
    with Confined(tmp_path) as confined:
        yield confined


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache of names; returns the paths that the file systems themselves were asked for."""
    asked = []

    def opened(dir_fd: int, path: str | bytes, flags: int, resolve: int) -> int:
        if resolve & kernel.RESOLVE_CACHED:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        asked.append(os.fsdecode(path))
        return kernel_openat2(dir_fd, path, flags, resolve)

    kernel_openat2 = kernel.openat2
    monkeypatch.setattr(kernel, "openat2", opened)
    return asked


@pytest.mark.parametrize(
    "change",
    [
        "chmod 640 file",
        "cd sub; chmod 640 ../file",
        "chmod 640 link",
        'chmod 640 "$PWD/file"',
        "chmod 640 back",
    ],
)
def test_metadata_in_the_jail_changes_where_no_cache_knows_it(
    confined: Confined, looks: list[str], change: str
) -> None:
    file = confined.root / "file"
    file.touch(0o600)
    (confined.root / "sub").mkdir()
    (confined.root / "link").symlink_to("file")
    (confined.root / "back").symlink_to(file)
    profile = Profile(writes=True, may_run_own=True, may_run=confined.programs("chmod"))
    assert confined.run("sh", "-c", change, profile=profile).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert looks == []


def test_metadata_in_the_temporary_folder_changes_where_no_cache_knows_it(
    confined: Confined, looks: list[str]
) -> None:
    profile = Profile(temporary=True, may_run_own=True, may_run=confined.programs("chmod", "stat"))
    script = 'cd "$TMPDIR"; : >a; chmod 640 a; chmod 604 "$TMPDIR/a"; stat -c %a a'
    assert confined.run("sh", "-c", script, profile=profile).stdout == "604\n"
    assert looks == []


@pytest.mark.parametrize("path", ["{outside}", "../outside", "link", "fine/../../outside"])
def test_metadata_outside_is_refused_without_a_look(
    confined: Confined, looks: list[str], tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "outside"
    outside.touch(0o600)
    (confined.root / "fine").mkdir()
    (confined.root / "link").symlink_to(outside)
    ended = confined.run("chmod", "777", path.format(outside=outside), profile=Profile(writes=True))
    assert "Operation not permitted" in ended.stderr
    assert outside.stat().st_mode & 0o777 == 0o600
    assert looks == []


def test_a_program_whose_file_system_does_not_answer_holds_up_no_other(
    confined: Confined, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    opened = kernel.openat2

    def hung(dir_fd: int, path: str | bytes, flags: int, resolve: int) -> int:
        if os.fsdecode(path) == "id" and not resolve & kernel.RESOLVE_CACHED:
            asked.set()
            answers.wait(60)
        return opened(dir_fd, path, flags, resolve)

    monkeypatch.setattr(kernel, "openat2", hung)
    profile = Profile(may_run=confined.programs("id", "echo"))
    first = threading.Thread(
        target=confined.run, args=("sh", "-c", "/usr/bin/id"), kwargs={"profile": profile}
    )
    first.start()
    try:
        assert asked.wait(20)
        assert confined.run("sh", "-c", "/usr/bin/echo on", profile=profile).stdout == "on\n"
    finally:
        answers.set()
        first.join()
    assert "echo" in looks


def test_the_loader_is_refused_where_no_cache_knows_it(confined: Confined, looks: list[str]) -> None:
    profile = Profile(may_run=confined.programs("cat"))
    ended = confined.run("sh", "-c", f"exec {loader_of('/usr/bin/id')} /usr/bin/id", profile=profile)
    assert ended.exit_code == 126
    assert "uid=" not in ended.stdout
    assert os.path.basename(os.path.realpath(str(loader_of("/usr/bin/id")))) in looks


def test_a_place_to_read_that_does_not_answer_holds_up_no_other_entry_and_its_own_for_a_moment(
    confined: Confined, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, looks = threading.Event(), SimpleQueue[str]()
    opened = landlock._open_place

    def hung(path: str) -> object:
        if path == str(tmp_path):
            looks.put(path)
            answers.wait(60)
        return opened(path)

    monkeypatch.setattr(landlock, "_open_place", hung)
    monkeypatch.setattr(landlock, "REACH_S", 0.3)
    (tmp_path / "file").write_text("told")
    profile = Profile(read=(str(tmp_path),))
    try:
        stuck = [confined.start("cat", str(tmp_path / "file"), profile=profile)[1] for _ in range(3)]
        assert confined.run("true").exit_code == 0
        assert ["does not answer" in ended.get(timeout=20).reason for ended in stuck] == [True] * 3
        assert looks.qsize() == 1, "one thread for each place"
    finally:
        answers.set()
    eventually(
        lambda: confined.run("cat", str(tmp_path / "file"), profile=profile).stdout == "told",
        "it answers again",
    )


FUSE_INIT_ANSWER = struct.pack("=IiQ", 80, 0, 0) + struct.pack(
    "=4I2H2I2H8I", 7, 31, 65_536, 0, 12, 9, 65_536, 1, 0, 0, *[0] * 8
)
"""linux/fuse.h: struct fuse_out_header and fuse_init_out of protocol 7.31; the question's number goes to offset 8."""
MNT_DETACH = 2


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A file system that answers nothing but that it is there. It ends with the descriptor, so with this process too."""
    place = tmp_path / "hung"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"/dev/fuse: {error.strerror}")
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"hung", os.fsencode(place), b"fuse", 0, options):
        os.close(fd)
        pytest.skip(f"no FUSE mount: {os.strerror(ctypes.get_errno())}")
    try:
        question = os.read(fd, 65_536)
        os.write(fd, FUSE_INIT_ANSWER[:8] + question[8:16] + FUSE_INIT_ANSWER[16:])
        yield place
    finally:
        os.close(fd)
        libc.umount2(os.fsencode(place), MNT_DETACH)


def test_a_file_system_that_really_hangs_holds_up_neither_the_jail_nor_the_warden(
    confined: Confined, hung: Path
) -> None:
    with confined.jail.locate(None) as located, pytest.raises(PolicyDenied):
        confined.jail.check(str(hung / "x"), located)
    change = f"""
import os
os.symlink({str(hung / "x")!r}, "link")
for change in (lambda: os.chmod({str(hung / "x")!r}, 0), lambda: os.chmod("link", 0), lambda: os.utime("link")):
    try:
        change()
    except PermissionError:
        print("refused")
"""
    ended = confined.python(change, profile=Profile(writes=True))
    assert ended.stdout == "refused\n" * 3, ended
    profile = Profile(may_run=confined.programs("echo"))
    (confined.root / "way").symlink_to(hung / "x")
    for name in (f"{hung}/x", f"{hung}/../x", f"{confined.root}/way"):
        ended = confined.run("sh", "-c", f"exec {name}", profile=profile)
        assert (ended.exit_code, ended.stdout) == (126, ""), ended
    assert confined.run("sh", "-c", "/usr/bin/echo on", profile=profile).stdout == "on\n"
    reads = confined.run("true", profile=Profile(read=(str(hung / "x"),)))
    assert "does not answer" in reads.reason
