"""A temporary folder goes, whatever its program did to it; one that cannot go is said."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import canary, temporary
from broker.profile import Profile
from broker.warden import Warden
from tests.support.confined import Confined
from tests.support.ordinary import as_ordinary_user
from tests.support.waiting import BOUND_S, eventually

pytestmark = pytest.mark.skipif(not canary.facts().scoped, reason="this kernel lacks Landlock ABI 6")
SHUT = 'mkdir "$TMPDIR/sub"; echo x >"$TMPDIR/sub/file"; chmod 000 "$TMPDIR/sub" "$TMPDIR"; echo "$TMPDIR"'


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Confined]:
    with Confined(tmp_path) as confined:
        yield confined


def test_a_folder_that_its_program_shut_is_removed(confined: Confined) -> None:
    profile = Profile(temporary=True, may_run=confined.programs("chmod", "mkdir"))
    folder = confined.run("sh", "-c", SHUT, profile=profile).stdout.strip()
    assert "/htmcp-" in folder
    assert not os.path.lexists(folder)


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o500, 0o700])
def test_an_ordinary_user_removes_a_shut_folder_at_once_and_in_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(temporary, "_FRESH_S", -1.0)
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)  # the folders above are for root alone

    def removed() -> bool:
        at_once, left, used = (temporary.Folder(".") for _ in range(3))
        left.close()
        for folder in (at_once, left, used):
            os.mkdir(f"{folder.path}/sub", 0o000)
            os.chmod(folder.path, mode)
        gone = temporary.remove(at_once.path) and temporary.remove_abandoned(".") == []
        return gone and os.listdir() == [os.path.basename(used.path)]

    assert as_ordinary_user(removed)


def test_a_folder_that_cannot_be_removed_is_said(
    confined: Confined, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tried = threading.Event()
    remove = temporary.remove

    def fails(path: str) -> bool:
        remove(path)
        tried.set()
        return False

    monkeypatch.setattr(temporary, "remove", fails)
    folder = confined.run("sh", "-c", 'echo "$TMPDIR"', profile=Profile(temporary=True)).stdout.strip()
    assert tried.wait(20)
    said: list[str] = []
    eventually(lambda: said.append(capfd.readouterr().err) or folder in "".join(said), "a line on stderr")


def test_a_folder_for_whose_removal_no_thread_can_be_had_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    warden = Warden()
    threading.Thread(target=warden.live).start()
    folder = temporary.Folder(str(tmp_path))
    with monkeypatch.context() as without:
        without.setattr("broker.warden._thread.start_new_thread", no_thread)
        assert warden.remove(folder.path).wait(BOUND_S)
    folder.close()
    assert folder.path in capfd.readouterr().err
    assert warden.remove(folder.path).wait(BOUND_S)  # it goes on
    assert not os.path.lexists(folder.path)
    warden.close()


def test_a_folder_whose_removal_the_end_of_the_broker_cuts_short_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    warden = Warden()
    threading.Thread(target=warden.live).start()
    quick, slow = (temporary.Folder(str(tmp_path)) for _ in range(2))
    assert warden.remove(quick.path).wait(BOUND_S)
    go_on = threading.Event()
    monkeypatch.setattr(temporary, "remove", lambda _: go_on.wait(BOUND_S))
    removed = warden.remove(slow.path)
    warden.close()
    go_on.set()
    (said,) = capfd.readouterr().err.splitlines()
    assert slow.path in said
    assert removed.wait(BOUND_S)
    for folder in (quick, slow):
        folder.close()
