"""Which policy is used, and which is refused because a cloned repository could have brought it."""

import contextlib
import grp
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker import configuration, private_folder, startup, trust_command
from broker.configuration import FoundPolicy
from broker.refusal import StartupError

POLICY = b'[commands]\nallow = ["ls"]\n'


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "here").mkdir()
    (tmp_path / "here").chmod(0o755)  # whatever the umask is
    monkeypatch.chdir(tmp_path / "here")
    settings = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


def here(raw: bytes = POLICY) -> FoundPolicy:
    Path("policy.toml").write_bytes(raw)
    return configuration.read_policy("policy.toml")


def test_the_named_policy_wins_over_the_one_here(environ: dict[str, str], tmp_path: Path) -> None:
    here()
    (tmp_path / "named.toml").write_bytes(b"# named")
    found = configuration.find_policy({**environ, "HTMCP_POLICY_FILE": str(tmp_path / "named.toml")})
    assert (found.raw, found.named) == (b"# named", True)


def test_the_policy_here_wins_over_the_users(environ: dict[str, str]) -> None:
    user = Path(configuration.config_folder(environ))
    user.mkdir(parents=True)
    (user / "policy.toml").write_bytes(b"# user")
    assert configuration.find_policy(environ).raw == b"# user"
    here()
    assert configuration.find_policy(environ).raw == POLICY


def test_no_policy_at_all_names_both_places_and_init(environ: dict[str, str]) -> None:
    with pytest.raises(StartupError, match=r"policy\.toml.*config.*init"):
        configuration.find_policy(environ)


@pytest.mark.parametrize("relative", ["", "relative/config"])
def test_a_relative_xdg_folder_is_ignored(relative: str) -> None:
    folder = configuration.config_folder({"HOME": "/home/ada", "XDG_CONFIG_HOME": relative})
    assert folder == "/home/ada/.config/hardened-terminal-mcp"


def test_a_policy_that_everybody_may_write_is_refused(environ: dict[str, str]) -> None:
    here()
    os.chmod("policy.toml", 0o666)
    with pytest.raises(StartupError, match="everybody may write"):
        configuration.find_policy(environ)


def test_a_policy_that_is_a_fifo_is_refused_without_waiting_for_a_writer(environ: dict[str, str]) -> None:
    os.mkfifo("policy.toml")
    with pytest.raises(StartupError, match="not a regular file"):
        configuration.find_policy(environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    ("owner", "mode", "said"), [(0, 0o664, "group 12345 may write"), (12345, 0o644, "owned by user 12345")]
)
def test_a_policy_that_another_group_or_user_may_write_is_refused(
    environ: dict[str, str], owner: int, mode: int, said: str
) -> None:
    here()
    os.chown("policy.toml", owner, 12345)
    os.chmod("policy.toml", mode)
    with pytest.raises(StartupError, match=said):
        configuration.find_policy(environ)


class Groups:
    """A user `ada`, whose group is another than root's, and the group's entry."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        patch.setattr(os, "getegid", lambda: 12345)
        patch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
        self.first_group_of("ada")

    def first_group_of(self, *users: str) -> None:
        """Set whose first group it is; it need not list them."""
        found = [SimpleNamespace(pw_name=user, pw_gid=12345) for user in users]
        self._patch.setattr(pwd, "getpwall", lambda: found)

    def entry(self, name: str | None, *members: str) -> None:
        """Set the group's entry; no name is none."""

        def found(_: int) -> SimpleNamespace:
            if name is None:
                raise KeyError
            return SimpleNamespace(gr_name=name, gr_mem=list(members))

        self._patch.setattr(grp, "getgrgid", found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    ("group", "accepted"),
    [
        (("ada",), True),
        (("ada", "ada"), True),
        ((None,), True),
        (("ada", "bob"), False),
        (("users",), False),
        (("users", "ada"), False),
    ],
)
def test_a_policy_that_the_users_own_group_may_write_is_accepted_if_nobody_else_is_in_it(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, group: tuple[str, ...], *, accepted: bool
) -> None:
    here()
    trust_command.main([])
    trust = Path(configuration.trust_path(environ))
    for path in (Path("policy.toml"), trust, trust.parent):
        os.chown(path, 0, 12345)
    Groups(monkeypatch).entry(*group)
    for path, refused in (
        (Path("policy.toml"), f"chmod g-w {Path('policy.toml').absolute()}"),
        (trust, f"chmod g-w {trust}"),
        (trust.parent, f"chmod g-w {trust.parent}"),
    ):
        path.chmod(path.stat().st_mode | 0o020)
        with contextlib.nullcontext() if accepted else pytest.raises(StartupError, match=refused):
            configuration.find_policy(environ)
            configuration.trusted(environ)
        path.chmod(path.stat().st_mode & ~0o020)


def test_a_group_that_is_the_first_one_of_another_user_too_is_not_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups(monkeypatch)
    groups.entry("ada")
    assert private_folder.is_private(12345)
    groups.first_group_of("ada", "bob")
    assert not private_folder.is_private(12345)


def test_a_policy_in_the_jail_is_refused_and_both_ways_out_are_named(environ: dict[str, str]) -> None:
    with pytest.raises(StartupError, match=r"trust .*HTMCP_POLICY_FILE"):
        configuration.check_trust(here(), environ, in_jail=True, jail_is_writable=False)


def test_the_users_own_policy_in_the_jail_is_refused_with_where_to_go_instead(
    environ: dict[str, str],
) -> None:
    folder = Path(configuration.config_folder(environ))
    folder.mkdir(parents=True)
    (folder / "policy.toml").write_bytes(POLICY)
    found = configuration.find_policy(environ)
    with pytest.raises(StartupError, match="a project's folder, not your home"):
        configuration.check_trust(found, environ, in_jail=True, jail_is_writable=False)
    assert trust_command.main([str(folder / "policy.toml")]) == 0
    configuration.check_trust(found, environ, in_jail=True, jail_is_writable=False)


def test_an_approved_policy_in_the_jail_is_used_until_it_changes(environ: dict[str, str]) -> None:
    here()
    assert trust_command.main([]) == 0
    configuration.check_trust(here(), environ, in_jail=True, jail_is_writable=False)
    with pytest.raises(StartupError, match="not approved"):
        configuration.check_trust(here(POLICY + b"#"), environ, in_jail=True, jail_is_writable=False)


def test_an_approval_holds_for_one_place_only(environ: dict[str, str], tmp_path: Path) -> None:
    here()
    trust_command.main([])
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="not approved"):
        configuration.check_trust(here(), environ, in_jail=True, jail_is_writable=False)


def test_the_shipped_policy_in_the_jail_needs_no_approval(environ: dict[str, str]) -> None:
    shutil.copy(configuration.shipped_policy_path(), "policy.toml")
    found = configuration.find_policy(environ)
    configuration.check_trust(found, environ, in_jail=True, jail_is_writable=False)


def test_a_named_policy_in_a_writable_jail_is_refused(environ: dict[str, str]) -> None:
    here()
    named = configuration.find_policy({**environ, "HTMCP_POLICY_FILE": "policy.toml"})
    configuration.check_trust(named, environ, in_jail=True, jail_is_writable=False)
    with pytest.raises(StartupError, match="outside the jail"):
        configuration.check_trust(named, environ, in_jail=True, jail_is_writable=True)


def test_a_path_that_could_forge_an_approval_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    (folder / "policy.toml").write_bytes(POLICY)
    with pytest.raises(StartupError, match="control characters"):
        trust_command.main([str(folder / "policy.toml")])


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_approvals_and_the_folders_above_them_are_for_their_owner_alone(environ: dict[str, str]) -> None:
    Path("policy.toml").touch(0o600)
    here()
    assert trust_command.main([]) == 0
    path = Path(configuration.trust_path(environ))
    modes = [place.stat().st_mode & 0o7777 for place in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.usefixtures("umask")
def test_the_folders_that_a_start_makes_are_for_their_owner_alone(environ: dict[str, str]) -> None:
    folder = Path(startup.empty_home(environ))
    made = [folder, *folder.parents[:4]]
    assert [place.name for place in made] == ["home", configuration.NAME, "state", ".local", "home"]
    assert [oct(place.stat().st_mode) for place in made] == ["0o40700"] * 5


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_approvals_that_everybody_may_write_are_no_approvals(environ: dict[str, str], mode: int) -> None:
    here()
    trust_command.main([])
    os.chmod(configuration.trust_path(environ), mode)
    with pytest.raises(StartupError, match=r"approvals .*everybody may write it"):
        configuration.check_trust(here(), environ, in_jail=True, jail_is_writable=False)


@pytest.mark.parametrize("mode", [0o777, 0o703])
def test_approvals_in_a_folder_that_everybody_may_write_are_no_approvals(
    environ: dict[str, str], mode: int
) -> None:
    here()
    trust_command.main([])
    os.chmod(configuration.config_folder(environ), mode)
    with pytest.raises(StartupError, match=r"approvals .*in its place"):
        configuration.check_trust(here(), environ, in_jail=True, jail_is_writable=False)
