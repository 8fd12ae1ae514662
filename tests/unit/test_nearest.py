"""A refusal names first what was perhaps meant, and what else can be called, however many programs there are."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from broker import policy_profiles
from broker.nearest import nearest, profile_of, profile_with, slips
from broker.policy import Policy
from broker.programs import Program, Programs
from broker.refusal import ExecutorError
from tests.support.gate import DEFAULT_POLICY, permitted, policy_over, refusal

SHIPPED = DEFAULT_POLICY.read_bytes()


def with_profiles(*names: str) -> bytes:
    """Return the shipped policy with these profiles."""
    return policy_profiles.with_profiles(SHIPPED, names).raw


ELSEWHERE = "; the tool's description names what may be called"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gti status", "git"),
        ("grpe x", "grep"),
        ("lss", "ls"),
        ("sl", "ls"),
        ("heda x", "head"),
        ("sha1sun x", "sha1sum"),
    ],
)
def test_a_refusal_names_the_nearest_program_first(tmp_path: Path, typed: str, meant: str) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), typed)
    assert reason.endswith(f"; meant, perhaps: {meant}{ELSEWHERE}")
    assert len(reason) < 220


OTHER_PROGRAMS = (
    *(
        "time",
        "timeout",
        "watch",
        "source",
        "yes",
        "chmod",
        "free",
        "dir",
        "command",
        "hostname",
        "rmdir",
        "touch",
    ),
    *("ps", "ed", "bat", "top", "dc", "who", "tee", "w", "man"),
    *("fd", "zcat", "cmake", "gmake"),
)


@pytest.mark.parametrize("typed", OTHER_PROGRAMS)
def test_a_program_that_only_looks_like_another_is_not_taken_for_it(tmp_path: Path, typed: str) -> None:
    assert "perhaps" not in refusal(policy_over(tmp_path, with_profiles("make")), f"{typed} x")


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("time ls", "the policy limits its time"),
        ("watch ls", "name the program itself"),
        ("source x", "no shell"),
        (". ./x", "no shell"),
        ("pushd src", "`cwd`"),
        ("type git", "use which NAME"),
        ("command -v git", "use which NAME"),
        ("ll", "use ls -l"),
        ("egrep x", "use grep -E"),
        ("hostname", "use uname -n"),
        ("[ -f x ]", "'[' is not on the allow list ([commands] allow); use test"),
        ("vim x", "the client's own tools edit files"),
        ("rm x", "it changes files; use the client's own tools if it has such, or ask the user"),
        ("wget x", "the policy says so; use the client's own tools if it has such, or ask the user"),
        ("nohup ls", "([commands] allow); name the program itself"),
        ("for f in a b", "no loops or conditions"),
        ("fd x", "; use find . -name PATTERN"),
        ("tar xf a.tar", "archives are not read"),
        ("zcat a.gz", "archives are not read"),
    ],
)
def test_what_people_type_by_habit_has_an_answer_of_its_own(tmp_path: Path, typed: str, instead: str) -> None:
    assert instead in refusal(policy_over(tmp_path, SHIPPED), typed)


def test_both_ways_are_named_where_both_programs_are_there(tmp_path: Path) -> None:
    policy = policy_over(tmp_path, "[commands]\nallow = ['find', 'ls']")
    assert refusal(policy, "fd x").endswith("; use find . -name PATTERN")
    policy = policy_over(tmp_path, "[commands]\nallow = ['find', 'rg']")
    policy.lookup = Everywhere((), policy.jail, (), lazily=True)
    assert refusal(policy, "fd x").endswith("; use find . -name PATTERN or rg --files")


def test_git_is_named_for_removing_only_where_it_may(tmp_path: Path) -> None:
    assert "git rm does so with what git tracks; else use" in refusal(
        policy_over(tmp_path, with_profiles("git-write")), "rm x"
    )
    assert "git mv" not in refusal(policy_over(tmp_path, with_profiles("git-write")), "mv x y")
    assert "git" not in refusal(policy_over(tmp_path, SHIPPED), "rm x")


def test_only_what_may_be_called_is_named_in_the_place_of_another(tmp_path: Path) -> None:
    assert "ls -l" not in refusal(policy_over(tmp_path, "[commands]\nallow = ['cat']"), "ll")


def test_a_refusal_says_where_the_programs_stand_where_none_is_near(tmp_path: Path) -> None:
    reason = refusal(policy_over(tmp_path, SHIPPED), "qqqqqqqq")
    assert reason == f"'qqqqqqqq' is not on the allow list ([commands] allow){ELSEWHERE}"


def test_of_few_programs_a_refusal_names_all_the_nearest_first(tmp_path: Path) -> None:
    few = policy_over(tmp_path, "[commands]\nallow = ['ls', 'cat', 'git', 'not-installed-anywhere']")
    assert refusal(few, "gitt").endswith("; allowed: git ls cat")
    none = policy_over(tmp_path, "[commands]\nallow = ['not-installed-anywhere']")
    assert refusal(none, "ls").endswith("; none that is allowed is installed")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("python", ["python3"]),
        ("python3.11", ["python3"]),
        ("pip", ["pip3"]),
        ("pytohn3", ["python3"]),
        ("p", []),
        ("3", []),
    ],
)
def test_a_versions_number_does_not_make_another_program(typed: str, meant: list[str]) -> None:
    assert slips(typed, ["python3", "pip3", "ps", "4"]) == meant


PYTHON = """
[commands]
allow = ["python", "python3", "pytest", "mypy"]
[rules.python3]
option_style = "single-dash"
allow_options = ["-m"]
require_options = ["-m"]
[rules.python3.subcommand.pytest]
"""


class OnePython(Programs):
    """What is to be had on a machine that has python3 alone."""

    along = "/bin"

    def problem(self, name: str) -> str | None:
        """Return None for that one."""
        return (
            None if name == "python3" else f"is not installed on this machine (looked for along {self.along})"
        )

    def get(self, name: str) -> Program:
        raise ExecutorError(f"{name}: {self.problem(name)}")


@pytest.fixture
def python(tmp_path: Path) -> Policy:
    """A policy of the programs that a project has, on a machine that has one of them."""
    policy = policy_over(tmp_path, PYTHON)
    policy.lookup = OnePython((), policy.jail, (), lazily=True)
    return policy


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("python -m pytest", "; instead, perhaps: python3"),
        ("pytest -q", "; instead, perhaps: python3 -m pytest"),
    ],
)
def test_what_is_not_installed_is_told_with_what_is(python: Policy, command: str, instead: str) -> None:
    with pytest.raises(ExecutorError) as missing:
        permitted(python, command)
    assert "is not installed on this machine" in missing.value.reason
    assert missing.value.reason.endswith(instead)
    with pytest.raises(ExecutorError) as missing:
        permitted(python, "mypy")
    assert missing.value.reason.endswith(")")


def test_a_long_path_of_folders_does_not_hide_what_is_there(
    python: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnePython, "along", ":".join(["/opt/folder/bin"] * 20))
    with pytest.raises(ExecutorError) as missing:
        permitted(python, "pytest")
    assert missing.value.reason.endswith("(looked for along …; instead, perhaps: python3 -m pytest")


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (".venv/bin/pytest -q", "; instead, perhaps: python3 -m pytest"),
        ("/usr/bin/python3", "; call it by its name: python3"),
        ("./.venv/bin/python -m pytest", "; instead, perhaps: python3 -m pytest"),
        ("venv/bin/python3.12 x.py", "; instead, perhaps: python3 -m pytest"),
        ("./run.sh", "; no file of the jail is called by its path"),
        ("./manage.py test", "; no file of the jail is called by its path"),
        ("/opt/run", "; allowed: python3"),
    ],
)
def test_a_path_is_told_what_can_be_called(python: Policy, command: str, instead: str) -> None:
    assert refusal(python, command).endswith(instead)


class Everywhere(Programs):
    """What is to be had on a machine that has all programs."""

    def problem(self, name: str) -> str | None:
        """Return None, whatever the name."""
        return None


EVERYTHING = ("make", "node", "python")


@pytest.mark.parametrize(
    ("allowed", "command", "instead"),
    [
        (EVERYTHING, "./gradlew test", "; perhaps a target of make or a script of npm run does it"),
        (EVERYTHING, "./manage.py test", "; perhaps a target of make or a script of npm run does it"),
        (("make",), "./run.sh", "called by its path; perhaps a target of make does it"),
        (("python",), "./run.sh", "; no file of the jail is called by its path"),
    ],
)
def test_only_what_can_run_a_file_is_named(
    tmp_path: Path, allowed: tuple[str, ...], command: str, instead: str
) -> None:
    policy = policy_over(tmp_path, with_profiles(*allowed))
    policy.lookup = Everywhere((), policy.jail, (), lazily=True)
    assert refusal(policy, command).endswith(instead)


def test_an_interpreter_that_may_run_any_file_is_named(tmp_path: Path) -> None:
    policy = policy_over(tmp_path, "[commands]\nallow = ['python3', 'sh']")
    policy.lookup = Everywhere((), policy.jail, (), lazily=True)
    assert refusal(policy, "./manage.py test").endswith("; instead, perhaps: python3 FILE")
    assert refusal(policy, "./run.sh").endswith("; instead, perhaps: sh FILE")
    assert refusal(policy, ".venv/bin/python x.py").endswith("; instead, perhaps: python3")


@pytest.mark.parametrize("name", policy_profiles.profile_names())
def test_a_refusal_names_the_profile_that_has_entries_for_the_program(tmp_path: Path, name: str) -> None:
    shipped = policy_over(tmp_path, SHIPPED)
    raw = (Path(policy_profiles.FOLDER) / f"{name}.toml").read_text(encoding="utf-8")
    allowed = tomllib.loads(raw)["profile"][name]["allow"]
    assert allowed
    for program in allowed:
        assert profile_of(program) == name
        if program not in shipped.programs:
            assert f"ready-made entries: init --profile {name}; " in refusal(shipped, f"{program} test")


def test_a_refused_commit_names_the_profile_that_commits(tmp_path: Path) -> None:
    assert "init --profile git-write" in refusal(policy_over(tmp_path, SHIPPED), "git commit -m x")


def test_a_refusal_of_a_policy_that_allows_nothing_says_so(tmp_path: Path) -> None:
    nothing = policy_over(tmp_path, "[commands]\ndeny = ['rm']")
    assert refusal(nothing, "ls").endswith("; no program is allowed")


def test_a_refusal_names_the_nearest_subcommand_first(tmp_path: Path) -> None:
    assert "allowed: status, " in refusal(policy_over(tmp_path, SHIPPED), "git statsu")
    assert "allowed: shortlog, " in refusal(policy_over(tmp_path, SHIPPED), "git shortlg")


def test_the_search_costs_little_whatever_was_typed_and_however_many_names_there_are() -> None:
    names = [f"program-{number}" for number in range(1_000)]
    since = time.process_time()
    assert nearest("program-77x", names)
    assert nearest("program" * 10_000, names) == []
    assert nearest("p" * 33, ["p" * 32]) == nearest("p" * 32, ["p" * 33]) == []
    assert time.process_time() - since < 0.5


def test_a_start_does_not_pay_for_the_search() -> None:
    code = "import sys, broker.main, broker.serving, broker.startup; print('difflib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, timeout=30, check=True)
    assert ended.stdout == b"False\n"


def test_the_profile_of_each_subcommand_that_it_adds_is_known(tmp_path: Path) -> None:
    shipped = policy_over(tmp_path, SHIPPED).entry("git")
    added = policy_over(tmp_path, with_profiles("git-write")).entry("git")
    for before, after in (
        (shipped, added),
        (shipped.subcommand("stash"), added.subcommand("stash")),
    ):
        new = set(after.subcommand_names) - set(before.subcommand_names)
        assert new
        for name in new | {"switch"} & set(after.subcommand_names):
            assert profile_with(after.name, name) == "see init --profile git-write"
        for name in before.subcommand_names:
            assert name == "stash" or not profile_with(after.name, name)
