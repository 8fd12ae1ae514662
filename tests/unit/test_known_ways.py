"""Paths are opened without a step into a mount that is not on a known way."""

import errno
import os
from pathlib import Path

import pytest

from broker import kernel
from broker.known_ways import on_known_mount, open_known, ways_to

MOUNT = "/proc"
"""A mount that every machine has."""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = kernel.openat2

    def uncached(dir_fd: int, path: str | bytes, flags: int, resolve: int) -> int:
        if resolve & kernel.RESOLVE_CACHED:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return opened(dir_fd, path, flags, resolve)

    monkeypatch.setattr(kernel, "openat2", uncached)


def found(path: str | Path, *places: str) -> tuple[int, int] | str:
    """Return which file is opened, or the name of the error."""
    before = len(os.listdir("/proc/self/fd"))
    try:
        fd = open_known(str(path), lambda: ways_to(places))
    except OSError as error:
        assert len(os.listdir("/proc/self/fd")) == before
        return errno.errorcode[error.errno or 0]
    try:
        assert len(os.listdir("/proc/self/fd")) == before + 1
        return kernel.identity(fd)
    finally:
        os.close(fd)


def identity(path: str | Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def test_what_lies_behind_a_mount_is_found_on_a_known_way_only(tmp_path: Path) -> None:
    assert found("/proc/version", "/usr/bin/true", str(tmp_path)) == "EACCES"
    assert found(MOUNT, str(tmp_path)) == "EACCES"
    assert found("/proc/version", "/proc/stat") == identity("/proc/version")
    (tmp_path / "link").symlink_to("/proc/version")
    assert found(tmp_path / "link", str(tmp_path)) == "EACCES"
    assert found(tmp_path / "link", str(tmp_path), "/proc/version") == identity("/proc/version")


def test_links_and_folders_above_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "up").symlink_to("sub/../file")
    (tmp_path / "absolute").symlink_to(tmp_path / "up")
    (tmp_path / "folder").symlink_to("sub")
    (tmp_path / "root").symlink_to("/")
    for path in ("file", "up", "absolute", "folder/../file", "./sub//../up", f"root/../..{tmp_path}/file"):
        assert found(tmp_path / path, str(tmp_path)) == identity(tmp_path / "file"), path
    assert found("/", str(tmp_path)) == identity("/")
    assert found(tmp_path / "missing", str(tmp_path)) == "ENOENT"
    assert found(tmp_path / "file" / "x", str(tmp_path)) == "ENOTDIR"


def test_links_that_lead_nowhere_and_paths_without_an_end_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert found(tmp_path / "a", str(tmp_path)) == "ELOOP"
    (tmp_path / "sub").mkdir()
    assert found(f"{tmp_path}/{'sub/../' * 500}sub", str(tmp_path)) == "ELOOP"


def test_which_mount_a_file_lies_on_is_told_by_its_name(tmp_path: Path) -> None:
    ways = ways_to([str(tmp_path), "/usr/bin/true"])
    assert on_known_mount(str(tmp_path / "x"), ways)
    assert on_known_mount("/usr/lib/x.so (deleted)", ways)
    assert on_known_mount("", ways)
    assert not on_known_mount("/proc/version", ways)
    assert on_known_mount("/proc/version", ways_to(["/proc/stat"]))


def test_a_file_is_known_by_the_numbers_that_stat_tells(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    try:
        assert kernel.identity(fd) == identity(tmp_path)
    finally:
        os.close(fd)
