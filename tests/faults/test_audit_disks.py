"""The trail on disks that are full, break, or become read-only under it: small ones of its own, mounted for the test."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.audit import Trail
from broker.refusal import AuditUnavailable, StartupError
from tests.support.opened_trail import open_trail, records, refused, run, verified

Fault = Callable[[Path], None]
ADMIN_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
EXT4_IOC_SHUTDOWN = 0x8004587D  # linux/ext4.h: _IOR('X', 125, __u32)


def _mounted(kind: list[str], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *kind, str(folder)], capture_output=True, timeout=20, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not possible here: {done.stderr.decode(errors='replace').strip()}")


@contextmanager
def _mount(kind: list[str], folder: Path) -> Iterator[None]:
    _mounted(kind, folder)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=20)


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
def test_a_disk_that_is_full_to_the_brim(tmp_path: Path, fail_mode: str) -> None:
    said: list[str] = []
    with _mount(["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs"], tmp_path / "small"):
        path = tmp_path / "small" / "audit.jsonl"
        trail = open_trail(path, said.append, fail_mode=fail_mode)
        run(trail)
        filler = tmp_path / "small" / "filler"
        _fill(filler)
        owed = _until_full(trail, said)
        assert verified(path).sound
        assert verified(path).torn_bytes == 0
        filler.unlink()
        run(trail)
        trail.close()
        found = records(path)
        gaps = [r for r in found if r.get("event") == "gap"]
        assert all("No space left" in gap["detail"] for gap in gaps)
        assert sum(gap["count"] for gap in gaps) + len(found) - len(gaps) == 2 + owed + 2
        assert verified(path).sound


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)


def _until_full(trail: Trail, said: list[str]) -> int:
    """Run commands until the trail cannot be written; returns how many records should have been written."""
    for turn in range(200):
        try:
            run(trail, "echo " + "x" * 2_000)
        except AuditUnavailable:
            return 2 * turn + 1
        if said:
            return 2 * turn + 2
    pytest.fail("the disk was never full")


@contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    """Mount a small ext4 of its own, which can be broken without harm."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(8 * 1024 * 1024)
    if shutil.which("mkfs.ext4", path=ADMIN_PATH) is None:
        pytest.skip("mkfs.ext4 is not installed")
    subprocess.run(
        ["mkfs.ext4", "-q", str(image)], check=True, timeout=20, env={"PATH": ADMIN_PATH}, capture_output=True
    )
    with _mount(["-o", "loop,errors=remount-ro", str(image)], folder / "disk"):
        yield folder / "disk"


def _break_the_disk(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, (2).to_bytes(4, "little"))  # 2: without flushing its log
    finally:
        os.close(fd)


def _make_the_disk_read_only(folder: Path) -> None:
    device = os.path.basename(os.path.realpath(f"/sys/dev/block/{_numbers(folder)}"))
    trigger = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
    try:
        trigger.write_text("1")
    except OSError as error:
        pytest.skip(f"ext4 cannot be made to fail here: {error}")


def _numbers(folder: Path) -> str:
    device = folder.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
@pytest.mark.parametrize(
    ("fault", "said"), [(_break_the_disk, "Input/output error"), (_make_the_disk_read_only, "Read-only")]
)
def test_a_disk_that_breaks_under_the_trail(tmp_path: Path, fail_mode: str, fault: Fault, said: str) -> None:
    warned: list[str] = []
    with _disk(tmp_path) as disk:
        trail = open_trail(disk / "audit.jsonl", warned.append, fail_mode=fail_mode)
        run(trail)
        fault(disk)
        assert refused(trail) == (fail_mode == "closed")
        assert any(said in line for line in warned)
        trail.close()


def test_a_read_only_bind_mount_is_refused_at_the_start(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    open_trail(source / "audit.jsonl").close()
    with _mount(["--bind", str(source)], tmp_path / "bound"):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(tmp_path / "bound")], check=True, timeout=20)
        with pytest.raises(StartupError, match="Read-only"):
            open_trail(tmp_path / "bound" / "audit.jsonl")
