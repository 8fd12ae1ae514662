"""The jail against somebody who plants links, odd names and odd files, and who asks for places outside."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import beneath, kernel
from broker import jail as jail_module
from broker.beneath import Budget
from broker.jail import Jail, Located
from broker.refusal import CwdEscape, PolicyDenied, StartupError
from tests.support.ordinary import as_ordinary_user


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """A jail with a sibling of almost the same name, a secret outside, and links of each kind."""
    for folder in ("jail/sub/deep", "outside", "jail2"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "jail/a.txt").write_text("a")
    (tmp_path / "outside/secret.txt").write_text("secret")
    (tmp_path / "alias").symlink_to("jail")
    for name, target in {
        "out": "../outside",
        "secret": "../outside/secret.txt",
        "chain": "secret",
        "passwd": "/etc/passwd",
        "inside": "a.txt",
        "absolute": str(tmp_path / "jail/sub"),
        "top": str(tmp_path / "jail"),
        "around": "../jail/a.txt",
        "up": "..",
        "nowhere": "missing.txt",
        "nowhere-outside": "../outside/missing.txt",
        "loop": "loop",
        "magic": "/proc/self/root",
        "magic-cwd": "/proc/self/cwd",
    }.items():
        (tmp_path / "jail" / name).symlink_to(target)
    os.mkfifo(tmp_path / "jail/fifo")
    os.link(tmp_path / "outside/secret.txt", tmp_path / "jail/hard")
    return tmp_path


@pytest.fixture
def jail(ground: Path) -> Iterator[Jail]:
    jail = Jail(str(ground / "jail"))
    yield jail
    jail.close()


@pytest.fixture
def sub(jail: Jail) -> Iterator[Located]:
    with jail.locate("sub") as located:
        yield located


def test_the_root_is_held_by_a_descriptor_that_cannot_be_inherited(jail: Jail) -> None:
    assert not os.get_inheritable(jail.fd)
    with jail.locate("sub") as located:
        assert not os.get_inheritable(located.fd)
    assert located.fd == -1
    located.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda ground: str(ground / "none"), "does not exist"),
        (lambda ground: str(ground / "jail/a.txt"), "not a directory"),
        (lambda ground: "/", "whole file system"),
        (lambda ground: "/proc/self/root", "whole file system"),
        (lambda ground: "", "does not exist"),
        (lambda ground: "a\0b", "no path"),
    ],
)
def test_a_root_that_cannot_be_a_jail_stops_the_start(
    ground: Path, make: Callable[[Path], str], says: str
) -> None:
    with pytest.raises(StartupError, match=says) as caught:
        Jail(make(ground))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cwd", "relative"),
    [
        (None, ""),
        ("", ""),
        (".", ""),
        ("sub", "sub"),
        ("./sub//deep/", "sub/deep"),
        ("sub/../sub", "sub"),
        ("sub/..", ""),
        ("absolute/deep", "sub/deep"),
        ("top/sub", "sub"),
        ("{ground}/jail", ""),
        ("{ground}/jail/sub", "sub"),
        ("/{ground}//jail/./sub", "sub"),
    ],
)
def test_a_directory_beneath_the_root_is_found(
    jail: Jail, ground: Path, cwd: str | None, relative: str
) -> None:
    with jail.locate(cwd and cwd.format(ground=ground)) as located:
        assert located.relative == relative
        found, wanted = os.fstat(located.fd), os.stat(ground / "jail" / relative)
        assert (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


@pytest.mark.parametrize(
    "cwd",
    [
        "..",
        "sub/../..",
        "../jail",
        "../jail/sub",
        "out",
        "out/",
        "around",
        "a.txt",
        "inside",
        "none",
        "nowhere",
        "loop",
        "magic",
        "magic-cwd",
        "fifo",
        "~",
        "-",
        "/",
        "/etc",
        "/proc/self/root",
        "/proc/self/cwd",
        "{ground}/jail2",
        "{ground}/outside",
        "{ground}/jail/..",
        "{ground}/jail/../outside",
        "{ground}/jail/../jail",
        "{ground}/jailsub",
        "{ground}/alias/sub",
        "sub\0",
        "\udc80",
        "x" * 300,
        "x/" * 3_000,
    ],
)
def test_what_is_no_directory_beneath_the_root_is_an_escape(jail: Jail, ground: Path, cwd: str) -> None:
    with pytest.raises(CwdEscape) as caught:
        jail.locate(cwd.format(ground=ground))
    assert str(ground) not in caught.value.reason
    assert "outside/" not in caught.value.reason


def test_a_working_directory_that_is_not_there_is_said_not_to_exist(jail: Jail) -> None:
    with pytest.raises(CwdEscape, match=r"\Acwd does not exist; name a directory beneath the jail's root"):
        jail.locate("nowhere")


def test_a_root_given_through_a_link_is_known_by_both_names(ground: Path) -> None:
    jail = Jail(str(ground / "alias"))
    for name in ("alias", "jail"):
        with jail.locate(str(ground / name / "sub")) as located:
            assert located.relative == "sub"
            assert jail.check(str(ground / name / "new.txt"), located) == "new.txt"
    jail.close()


def test_a_root_is_known_by_the_name_that_the_shell_went_there_by(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ground / "jail")
    monkeypatch.setenv("PWD", str(ground / "alias"))
    for root in (".", str(ground / "jail")):
        jail = Jail(root)
        with jail.locate(str(ground / "alias/sub")) as located:
            assert located.relative == "sub"
        jail.close()


def test_a_name_that_the_shell_has_for_another_place_is_not_the_roots(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(ground / "outside"))
    jail = Jail(str(ground / "jail"))
    with pytest.raises(CwdEscape):
        jail.locate(str(ground / "outside"))
    jail.close()


@pytest.mark.parametrize(
    "word",
    ["/etc/passwd", "{ground}/outside/secret.txt", "{ground}/alias/a.txt", "../out/secret.txt", "../passwd", "../around",
     "../absolute/deep", "../up/jail/a.txt", "../up/outside/x", "../nowhere-outside", "../magic/etc"],
)  # fmt: skip
def test_nothing_is_opened_but_beneath_the_root(
    jail: Jail, ground: Path, sub: Located, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    held, opened = {jail.fd}, []

    def recorded(dir_fd: int, path: str, flags: int, resolve: int) -> int:
        opened.append((dir_fd in held, ".." in path and dir_fd != jail.fd, resolve & kernel.RESOLVE_BENEATH))
        fd = kernel.openat2(dir_fd, path, flags, resolve)
        held.add(fd)
        return fd

    with monkeypatch.context() as patch:
        for module in (beneath, jail_module):
            patch.setattr(module, "openat2", recorded)
        patch.setattr(os, "open", None)
        patch.setattr(os, "stat", None)
        with contextlib.suppress(PolicyDenied):
            jail.check(word.format(ground=ground), sub)
    assert set(opened) <= {(True, False, kernel.RESOLVE_BENEATH)}


def test_links_in_a_ring_through_the_outside_come_to_an_end(jail: Jail, ground: Path, sub: Located) -> None:
    (ground / "jail/ring").symlink_to("../jail/ring")
    with pytest.raises(PolicyDenied):
        jail.check("../ring", sub)


def test_the_jail_stays_the_same_directory_when_its_name_is_taken_by_another(
    jail: Jail, ground: Path
) -> None:
    (ground / "jail").rename(ground / "moved")
    (ground / "jail").symlink_to("outside")
    with jail.locate(None) as located, pytest.raises(FileNotFoundError):
        os.stat("secret.txt", dir_fd=located.fd)
    with pytest.raises(PolicyDenied), jail.locate(None) as located:
        jail.check("../outside/secret.txt", located)


@pytest.mark.parametrize(
    ("word", "relative"),
    [
        ("", "sub"),
        (".", "sub"),
        ("deep/", "sub/deep"),
        ("..", "sub/.."),
        ("../a.txt", "sub/../a.txt"),
        ("../inside", "sub/../inside"),
        ("../absolute/deep", "sub/../absolute/deep"),
        ("../top/a.txt", "sub/../top/a.txt"),
        ("../nowhere", "sub/../nowhere"),
        ("../around", "sub/../around"),
        ("../up/jail/a.txt", "sub/../up/jail/a.txt"),
        ("../up/jail/around", "sub/../up/jail/around"),
        ("../absolute/../a.txt", "sub/../absolute/../a.txt"),
        ("../hard", "sub/../hard"),
        ("new.txt", "sub/new.txt"),
        ("new/deeper/x", "sub/new/deeper/x"),
        ("../a.txt/x", "sub/../a.txt/x"),
        ("{ground}/jail/a.txt", "a.txt"),
        ("{ground}/jail/new", "new"),
        ("~", "sub/~"),
        ("-x", "sub/-x"),
    ],
)
def test_an_operand_beneath_the_root_passes(
    jail: Jail, ground: Path, sub: Located, word: str, relative: str
) -> None:
    assert jail.check(word.format(ground=ground), sub) == relative


@pytest.mark.parametrize(
    "word",
    [
        "../..",
        "../../outside/secret.txt",
        "../../jail/a.txt",
        "../../jail2",
        "none/../x",
        "none/../../../outside/secret.txt",
        "../out",
        "../out/secret.txt",
        "../out/none",
        "../out/none/../../outside/secret.txt",
        "../out/../jail/a.txt",
        "../secret",
        "../chain",
        "../passwd",
        "../nowhere-outside",
        "../loop",
        "../magic/etc/passwd",
        "../magic-cwd/x",
        "../fifo",
        "/",
        "/etc/passwd",
        "/dev/null",
        "/proc/self/root/etc/passwd",
        "{ground}",
        "{ground}/jail2",
        "{ground}/jail2/x",
        "{ground}/jail/../outside/secret.txt",
        "{ground}/none/../jail/a.txt",
        "{ground}/alias/a.txt",
        "../up/outside/secret.txt",
        "../up/none/../jail/a.txt",
        "../around/x",
        "../around/../a.txt",
        "x" * 300,
    ],
)
def test_an_operand_that_leads_out_is_denied_without_saying_where(
    jail: Jail, ground: Path, sub: Located, word: str
) -> None:
    with pytest.raises(PolicyDenied) as caught:
        jail.check(word.format(ground=ground), sub)
    assert str(ground) not in caught.value.reason
    assert "secret" not in caught.value.reason


def test_a_link_that_the_kernel_makes_up_is_refused_even_where_it_leads_inside(
    jail: Jail, ground: Path, sub: Located, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ground / "jail")  # what /proc/self/cwd means here it does not mean in the command
    for word in ("/proc/self/cwd/a.txt", "../magic-cwd/a.txt", f"/proc/self/fd/{jail.fd}/a.txt"):
        with pytest.raises(PolicyDenied):
            jail.check(word, sub)


def test_what_exists_outside_cannot_be_told_from_what_does_not(
    jail: Jail, ground: Path, sub: Located
) -> None:
    reasons = set()
    for word in (ground / "outside/secret.txt", ground / "outside/none", ground / "none/none"):
        with pytest.raises(PolicyDenied) as caught:
            jail.check(str(word), sub)
        reasons.add(caught.value.reason)
    for word in ("../out/secret.txt", "../out/none", "../nowhere-outside", "../secret"):
        with pytest.raises(PolicyDenied) as caught:
            jail.check(word, sub)
        reasons.add(caught.value.reason)
    assert len(reasons) == 2  # one for what is absolute, one for what leads through a link


def test_a_device_in_the_jail_is_no_operand(jail: Jail, ground: Path, sub: Located) -> None:
    try:
        os.mknod(ground / "jail/null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(PolicyDenied, match="device"):
        jail.check("../null", sub)


def test_a_link_swapped_all_the_time_never_opens_anything_outside(jail: Jail, ground: Path) -> None:
    inside, link = os.stat(ground / "jail/sub"), ground / "jail/swap"
    for turn in range(400):
        spare = ground / "jail/spare"
        spare.symlink_to("sub" if turn % 2 else "../outside")
        spare.rename(link)
        try:
            fd = jail.open("swap", os.O_PATH, Budget())
        except OSError:
            assert turn % 2 == 0
            continue
        assert os.fstat(fd).st_ino == inside.st_ino
        os.close(fd)


def test_no_descriptor_is_left_open_whatever_is_asked(jail: Jail, ground: Path, sub: Located) -> None:
    before = os.listdir("/proc/self/fd")
    for name in [*os.listdir(ground / "jail"), "..", "/etc", "none", str(ground / "alias/sub")]:
        for _ in range(3):
            try:
                jail.locate(name).close()
                jail.check("../" + name, sub)
            except (CwdEscape, PolicyDenied):
                continue
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("jail", True),
        ("jail/none/none", True),
        ("alias/audit.jsonl", True),
        ("outside/../jail/x", True),
        ("jail/out/audit.jsonl", False),
        ("jail2/x", False),
        ("none/none", False),
        ("", False),
    ],
)
def test_start_up_sees_what_lies_in_the_jail_by_whatever_name(
    jail: Jail, ground: Path, path: str, *, inside: bool
) -> None:
    assert jail.contains(str(ground / path)) is inside


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("mode", [0o000, 0o700, 0o711, 0o744])
def test_a_directory_that_may_not_be_read_and_searched_is_no_cwd(jail: Jail, ground: Path, mode: int) -> None:
    (ground / "jail/sub").chmod(mode)

    def refused() -> bool:
        with pytest.raises(CwdEscape):
            jail.locate("sub")
        return True

    assert as_ordinary_user(refused)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_root_that_may_not_be_read_stops_the_start(ground: Path) -> None:
    (ground / "jail").chmod(0o711)
    jail_fd = os.open(ground / "jail", os.O_PATH)

    def refused() -> bool:
        with pytest.raises(StartupError, match="cannot be read"):
            Jail(f"/proc/self/fd/{jail_fd}")
        return True

    assert as_ordinary_user(refused)
