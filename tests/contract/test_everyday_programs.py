"""Everyday programs do their work under profiles that suit them: as little as they need, and no trace outside the jail.

One policy holds a rule for each of them; which files a compiler or a language starts is asked of it, since that differs from
machine to machine.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.adversarial.cage import Seen
from tests.adversarial.identity import IDENTITIES, Identity, NoInterpreterError, interpreter_for
from tests.adversarial.policies import quoted
from tests.adversarial.programs_on_path import POLICY_PATH, SYSTEM_PATH
from tests.contract.workshop import Workshop


class Profile(NamedTuple):
    """One rule: the program's name, and what it may do besides reading the jail."""

    name: str
    rights: str = ""
    may_run: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The rule as it stands in a policy file."""
        return f'[rules.{self.name}]\narguments = "any"\nmay_run = {quoted(self.may_run)}\n{self.rights}\n'


def _shown(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def _compiler_parts() -> tuple[str, ...]:
    """Return the programs that gcc starts, as it says itself: cc1, the assembler, and the two steps of the linker."""
    names = [_shown("gcc", f"-print-prog-name={part}") for part in ("cc1", "collect2", "as", "ld")]
    return tuple(os.path.realpath(name) if "/" in name else name for name in names)


@functools.cache
def _cargo_folder() -> str | None:
    """Return the folder of the real cargo, past rustup's stand-in for it."""
    if shutil.which("rustc") is None or shutil.which("cargo") is None:
        return None
    folder = os.path.join(_shown("rustc", "--print", "sysroot"), "bin")
    return (
        folder
        if os.path.exists(os.path.join(folder, "cargo"))
        else os.path.dirname(shutil.which("cargo") or "")
    )


def _git_environment() -> str:
    """Whose commits they are; and that no configuration of the machine is looked for, which a command may not read."""
    names = {"GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        names |= {f"GIT_{role}_{part}": value for part, value in _PERSON.items()}
    return "environment = { " + ", ".join(f'{name} = "{value}"' for name, value in names.items()) + " }"


_PERSON = {"NAME": "A Person", "EMAIL": "person@example.org"}


def _pytest_profile(identity: Identity) -> Profile:
    """The tests' own pytest: by the interpreter of its virtual environment, or by the system's for who may not read that."""
    interpreter = interpreter_for(identity)
    if interpreter == sys.executable:
        read = f"read = {quoted(sorted({sys.prefix, sys.base_prefix, sys.exec_prefix}))}"
        return Profile("python3", f"writes = true\ntemporary = true\n{read}")
    packages = sysconfig.get_path("purelib")
    variable = f'environment = {{ PYTHONPATH = "{packages}" }}'
    return Profile("python3", f'writes = true\ntemporary = true\nread = ["{packages}"]\n{variable}')


def _profiles(identity: Identity) -> Iterator[Profile]:
    yield Profile("jq")
    yield Profile("rg")
    yield Profile("node")
    yield Profile("git", f"writes = true\n{_git_environment()}", ("git",))
    yield Profile("npm", "temporary = true", ("node", "sh"))
    yield Profile("sqlite3", "writes = true")
    yield Profile("mv", "writes = true")
    yield Profile("ln", "writes = true")
    yield Profile("sort", "temporary = true\n[rules.sort.limits]\nstdout_bytes = 4_000_000")
    yield Profile("tar", "writes = true", ("gzip", "sh"))
    yield _pytest_profile(identity)
    if shutil.which("gcc", path=POLICY_PATH):
        yield Profile("gcc", "writes = true\ntemporary = true", _compiler_parts())
        yield Profile("make", "writes = true\ntemporary = true", ("gcc", "sh", *_compiler_parts()))
    if shutil.which("go", path=POLICY_PATH):
        tools = _shown("go", "env", "GOTOOLDIR")
        parts = tuple(str(Path(tools) / part) for part in ("asm", "buildid", "compile", "link"))
        offline = '{ GOTOOLCHAIN = "local", GOFLAGS = "-buildvcs=false", GOPROXY = "off", CGO_ENABLED = "0" }'
        yield Profile("go", f"writes = true\ntemporary = true\nenvironment = {offline}", parts)
    if (folder := _cargo_folder()) is not None:
        read = f'read = ["{os.path.dirname(folder)}"]'
        linkers = tuple(
            str(part) for part in Path(folder).parent.glob("lib/rustlib/*/bin/**/*ld*") if part.is_file()
        )
        parts = ("rustc", "cc", *_compiler_parts(), *linkers)
        yield Profile("cargo", f"writes = true\ntemporary = true\n{read}", parts)


def _path(identity: Identity) -> tuple[str, ...]:
    """Return where the programs are: those of the tests' environment and a toolchain's before the system's."""
    own = os.path.dirname(sys.executable) if interpreter_for(identity) == sys.executable else None
    return tuple(filter(None, (own, _cargo_folder(), *SYSTEM_PATH)))


def _policy(identity: Identity, profiles: list[Profile]) -> str:
    return (
        f"[commands]\nallow = {quoted(profile.name for profile in profiles)}\n"
        f"[environment]\npath = {quoted(_path(identity))}\n"
        '[limits]\ntimeout_s = 50\n[audit]\ndurability = "os"\n'
        + "".join(profile.rule for profile in profiles)
    )


@pytest.fixture(scope="module", params=IDENTITIES, ids=lambda identity: identity.name)
def shared(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    identity: Identity = request.param
    try:
        profiles = list(_profiles(identity))
    except NoInterpreterError as problem:
        pytest.skip(str(problem))
    runnable = [name for profile in profiles for name in (profile.name, *profile.may_run)]
    path = ":".join(_path(identity))
    with Workshop(_policy(identity, profiles), identity, runnable=tuple(runnable), path=path) as cage:
        yield cage


def _work(workshop: Workshop, command: str, program: str | None = None) -> Seen:
    name = program or command.split(maxsplit=1)[0]
    if shutil.which(name, path=POLICY_PATH) is None and name not in workshop.client.programs:
        pytest.skip(f"{name} is not installed")
    # a virtual environment that the product rightly refuses
    return workshop.work(command, unless="can be written by others", programs=(name,))


def test_git_shows_history_state_and_changes(workshop: Workshop) -> None:
    assert "Begin the project" in _work(workshop, "git log --stat").result.stdout
    assert _work(workshop, "git status --short").result.stdout == " M README.md\n"
    assert "+one more line" in _work(workshop, "git diff").result.stdout
    assert "v1.0" in _work(workshop, "git describe --tags").result.stdout


def test_git_commits(workshop: Workshop) -> None:
    _work(workshop, "git add README.md")
    _work(workshop, "git commit --quiet --message 'Say more'")
    assert _work(workshop, "git log --format=%s -1").result.stdout == "Say more\n"
    assert _work(workshop, "git status --short").result.stdout == ""
    _work(workshop, "git switch --quiet feature")


def test_pytest_runs_tests_that_use_a_temporary_folder(workshop: Workshop) -> None:
    test = "def test_sum(tmp_path):\n    (tmp_path / 'f').write_text('2')\n    assert 1 + 1 == 2\n"
    workshop.put({"test/test_sum.py": test})
    assert "1 passed" in _work(workshop, "python3 -m pytest -q -p no:xdist test").result.stdout


def test_node_runs_a_script(workshop: Workshop) -> None:
    script = "console.log(JSON.parse(require('fs').readFileSync('data.json')).sizes.length)"
    workshop.put({"main.js": script})
    assert _work(workshop, "node main.js").result.stdout == "2\n"


def test_npm_runs_a_test_script(workshop: Workshop) -> None:
    package = {"name": "demo", "version": "1.0.0", "scripts": {"test": "node --test check.js"}}
    check = "const t = require('node:test'); t('one', () => require('node:assert').equal(1 + 1, 2))"
    workshop.put({"package.json": json.dumps(package), "check.js": check})
    assert "pass 1" in _work(workshop, "npm test").result.stdout


def test_make_builds_with_gcc(workshop: Workshop) -> None:
    main = '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n'
    workshop.put({"main.c": main, "Makefile": "main: main.c\n\tgcc -O2 -Wall -o main main.c\n"})
    _work(workshop, "make")
    assert _shown(str(workshop.jail / "main")) == "built"


def test_go_builds(workshop: Workshop) -> None:
    main = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("built") }\n'
    workshop.put({"go.mod": "module demo\n\ngo 1.19\n", "main.go": main})
    _work(workshop, "go build -o main .")
    assert _shown(str(workshop.jail / "main")) == "built"


def test_cargo_builds_without_the_network(workshop: Workshop) -> None:
    folder = _cargo_folder()
    if folder is None:
        pytest.skip("cargo is not installed")
    if workshop.identity.user is not None and folder.startswith("/root/"):
        pytest.skip("this cargo lies in root's home, which an ordinary user may not read")
    package = '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n'
    workshop.put({"Cargo.toml": package, "src/main.rs": 'fn main() { println!("built"); }\n'})
    _work(workshop, "cargo build --offline", "cargo")
    assert _shown(str(workshop.jail / "target/debug/demo")) == "built"


def test_files_are_moved_and_linked_from_folder_to_folder(workshop: Workshop) -> None:
    _work(workshop, "mv --verbose src/app.py app.py")
    _work(workshop, "ln README.md src/second.md")
    assert (workshop.jail / "src/second.md").samefile(workshop.jail / "README.md")
    seen = workshop.run("ln ../outside/secret.txt second.txt", programs=("ln",))
    assert (seen.result.exit_code, seen.traces) == (1, []), seen


def test_sqlite3_makes_and_asks_a_database(workshop: Workshop) -> None:
    _work(workshop, "sqlite3 data.db 'create table t (n); insert into t values (1), (2)'")
    assert _work(workshop, "sqlite3 data.db 'select sum(n) from t'").result.stdout == "3\n"


def test_jq_reads_a_document(workshop: Workshop) -> None:
    assert _work(workshop, "jq -c .sizes data.json").result.stdout == "[1,2]\n"


def test_tar_packs_and_unpacks(workshop: Workshop) -> None:
    _work(workshop, "tar -czf all.tar.gz README.md src")
    assert "src/app.py\n" in _work(workshop, "tar -tzf all.tar.gz").result.stdout
    _work(workshop, "tar -xzf all.tar.gz --transform s,^,copy/,")
    assert (workshop.jail / "copy/src/app.py").exists()


def test_sort_sorts_a_file_larger_than_its_buffer(workshop: Workshop) -> None:
    lines = [f"{(number * 7919) % 100_003:06d} padding to make the line longer\n" for number in range(50_000)]
    workshop.put({"large.txt": "".join(lines)})
    assert _work(workshop, "sort --buffer-size=256K large.txt").result.stdout == "".join(sorted(lines))


def test_rg_searches(workshop: Workshop) -> None:
    assert _work(workshop, "rg --line-number alpha data.csv").result.stdout == "2:alpha,1\n"
