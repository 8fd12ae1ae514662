"""The ready-made profiles do what they say: each one's everyday commands work, and leave no trace outside the jail."""

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import policy_profiles
from tests.adversarial.cage import Seen
from tests.adversarial.identity import HERE
from tests.adversarial.policies import SHIPPED
from tests.contract.workshop import Workshop
from tests.support.documents import README, blocks

PROFILES = ["git-write", "go", "make", "node", "python", "rust"]
_PERSON = "[user]\nname = A Person\nemail = person@example.org\n"
_YOURS = {"project": "/home/you/src/my-project", "toolchain": "/home/you/.rustup/toolchains/stable"}
"""Places that the profiles name in lines for those whose machine needs them."""


class _OwnFolder(Workshop):
    """A workshop whose policy names its own folder where a document or a profile has a reader's."""

    def _lay_out(self, policy: str) -> None:
        super()._lay_out(_advised(policy, _YOURS["project"], str(self.jail)))


def _advised(policy: str, example: str, place: str) -> str:
    """Return a policy in which the lines that a profile has for a place count, as if a reader had taken their `#` away."""
    text = re.sub(rf"(?m)^( *)# ((?:\w+ = )?[\[\"].*{re.escape(example)}.*)$", r"\1\2", policy)
    assert text.replace(example, place) != policy
    return text.replace(example, place)


def _toolchain() -> str | None:
    """Return the folder of a Rust toolchain that is not the system's."""
    rustc = shutil.which("rustc")
    if rustc is None:
        return None
    asked = subprocess.run(
        [rustc, "--print", "sysroot"], capture_output=True, text=True, timeout=30, check=True
    )
    return asked.stdout.strip()


def _policy() -> str:
    """The shipped policy with every profile, and what the one for Rust advises for a toolchain of rustup."""
    text = policy_profiles.with_profiles(SHIPPED.encode(), PROFILES).raw.decode()
    toolchain = _toolchain()
    if toolchain is None or toolchain == "/usr":
        return text
    return _advised(text.replace("\n# [environment]\n", "\n[environment]\n"), _YOURS["toolchain"], toolchain)


@pytest.fixture(scope="module")
def shared() -> Iterator[Workshop]:
    with Workshop(_policy(), HERE, runnable=None) as cage:
        yield cage


def _work(workshop: Workshop, command: str) -> Seen:
    return workshop.work(command, unless="not installed")


def test_git_write_commits_branches_and_stashes(workshop: Workshop) -> None:
    with (workshop.jail / ".git" / "config").open("a") as file:
        file.write(_PERSON)
    workshop.put({"new.txt": "new\n"})
    _work(workshop, "git add --all")
    _work(workshop, "git commit -q -m 'Add a file'")
    assert _work(workshop, "git log --format=%s -1").result.stdout == "Add a file\n"
    workshop.put({"new.txt": "other\n"})
    _work(workshop, "git stash push -m later")
    assert "later" in _work(workshop, "git reflog show stash").result.stdout
    assert "later" in _work(workshop, "git stash list").result.stdout
    _work(workshop, "git stash pop")
    _work(workshop, "git stash push")
    _work(workshop, "git stash drop")
    _work(workshop, "git switch -q -c topic")
    _work(workshop, "git checkout -q feature")


def test_git_write_merges_picks_reverts_and_names(workshop: Workshop) -> None:
    with (workshop.jail / ".git" / "config").open("a") as file:
        file.write(_PERSON)
    for branch in ("one", "two"):
        _work(workshop, f"git branch {branch} main")
        _work(workshop, f"git switch -q {branch}")
        workshop.put({f"{branch}.txt": "new\n"})
        _work(workshop, "git add --all")
        _work(workshop, f"git commit -q -m 'Add {branch}'")
    _work(workshop, "git merge one")
    assert "Merge branch 'one'" in _work(workshop, "git log --format=%s -1").result.stdout
    _work(workshop, "git merge --no-ff -m again main")
    _work(workshop, "git revert HEAD -m 1 --no-edit")
    assert not (workshop.jail / "one.txt").exists()
    _work(workshop, "git switch -q main")
    _work(workshop, "git cherry-pick two~2")
    _work(workshop, "git tag -a v1 -m 'The first'")
    _work(workshop, "git tag v2")
    assert _work(workshop, "git tag -l 'v[12]'").result.stdout == "v1\nv2\n"
    _work(workshop, "git tag -d v2")
    _work(workshop, "git branch -m one three")
    _work(workshop, "git branch -D three")
    assert "two" in _work(workshop, "git branch -v").result.stdout


_GO = {
    "go.mod": "module demo\n\ngo 1.19\n",
    "sum.go": "package demo\n\nfunc Sum(a, b int) int { return a + b }\n",
    "sum_test.go": 'package demo\n\nimport "testing"\n\n'
    "func TestSum(t *testing.T) {\n\tif Sum(1, 1) != 2 {\n\t\tt.Fail()\n\t}\n}\n",
}


def test_go_builds_vets_and_tests(workshop: Workshop) -> None:
    workshop.put(_GO)
    _work(workshop, "go build ./...")
    _work(workshop, "go vet ./...")
    assert "ok" in _work(workshop, "go test ./...").result.stdout


def test_go_keeps_what_it_built_where_the_profile_says_how() -> None:
    text = policy_profiles.with_profiles(SHIPPED.encode(), ["go"]).raw.decode()
    with _OwnFolder(text.replace("\n# writes = true\n", "\nwrites = true\n"), HERE, runnable=None) as own:
        own.put(_GO)
        _work(own, "go vet ./...")
        _work(own, "go test ./...")
        assert "(cached)" in _work(own, "go test ./...").result.stdout


def test_git_counts_the_commits_of_authors_without_a_revision_too(workshop: Workshop) -> None:
    commits = len(_work(workshop, "git log --format=%h").result.stdout.splitlines())
    for command in ("git shortlog -sn", "git shortlog -s -n HEAD", "git shortlog -sn -- ."):
        counted = sum(int(line.split()[0]) for line in _work(workshop, command).result.stdout.splitlines())
        assert counted == commits > 0, command
    assert _work(workshop, "git shortlog").result.stdout
    assert _work(workshop, "git shortlog -sn HEAD..HEAD").result.stdout == ""


def test_git_goes_back_to_the_branch_before(workshop: Workshop) -> None:
    _work(workshop, "git switch -q -c topic")
    _work(workshop, "git checkout -q @{-1}")
    assert _work(workshop, "git branch --show-current").result.stdout != "topic\n"
    _work(workshop, "git switch -q '@{-1}'")
    assert _work(workshop, "git branch --show-current").result.stdout == "topic\n"


_MAIN = '#include <stdio.h>\nint main(void) { puts("it ran"); return 0; }\n'


def test_make_has_the_programs_that_recipes_use_every_day(workshop: Workshop) -> None:
    recipes = """\
NAME = $(shell basename src/main.c .c)
check: build/main
\t@./build/main | grep -q ran && echo "$(NAME) passed on $$(date +%Y)"
\t@find src -name '*.c' | sort | xargs -n 1 dirname | sed s/src/found/ | awk '{ print $$1 }'
build/main: src/main.c
\tmkdir -p $(dir $@)
\tcc -O2 -flto -o $@ $<
"""
    workshop.put({"src/main.c": _MAIN, "Makefile": recipes})
    _work(workshop, "make build/main")
    shown = _work(workshop, "make check").result
    assert ("main passed on 20" in shown.stdout, "found" in shown.stdout, shown.stderr) == (True, True, "")


def test_make_has_processes_for_as_many_jobs_as_a_large_machine_has(workshop: Workshop) -> None:
    targets = " ".join(f"job{number}" for number in range(80))
    workshop.put({"Makefile": f"all: {targets}\n{targets}:\n\t@sleep 0.5\n"})
    _work(workshop, "make -j80")


def test_the_policy_for_make_in_the_readme_builds_and_runs_what_it_built() -> None:
    (policy,) = [block.text for block in blocks(README, "toml") if 'allow = ["make"]' in block.text]
    with Workshop(policy, HERE, runnable=None) as own:
        own.put({"main.c": _MAIN, "Makefile": "all: main\ntest: main\n\t./main\nclean:\n\trm -f main\n"})
        assert "it ran" in _work(own, "make -j4 test").result.stdout
        _work(own, "make clean")


def test_make_builds_and_runs_what_it_built(workshop: Workshop) -> None:
    workshop.put({"main.c": _MAIN, "Makefile": "test: main\n\t./main\nmain: main.c\n\tcc -o main main.c\n"})
    assert "it ran" in _work(workshop, "make test").result.stdout


def test_node_runs_tests_and_scripts(workshop: Workshop) -> None:
    scripts = {"test": "node --test check.js", "lint": "node --check check.js"}
    check = "const t = require('node:test'); t('one', () => require('node:assert').equal(1 + 1, 2))\n"
    workshop.put(
        {
            "package.json": json.dumps({"name": "demo", "version": "1.0.0", "scripts": scripts}),
            "check.js": check,
        },
    )
    assert "pass 1" in _work(workshop, "npm test").result.stdout
    _work(workshop, "npm run lint")
    _work(workshop, "node --test check.js")


_MANY_FILES = """\
const fs = require('node:fs/promises')
require('node:test')('many files at once', () =>
  Promise.all(Array.from({ length: 600 }, () => fs.open('check.js').then((file) => file.stat().then(() => file.close())))))
"""


def test_node_runs_scripts_that_move_files_start_tools_and_need_memory(workshop: Workshop) -> None:
    scripts = {"build": "rm -rf dist && mkdir -p dist && cp check.js dist/ && tool", "test": "node --test"}
    workshop.put(
        {
            "package.json": json.dumps({"name": "demo", "version": "1.0.0", "scripts": scripts}),
            "check.js": "",
            "memory.test.js": "new WebAssembly.Memory({ initial: 1 })\n",
            "files.test.js": _MANY_FILES,
            "node_modules/tool/tool.js": "#!/usr/bin/env node\nconsole.log('the tool ran')\n",
            "node_modules/.bin/empty": "",
        },
    )
    tool = workshop.jail / "node_modules/tool/tool.js"
    tool.chmod(0o755)
    (workshop.jail / "node_modules/.bin/tool").symlink_to("../tool/tool.js")
    assert "the tool ran" in _work(workshop, "npm run build").result.stdout
    assert (workshop.jail / "dist/check.js").exists()
    _work(workshop, "npm test")
    _work(workshop, "node --test memory.test.js files.test.js")


def test_python_runs_unit_tests(workshop: Workshop) -> None:
    test = "import unittest\n\n\nclass Sum(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(1 + 1, 2)\n"
    workshop.put(
        {"test_sum.py": test, "more/test_more.py": test, "more/check_sum.py": test, "more/__init__.py": ""}
    )
    for command in (
        "python3 -m unittest -v test_sum",
        "python3 -W error -m unittest test_sum.Sum.test_sum",
        "python3 -m unittest discover -s more",
        "python3 -m unittest discover --start-directory more -t . --pattern 'check_*.py'",
    ):
        ended = _work(workshop, command).result.stderr
        assert "Ran 1 test" in ended
        assert ended.endswith("OK\n")


def _install(names: tuple[str, ...], packages: Path) -> None:
    """Copy what is installed for these tests into a folder of packages."""
    for name in names:
        for file in importlib.metadata.distribution(name).files or ():
            if file.parts[0] == ".." or file.suffix == ".pyc":
                continue
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), packages / file)


def test_the_policy_for_pytest_in_the_readme_runs_what_lies_in_the_projects_own_environment() -> None:
    (policy,) = [block.text for block in blocks(README, "toml") if "PYTHONPATH" in block.text]
    test = "import subprocess, sys\n\n\ndef test_python(tmp_path):\n    subprocess.run([sys.executable, '-c', ''], check=True)\n"
    with _OwnFolder(policy, HERE, runnable=None) as own:
        own.put({"tests/test_python.py": test})
        packages = own.jail / ".venv/lib/python3.11/site-packages"
        _install(("pytest", "pluggy", "iniconfig", "packaging", "pygments"), packages)
        assert "1 passed" in _work(own, "python3 -m pytest -q tests").result.stdout


_RUST = """\
/// Adds.
///
/// ```
/// assert_eq!(demo::sum(1, 1), 2);
/// ```
pub fn sum(a: i32, b: i32) -> i32 {
    a + b
}

#[test]
fn sums() {
    assert_eq!(sum(1, 1), 2);
}
"""


def test_rust_builds_and_tests(workshop: Workshop) -> None:
    package = '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n'
    workshop.put({"Cargo.toml": package, "src/lib.rs": _RUST})
    _work(workshop, "cargo build")
    assert _work(workshop, "cargo test").result.stdout.count("1 passed") == 2, "a test, and one in a document"
    assert "rustc" in _work(workshop, "rustc --version").result.stdout


def test_rust_lints_and_formats(workshop: Workshop) -> None:
    package = '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n'
    workshop.put({"Cargo.toml": package, "src/lib.rs": _RUST})
    for command in ("cargo clippy -- -D warnings", "cargo fmt --check", "cargo fmt", "cargo check"):
        seen = workshop.run(command)
        if (
            "is not installed for the toolchain" in seen.result.stderr
            or "no such command" in seen.result.stderr
        ):
            pytest.skip(seen.result.stderr)
        assert (seen.result.code, seen.result.exit_code, seen.traces) == ("OK", 0, []), seen
