"""The ready-made profiles do what they say: each one's everyday commands work, and leave no trace outside the jail."""

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from broker import policy_profiles
from tests.adversarial.cage import Seen
from tests.adversarial.identity import HERE
from tests.adversarial.policies import SHIPPED, quoted
from tests.adversarial.programs_on_path import SYSTEM_PATH
from tests.contract.workshop import Workshop

PROFILES = ["git-write", "go", "make", "node", "python", "rust"]
_PERSON = "[user]\nname = A Person\nemail = person@example.org\n"


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
    """The shipped policy with every profile, and for Rust with what a toolchain of rustup needs besides: its folder, and the
    linker that it brings.
    """
    text = policy_profiles.with_profiles(SHIPPED.encode(), PROFILES).raw.decode()
    toolchain = _toolchain()
    if toolchain is None or toolchain == "/usr":
        return text
    path = quoted((f"{toolchain}/bin", *SYSTEM_PATH))
    linkers = [f"{toolchain}/lib/rustlib/*/bin/{name}" for name in ("gcc-ld/ld.lld", "rust-lld")]
    text = text.replace("\n[rules.cargo]", f'\n[rules.cargo]\nread = ["{toolchain}"]')
    text = text.replace('\n  "rustc", "cargo",', f'\n  {quoted(linkers)[1:-1]}, "rustc", "cargo",')
    return f"{text}\n[environment]\npath = {path}\n"


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
    _work(workshop, "git stash")
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


def test_make_builds_and_runs_what_it_built(workshop: Workshop) -> None:
    main = '#include <stdio.h>\nint main(void) { puts("it ran"); return 0; }\n'
    workshop.put({"main.c": main, "Makefile": "test: main\n\t./main\nmain: main.c\n\tcc -o main main.c\n"})
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


def test_rust_builds_and_tests(workshop: Workshop) -> None:
    package = '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n'
    library = "pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[test]\nfn sums() {\n    assert_eq!(sum(1, 1), 2);\n}\n"
    workshop.put({"Cargo.toml": package, "src/lib.rs": library})
    _work(workshop, "cargo build --offline")
    assert "1 passed" in _work(workshop, "cargo test --offline --lib").result.stdout
