"""What one command's paths may cost the broker, measured in calls of the kernel, against somebody who lays links to cost."""

import errno
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from broker import beneath, pipeline
from broker.beneath import STEPS_ALONE, Budget, SpentError, open_beneath
from broker.globs import expand
from broker.grammar import parse
from broker.jail import Jail
from broker.pipeline import Gate, Pipeline
from broker.policy import Policy
from broker.profile import Profile
from broker.redaction import Redactor
from broker.refusal import CwdEscape, PolicyDenied
from protocol.messages import ExplainRequest, Result, RunRequest
from tests.support.confined import Confined
from tests.support.gate import policy_over, refusal
from tests.support.opened_trail import open_trail, records

if TYPE_CHECKING:
    from broker.execution import Executor

LINKS = 39
DEPTH = 300
TOO_LONG = "too long a search"
RULES = """
[commands]
allow = ["cat", "ls"]
[rules.ls]
allow_options = ["-C =folder"]
"""


class Kernel:
    """Counts what is asked of openat2: calls, and names in their paths."""

    def __init__(self) -> None:
        self.calls = 0
        self.names = 0

    def openat2(self, dir_fd: int, path: str, flags: int, resolve: int) -> int:
        self.calls += 1
        self.names += path.count("/") + 1
        return _openat2(dir_fd, path, flags, resolve)


_openat2 = beneath.openat2


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(beneath, "openat2", kernel.openat2)
    return kernel


@pytest.fixture
def jail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jail]:
    """A jail whose searches end by their steps: how busy the machine is must not matter."""
    monkeypatch.setattr(beneath, "SECONDS", 100)
    (tmp_path / "jail/d/e").mkdir(parents=True)
    (tmp_path / "jail/f").write_text("")
    (tmp_path / "jail/d/f").write_text("")
    (tmp_path / "jail/back").symlink_to("../jail/d")
    jail = Jail(str(tmp_path / "jail"))
    yield jail
    jail.close()


@pytest.fixture
def broad(jail: Jail) -> str:
    """A chain of links that leave the jail and come back, each through as many names as a link can hold."""
    return _chain(jail, [f"../jail/{'d/../' * 800}"] * LINKS, "d")


@pytest.fixture
def deep(jail: Jail) -> str:
    """The same by way of a folder that lies so deep that to open it anew for each name takes 300 times as long."""
    up, down = "../" * DEPTH, "d/" * DEPTH
    return _to_and_fro(jail, 2 * (down + up), 2 * (up + down))


@pytest.fixture
def zigzag(jail: Jail) -> str:
    """The same, where the folder is left and entered again and again."""
    return _to_and_fro(jail, "", "../d/" * 600)


def _to_and_fro(jail: Jail, above: str, below: str) -> str:
    """Make links in turn in the root and in a folder far below it; each leads on to the next."""
    folder_fd = os.open(jail.root, os.O_PATH)
    for _ in range(DEPTH):
        os.makedirs(f"/proc/self/fd/{folder_fd}/d", exist_ok=True)
        below_fd = os.open("d", os.O_PATH, dir_fd=folder_fd)
        os.close(folder_fd)
        folder_fd = below_fd
    for number in range(1, LINKS, 2):
        os.symlink(f"{below}{'../' * DEPTH}L{number + 1}", f"L{number}", dir_fd=folder_fd)
    os.close(folder_fd)
    for number in range(0, LINKS, 2):
        os.symlink(f"../jail/{above}{'d/' * DEPTH}L{number + 1}", f"{jail.root}/L{number}")
    return "L0"


def _chain(jail: Jail, ways: list[str], end: str) -> str:
    names = [f"L{number}" for number in range(len(ways))]
    for name, way, then in zip(names, ways, [*names[1:], end], strict=True):
        os.symlink(way + then, f"{jail.root}/{name}")
    return names[0]


@pytest.fixture(params=["broad", "deep", "zigzag"])
def farm(request: pytest.FixtureRequest) -> str:
    """A path that costs much."""
    word: str = request.getfixturevalue(request.param)
    return word


def test_links_laid_to_cost_are_refused_within_the_budget(jail: Jail, kernel: Kernel, farm: str) -> None:
    with jail.locate(None) as located:
        for _ in range(3):
            with pytest.raises(PolicyDenied, match=TOO_LONG):
                jail.check(f"{farm}/f", located)
    assert kernel.calls <= beneath.STEPS
    assert kernel.names <= 2 * beneath.STEPS


def test_links_laid_to_cost_are_refused_as_working_directory(jail: Jail, kernel: Kernel, farm: str) -> None:
    with pytest.raises(CwdEscape, match=f"^cwd is part of {TOO_LONG}"):
        jail.locate(farm)
    assert kernel.names <= 2 * beneath.STEPS


def test_a_path_that_is_no_commands_ends_after_a_few_hundred_steps(
    jail: Jail, kernel: Kernel, farm: str
) -> None:
    names = [part for part in jail.real.split("/") if part]
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what the asker gets
        open_beneath(jail.fd, f"{farm}/f", os.O_PATH, [names])
    assert caught.value.errno == errno.ELOOP
    assert kernel.names <= 2 * STEPS_ALONE


def test_links_that_come_back_by_an_ordinary_way_are_followed(jail: Jail, kernel: Kernel) -> None:
    word = _chain(jail, [f"../jail/{'d/../' * 5}"] * LINKS, "d")
    with jail.locate(None) as located:
        assert jail.end(f"{word}/f", located) == "d/f"
        assert jail.end(f"{word}/../f", located) == "f"
    with jail.locate(f"{word}/e") as located:
        assert located.relative == "d/e"


@pytest.mark.parametrize("there", ["", "d/", "d/../" * 400, "d/../" * 800])
def test_a_long_path_of_missing_names_takes_a_few_looks(jail: Jail, kernel: Kernel, there: str) -> None:
    missing = "m/" * ((4_090 - len(there)) // 2)
    with jail.locate(None) as located:
        assert jail.check(there + missing, located) == (there + missing).rstrip("/")
    assert kernel.calls <= 24


def test_a_path_is_led_to_the_end_of_what_exists_however_much_does(jail: Jail) -> None:
    deepest = 20
    os.makedirs(f"{jail.root}/{'x/' * deepest}")
    with jail.locate(None) as located:
        for there in range(deepest + 1):
            for missing in range(deepest):
                word = "/".join(["x"] * there + ["m"] * missing)
                assert jail.end(word, located) == word


def _needed(policy: Policy, command: str) -> int:
    """Return how many steps it takes to judge a command, in which the budget's end has to be a refusal with its reason."""
    with policy.jail.locate(None) as located:
        for steps in itertools.count():
            located.budget = Budget(steps)
            try:
                policy.permit(policy.choose(parse(command)), located)
            except PolicyDenied as refused:
                if TOO_LONG not in refused.reason:
                    raise
            else:
                return steps
    raise AssertionError


def test_what_a_word_cost_is_missing_to_the_next(jail: Jail) -> None:
    policy = policy_over(Path(jail.root), RULES)
    once = _needed(policy, "cat f")
    assert once >= 1
    assert _needed(policy, "cat f f f") == 3 * once
    assert _needed(policy, "cat back/f f") == _needed(policy, "cat back/f") + once


def test_folders_on_the_way_to_a_word_have_no_budget_of_their_own(jail: Jail) -> None:
    policy = policy_over(Path(jail.root), RULES)
    assert _needed(policy, "ls -C d -C e") == 2 * _needed(policy, "ls -C d") == 4


def test_time_is_bounded_as_steps_are(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_over(Path(jail.root), RULES)
    monkeypatch.setattr(beneath, "SECONDS", -1)
    assert TOO_LONG in refusal(policy, "cat f")
    assert TOO_LONG in refusal(policy, "cat *")
    with pytest.raises(CwdEscape, match=TOO_LONG):
        jail.locate("d")


def test_a_spent_budget_stays_spent() -> None:
    budget = Budget(1)
    budget.spend(1)
    for steps in (1, 0):
        with pytest.raises(SpentError):
            budget.spend(steps)


@pytest.mark.parametrize("pattern", ["*", "*/*", "b*/f", "*/f", "*/", "back/*", "./*/../f*"])
def test_a_pattern_that_the_budget_does_not_reach_for_is_refused_never_cut_short(
    jail: Jail, pattern: str
) -> None:
    argv = parse(f"ls {pattern}")
    with jail.locate(None) as located:
        whole = expand(argv, located, jail)
        for steps in itertools.count():
            located.budget = Budget(steps)
            try:
                found = expand(argv, located, jail)
            except PolicyDenied as refused:
                if "too many names to look at" not in refused.reason and TOO_LONG not in refused.reason:
                    raise
            else:
                break
    assert found == whole
    assert steps > 1


def test_no_descriptor_is_left_open_wherever_the_budget_ends(jail: Jail) -> None:
    os.symlink("../jail/d/../d/e/../../back", f"{jail.root}/far")
    before = os.listdir("/proc/self/fd")
    for steps in range(40):
        with jail.locate(None, Budget(steps)) as located:
            for word in ("d/e/m/m/m/m/m", "far/e/../f", "far/f", "far/f/x", "far/m/m"):
                try:
                    jail.end(word, located)
                except PolicyDenied:
                    continue
    assert os.listdir("/proc/self/fd") == before


def test_a_refusal_says_how_long_the_search_took(
    jail: Jail, kernel: Kernel, broad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on by a millisecond with each call of the kernel."""
    monkeypatch.setattr(pipeline, "time", SimpleNamespace(monotonic=lambda: kernel.calls / 1000))
    policy = policy_over(Path(jail.root), RULES)
    trail = open_trail(tmp_path / "audit.jsonl")
    asked = Pipeline(Gate(policy, policy.jail, Redactor()), trail, cast("Executor", None))
    for judge in (
        lambda: asked.admit(RunRequest(1, f"cat {broad}")),
        lambda: asked.answer_explain(ExplainRequest(2, f"cat {broad}")),
    ):
        kernel.calls = 0
        answer = judge()
        assert isinstance(answer, Result)
        assert TOO_LONG in answer.result.policy_reason
        assert answer.result.duration_ms == kernel.calls > 1_000
        assert records(tmp_path / "audit.jsonl")[-1]["duration_ms"] == kernel.calls
    trail.close()


def test_the_warden_follows_links_laid_to_cost_a_few_hundred_steps(tmp_path: Path) -> None:
    confined = Confined(tmp_path)
    try:
        (confined.root / "d").mkdir()
        _chain(confined.jail, [f"../jail/{'d/../' * 800}"] * LINKS, "d")
        change = "import os, errno\ntry: os.chmod('L0/none', 0)\nexcept OSError as error: print(errno.errorcode[error.errno])"
        assert confined.python(change, profile=Profile(writes=True)).stdout == "ELOOP\n"
    finally:
        confined.close()


def test_a_machine_that_is_busy_elsewhere_makes_no_search_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget()
    now = time.monotonic()
    monkeypatch.setattr(beneath, "monotonic", lambda: now + 4 * beneath.SECONDS)
    budget.spend(1)
    monkeypatch.setattr(beneath, "monotonic", lambda: now + 2 * beneath.WAIT_S)
    with pytest.raises(beneath.SpentError):
        budget.spend(1)
