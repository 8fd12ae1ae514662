"""What another local user could change, read or exchange: such a place is refused, and a file of theirs counts for nothing."""

import grp
import json
import os
import pwd
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker import configuration, private_folder, startup, trust_command
from broker.audit_command import main as audit
from broker.audit_reading import entries, sources_of
from broker.audit_repair import repair
from broker.doctor_command import place_of
from broker.refusal import StartupError
from tests.support.opened_trail import files_of, open_trail, records, run, verified
from tests.support.ordinary import ORDINARY_USER, as_ordinary_user

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ours that the other user may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.chdir("/")
    yield folder
    shutil.rmtree(folder)


def access_list(path: Path, kind: str = "access") -> None:
    """Let the other user do everything in `path` by a POSIX access list, under which the group may do nothing (acl(5))."""
    right, nobody = 7 if path.is_dir() else 6, 0xFFFFFFFF
    entries = [
        (1, right, nobody),
        (2, right, ORDINARY_USER),
        (4, 0, nobody),
        (16, right, nobody),
        (32, 1, nobody),
    ]
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", raw)
    except OSError:
        pytest.skip("this file system has no access lists")


def of_another_user(base: Path) -> Path:
    (base / "place").mkdir()
    os.chown(base / "place", ORDINARY_USER, ORDINARY_USER)
    return base / "place"


def sticky_of_another_user(base: Path) -> Path:
    of_another_user(base).chmod(0o1777)
    return base / "place"


def everybodys(base: Path) -> Path:
    (base / "place").mkdir()
    (base / "place").chmod(0o777)
    return base / "place"


def listed(base: Path) -> Path:
    (base / "place").mkdir()
    access_list(base / "place")
    return base / "place"


def below(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def folder(base: Path) -> Path:
        made = make(base) / "ours"
        made.mkdir(mode=0o700)
        return made

    return folder


def behind_a_link(base: Path) -> Path:
    """A sticky folder of root's, where the other user made a link to a folder of ours."""
    (base / "sticky").mkdir()
    (base / "sticky").chmod(0o1777)
    (base / "ours").mkdir(mode=0o700)
    (base / "sticky/link").symlink_to(base / "ours")
    os.chown(base / "sticky/link", ORDINARY_USER, ORDINARY_USER, follow_symlinks=False)
    return base / "sticky/link"


PLACES: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "of another user": (of_another_user, "place/@", "owned by user 12345"),
    "sticky, of another user": (sticky_of_another_user, "place/@", "owned by user 12345"),
    "everybody's": (everybodys, "place/@", "everybody may write in .*: chmod o-w"),
    "an access list": (listed, "place/@", "access list .*: chmod g-w"),
    "below one of another user": (below(of_another_user), "place/ours", "owned by user 12345"),
    "below a sticky one of another user": (
        below(sticky_of_another_user),
        "place/ours",
        "owned by user 12345",
    ),
    "below everybody's": (below(everybodys), "place/ours", "everybody may write in .*: chmod o-w"),
    "below an access list": (below(listed), "place/ours", "access list .*: chmod g-w"),
    "behind a link of another user": (behind_a_link, "sticky/link", "made the link"),
}
"""How a folder is made, what the other user can rename there, "@" for the file or folder that is used, and what is said."""


def use_trail(folder: Path) -> str:
    (folder / "audit.jsonl").touch(0o600)
    open_trail(folder / "audit.jsonl").close()
    return "audit.jsonl"


def use_policy(folder: Path) -> str:
    (folder / "policy.toml").write_text('[commands]\nallow = ["ls"]\n')
    configuration.read_policy(str(folder / "policy.toml"))
    return "policy.toml"


def use_approvals(folder: Path) -> str:
    (folder / configuration.NAME).mkdir(mode=0o700)
    (folder / configuration.NAME / "trusted").touch(0o600)
    configuration.trusted({"XDG_CONFIG_HOME": str(folder)})
    return configuration.NAME


def use_home(folder: Path) -> str:
    startup.empty_home({"XDG_STATE_HOME": str(folder)})
    return configuration.NAME


USES: dict[Callable[[Path], str], str] = {
    use_trail: "audit.jsonl",
    use_policy: "policy.toml",
    use_approvals: configuration.NAME,
    use_home: configuration.NAME,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_where_another_user_can_exchange_something_is_refused(
    base: Path, place: str, use: Callable[[Path], str]
) -> None:
    make, target, said = PLACES[place]
    folder = make(base)
    with pytest.raises(StartupError, match=said) as refused:
        use(folder)
    assert "\n" not in str(refused.value)
    exchanged = base / target.replace("@", USES[use])

    def exchange() -> bool:
        exchanged.rename(exchanged.with_name("gone"))
        return True

    assert as_ordinary_user(exchange), "it would have been safe"


@pytest.mark.parametrize(
    "elsewhere",
    [{"HTMCP_AUDIT_LOG": "place/a"}, {"XDG_STATE_HOME": "place"}, {"XDG_STATE_HOME": "place/not/yet"}],
)
def test_doctor_says_where_a_start_would_be_refused(base: Path, elsewhere: dict[str, str]) -> None:
    (base / "jail").mkdir()
    use_policy(base)
    environ = {
        "HTMCP_POLICY_FILE": str(base / "policy.toml"),
        "HTMCP_JAIL_ROOT": str(base / "jail"),
        "HTMCP_AUDIT_LOG": str(base / "audit.jsonl"),
        "XDG_CONFIG_HOME": str(base),
        "XDG_STATE_HOME": str(base / "state"),
    }
    assert place_of(environ).problem is None
    of_another_user(base)
    changed = {name: str(base / place) for name, place in elsewhere.items()}
    assert "owned by user 12345" in str(place_of({**environ, **changed}).problem)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", [0o755, 0o1755, 0o1777])
def test_a_folder_of_our_own_below_roots_sticky_ones_is_accepted(
    base: Path, mode: int, use: Callable[[Path], str]
) -> None:
    folder = base / "ours"
    folder.mkdir(mode=0o700)
    base.chmod(mode)
    exchanged = folder / use(folder)
    for path in (exchanged, folder):
        assert not as_ordinary_user(lambda path=path: bool(path.rename(f"{path}.gone"))), path  # type: ignore[misc]
        assert path.exists()


@pytest.mark.parametrize("use", [use_trail, use_home])
def test_names_that_the_trail_and_home_will_need_can_be_taken_by_nobody(
    base: Path, use: Callable[[Path], str]
) -> None:
    folder = base if use is use_trail else base / configuration.NAME / "home"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1777)
    with pytest.raises(StartupError, match=r"take names .*mkdir -m 700"):
        use(base)


def test_a_policy_in_a_sticky_folder_of_roots_is_accepted_and_one_that_another_user_linked_there_is_not(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.chmod(0o1777)
    use_policy(base)
    os.link(base / "policy.toml", base / "second.toml")
    monkeypatch.setattr(private_folder, "_links_are_protected", lambda: True)
    configuration.read_policy(str(base / "second.toml"))
    monkeypatch.setattr(private_folder, "_links_are_protected", lambda: False)
    with pytest.raises(StartupError, match=r"another user may have given it the name .*second\.toml"):
        configuration.read_policy(str(base / "second.toml"))


def test_a_policy_that_an_access_list_lets_another_user_write_is_refused(base: Path) -> None:
    use_policy(base)
    access_list(base / "policy.toml")
    with pytest.raises(StartupError, match=r"access list .*may write it; .*: chmod g-w"):
        configuration.read_policy(str(base / "policy.toml"))
    assert as_ordinary_user(lambda: bool((base / "policy.toml").write_text("#")))
    (base / "policy.toml").chmod(0o644)
    configuration.read_policy(str(base / "policy.toml"))


def test_nothing_is_approved_in_a_folder_that_another_user_owns(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_policy(base)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(of_another_user(base)))
    with pytest.raises(StartupError, match="owned by user 12345"):
        trust_command.main([str(base / "policy.toml")])
    assert not list(base.glob("place/*/trusted"))


@pytest.mark.parametrize(
    ("members", "first", "private"),
    [
        ([], {"root": 0}, True),
        ([], {"root": 0, "ada": 12345}, True),
        (["root", "ada"], {"root": 0, "operator": 11, "sync": 5}, True),
        (["bob"], {"root": 0}, False),
        ([], {"root": 0, "bob": 1001}, False),
        ([], {"root": 0, "operator": 1001}, False),
    ],
)
def test_roots_group_is_private_only_if_no_other_person_is_in_it(
    monkeypatch: pytest.MonkeyPatch, members: list[str], first: dict[str, int], *, private: bool
) -> None:
    users = [SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=0) for name, uid in first.items()]
    named = {user.pw_name: user for user in users}
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="root", gr_mem=members))
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(pwd, "getpwnam", named.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
    assert private_folder.is_private(0) == private


@pytest.mark.parametrize(("gid", "private"), [(102, True), (1002, False)])
def test_a_group_of_the_log_daemon_may_write_above_a_trail_as_on_ubuntu(
    monkeypatch: pytest.MonkeyPatch, gid: int, *, private: bool
) -> None:
    daemon = SimpleNamespace(pw_name="syslog", pw_uid=104, pw_gid=gid)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="syslog", gr_mem=[]))
    monkeypatch.setattr(pwd, "getpwall", lambda: [daemon])
    monkeypatch.setattr(pwd, "getpwnam", {"syslog": daemon}.__getitem__)
    assert private_folder.is_private(gid) == private


def beside_everybodys(path: str) -> None:
    Path(path).touch()
    os.chmod(path, 0o666)


def beside_of_another_user(path: str) -> None:
    Path(path).touch(0o600)
    os.chown(path, ORDINARY_USER, ORDINARY_USER)


def beside_link(path: str) -> None:
    os.symlink("audit.jsonl", path)


BESIDE = [beside_everybodys, beside_of_another_user, beside_link, os.mkfifo, os.mkdir]


@pytest.mark.parametrize("make", BESIDE)
def test_a_file_that_others_may_have_written_is_neither_counted_nor_deleted_but_said(
    base: Path, make: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = base / "audit.jsonl"
    trail = open_trail(path, max_bytes=65_536, keep=3, durability="os")
    others = [f"{path}.99999999999{number}" for number in (1, 2, 3)]
    for turn in range(400):
        run(trail)
        if turn == 200:
            for other in others:
                make(other)
    trail.close()
    assert len(files_of(path)) == 4
    assert all(map(os.path.lexists, others))
    assert verified(path).sound
    said = capfd.readouterr().err
    assert all(said.count(f"{other}: no part of the trail, and left out: ") == 1 for other in others)


def test_a_forged_file_beside_the_trail_is_not_shown(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, forged = base / "audit.jsonl", base / "audit.jsonl.000000000000"
    trail = open_trail(path)
    run(trail, "echo real")
    trail.close()
    forged.write_bytes(path.read_bytes().replace(b"real", b"lies"))
    forged.chmod(0o600)
    os.chown(forged, ORDINARY_USER, ORDINARY_USER)
    assert audit(["show", "--log", str(path)]) == 0
    shown = capfd.readouterr()
    assert ("echo real" in shown.out, "echo lies" in shown.out) == (True, False)
    assert f"{forged}: no part of the trail, and left out: it belongs to user 12345" in shown.err


@pytest.mark.parametrize("make", [beside_of_another_user, beside_link])
def test_a_file_that_takes_an_older_ones_place_while_the_trail_is_read_is_not_read(
    base: Path, make: Callable[[str], None]
) -> None:
    path = base / "audit.jsonl"
    trail = open_trail(path)
    run(trail)
    trail.rotate()
    trail.close()
    sources = sources_of(str(path))
    os.unlink(sources[0].name)
    make(sources[0].name)
    with pytest.raises(OSError, match=r"belongs to user 12345|symbolic links"):
        list(entries(sources))


def test_a_trail_of_another_user_is_shown_with_its_older_files_and_said_to_be_theirs(
    base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trail = open_trail(base / "audit.jsonl")
    run(trail, "echo old")
    trail.rotate()
    run(trail, "echo new")
    trail.close()
    for path in base.iterdir():
        os.chown(path, ORDINARY_USER, ORDINARY_USER)
    assert audit(["show", "--log", str(base / "audit.jsonl")]) == 0
    shown = capfd.readouterr()
    assert "echo old" in shown.out
    assert "echo new" in shown.out
    assert "belongs to user 12345, who may have written what stands in it" in shown.err


def tear(path: Path) -> None:
    """Leave what a broker leaves that dies while it writes."""
    following = json.loads(path.read_bytes().splitlines()[-1])["seq"] + 1
    with path.open("ab") as file:
        file.write(b'{"seq":%d,"ts":"canary' % following)


def torn_of_another_user(path: Path) -> None:
    path.touch()
    os.chown(path, ORDINARY_USER, ORDINARY_USER)


def torn_everybodys(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def torn_link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


def torn_second_name(path: Path) -> None:
    path.with_name("elsewhere").touch(0o600)
    os.link(path.with_name("elsewhere"), path)


@pytest.mark.parametrize("make", [torn_of_another_user, torn_everybodys, torn_link, torn_second_name])
def test_a_torn_line_is_set_aside_in_a_file_of_ours_or_the_start_is_refused(
    base: Path, make: Callable[[Path], None]
) -> None:
    path = base / "audit.jsonl"
    for _ in range(2):  # in a new file, then in that one
        trail = open_trail(path)
        run(trail)
        trail.close()
        tear(path)
    torn = Path(f"{path}.torn")
    open_trail(path).close()
    assert torn.read_bytes().count(b"canary") == 2
    torn.unlink()
    tear(path)
    make(torn)
    with pytest.raises(StartupError):
        open_trail(path)
    assert not torn.exists() or torn.read_bytes() == b""
    assert path.read_bytes().endswith(b"canary"), "what was torn is lost"


def test_a_default_access_list_lets_nobody_read_the_trail(base: Path) -> None:
    access_list(base, "default")
    path = base / "state/audit.jsonl"
    access_list(base, "default")
    for _ in range(2):
        trail = open_trail(path, create_folder=True)
        run(trail)
        trail.rotate()
        trail.close()
        tear(path)
    path.parent.chmod(0o755)
    made = sorted(path.parent.iterdir())
    assert [place.name for place in made][-1] == "audit.jsonl.torn"
    assert len(made) == 4
    for place in made:
        assert not as_ordinary_user(lambda place=place: bool(place.read_bytes())), place  # type: ignore[misc]


def test_no_trail_is_repaired_where_another_user_could_exchange_it(base: Path) -> None:
    path = base / "audit.jsonl"
    trail = open_trail(path)
    run(trail)
    trail.close()
    path.write_bytes(path.read_bytes().replace(b"ls -l", b"ls -a"))
    base.chmod(0o777)
    with pytest.raises(Exception, match="everybody may write in"):
        repair(str(path))
    base.chmod(0o755)
    assert repair(str(path)).sealed
    assert records(path)[0]["event"] == "repaired"


@pytest.mark.parametrize(
    "path", ["a/f", "l/f", "up/l/f", "a/../l/./f", "abs/f", "file", "a//../file", "l/..", "top"]
)
def test_a_place_is_looked_at_as_the_kernel_goes_there(base: Path, path: str) -> None:
    (base / "a/b").mkdir(parents=True)
    (base / "a/b/f").touch()
    (base / "a/f").touch()
    for name, target in (
        ("l", "a/b"),
        ("up", "a/b/../.."),
        ("abs", base / "a"),
        ("file", "l/f"),
        ("top", "/"),
    ):
        (base / name).symlink_to(target)
    *_, (reached, status) = private_folder._way(str(base / path))
    assert os.path.samestat(status, os.stat(base / path))
    assert os.path.samestat(os.stat(reached), status)


def test_where_root_is_nobody_as_in_a_user_namespace_the_start_says_so(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobodys = list(os.lstat("/"))
    nobodys[stat.ST_UID] = 65_534
    monkeypatch.setattr(private_folder, "_way", lambda _: iter([("/", os.stat_result(nobodys))]))
    with pytest.raises(StartupError, match=r"/ is owned by user 65534, .* start outside of it"):
        use_policy(base)


def test_links_in_a_ring_end_the_look(base: Path) -> None:
    (base / "ring").symlink_to("ring")
    with pytest.raises(OSError, match="symbolic links"):
        private_folder.problem(str(base / "ring"))
