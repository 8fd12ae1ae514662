"""The mirror: what it sends, and that its failures neither block nor go unsaid."""

import os
import socket
from pathlib import Path

import pytest

from broker import audit_mirror
from broker.refusal import StartupError
from tests.support.opened_trail import open_trail, records, run, verified


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    listener.settimeout(5)
    return listener


def test_a_datagram_socket_gets_each_record_as_it_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with _listen(tmp_path / "mirror") as listener:
        trail = open_trail(path, mirror=str(tmp_path / "mirror"))
        run(trail)
        trail.close()
        got = [listener.recv(65_536) for _ in range(2)]
    assert got == path.read_bytes().splitlines()


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_mirror_in_whose_place_everybody_could_listen_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(StartupError, match="could read the records"):
        open_trail(tmp_path / "audit.jsonl", mirror=str(tmp_path / "shared/mirror"))


def test_a_mirror_whose_folder_another_user_made_where_everybody_can_is_refused(tmp_path: Path) -> None:
    mirror = str(tmp_path / "shared/theirs/mirror")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    with pytest.raises(StartupError, match="could read the records"):
        open_trail(tmp_path / "audit.jsonl", mirror=mirror)
    (tmp_path / "shared/theirs").mkdir(0o755)
    open_trail(tmp_path / "audit.jsonl", mirror=mirror).close()
    if os.geteuid() == 0:
        os.chown(tmp_path / "shared/theirs", 12345, 12345)
        with pytest.raises(StartupError, match="could read the records"):
            open_trail(tmp_path / "audit.jsonl", mirror=mirror)
        (tmp_path / "shared").chmod(0o755)
        open_trail(tmp_path / "audit.jsonl", mirror=mirror).close()
        (tmp_path / "shared/theirs/sub").mkdir(0o755)
        os.chown(tmp_path / "shared/theirs/sub", 12345, 12345)
        open_trail(tmp_path / "audit.jsonl", mirror=str(tmp_path / "shared/theirs/sub/mirror")).close()
        (tmp_path / "shared/theirs").chmod(0o775)
        with pytest.raises(StartupError, match="could read the records"):
            open_trail(tmp_path / "audit.jsonl", mirror=mirror)


def test_a_mirror_behind_a_link_is_refused_and_the_place_named(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with pytest.raises(StartupError, match=f"name the folder itself, {tmp_path}/there"):
        open_trail(tmp_path / "audit.jsonl", mirror=str(tmp_path / "link/mirror"))


def test_the_system_log_gets_facility_tag_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_mirror, "SYSLOG_SOCKET", str(tmp_path / "log"))
    with _listen(tmp_path / "log") as listener:
        trail = open_trail(tmp_path / "audit.jsonl", mirror="syslog")
        run(trail)
        trail.close()
        head, _, record = listener.recv(65_536).partition(b": ")
    assert head.startswith(b"<86>")
    assert b"hardened-terminal-mcp[" in head
    assert record == (tmp_path / "audit.jsonl").read_bytes().splitlines()[0]


def test_a_mirror_that_is_away_is_noted_once_and_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = open_trail(path, mirror=str(tmp_path / "mirror"))
    for _ in range(5):
        run(trail)
    with _listen(tmp_path / "mirror"):
        run(trail)
        run(trail)
        trail.close()
    notes = [(r["detail"], r["count"]) for r in records(path) if r["record_type"] == "event"]
    assert [detail.split()[2:4] for detail, _ in notes] == [["does", "not"], ["takes", "records"]]
    assert notes[1][1] == 11
    assert verified(path).sound


def test_a_mirror_that_does_not_read_blocks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with _listen(tmp_path / "mirror"):
        trail = open_trail(path, mirror=str(tmp_path / "mirror"), durability="os")
        for _ in range(2000):
            run(trail)
        trail.rotate()
        trail.close()
    assert sum(r["record_type"] != "event" for r in records(path)) == 4000
    assert verified(path).sound


@pytest.mark.parametrize("mirror", ["relative/socket", "udp://collector:514", "/" + "x" * 107])
def test_a_mirror_of_an_unknown_kind_is_refused(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(StartupError, match="mirror"):
        open_trail(tmp_path / "audit.jsonl", mirror=mirror)
