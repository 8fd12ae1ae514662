"""Programs looked up once, along the policy's path, and only where nobody else can put another there."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import programs, shebang
from broker.jail import Jail
from broker.programs import MANY, Program, Programs
from broker.refusal import REASON_CHARACTERS, ExecutorError, StartupError


@pytest.fixture
def jail(tmp_path: Path) -> Iterator[Jail]:
    (tmp_path / "jail/bin").mkdir(parents=True)
    jail = Jail(str(tmp_path / "jail"))
    yield jail
    jail.close()


@pytest.fixture
def bin_folder(safe_folder: Path) -> Path:
    (safe_folder / "bin").mkdir()
    return safe_folder / "bin"


def is_safe(folder: Path) -> bool:
    """Whether nobody else can write it or a folder above it, and we can."""
    above = [place.stat() for place in (folder, *folder.parents)]
    safe = all(status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022 for status in above)
    return safe and os.access(folder, os.W_OK)


@pytest.fixture
def safe_folder() -> Iterator[Path]:
    """A folder of ours with no writable one above it, which pytest's own, in /tmp, is not."""
    bases = (Path.home(), Path(__file__).parent, Path("/var/lib"))
    base = next((base.resolve() for base in bases if base.exists() and is_safe(base.resolve())), None)
    if base is None:
        pytest.skip("no folder here that only this user can write, up to the root")
    mask = os.umask(0o022)
    folder = base / f"programs-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
    os.umask(mask)


def put(path: Path, text: str = '#!/bin/sh\nprintf \'%s|\' "$0" "$@"\n', mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def find(jail: Jail, name: str, *path: Path | str) -> Program:
    return Programs(tuple(map(str, path)), jail, [name]).get(name)


def problem(jail: Jail, name: str, *path: Path | str) -> str:
    known = Programs(tuple(map(str, path)), jail, [name])
    why = known.problem(name)
    assert why is not None
    with pytest.raises(ExecutorError) as caught:
        known.get(name)
    assert name in caught.value.reason
    assert why[:40] in caught.value.reason
    assert len(caught.value.reason) <= REASON_CHARACTERS
    return why


def run(program: Program, typed: str, *arguments: str, **environment: str) -> str:
    """Run it as the broker does: this file, this argv."""
    done = subprocess.run(
        program.argv(typed, arguments),
        executable=program.path,
        env=environment,
        capture_output=True,
        check=True,
        timeout=10,
    )
    return done.stdout.decode()


def test_a_program_is_its_real_file_called_by_the_name_that_was_typed(jail: Jail) -> None:
    program = find(jail, "ls", "/usr/local/bin", "/usr/bin", "/bin")
    real = os.path.realpath(shutil.which("ls", path="/usr/local/bin:/usr/bin:/bin") or "")
    assert program.path == os.fsencode(real)
    assert program.real == real
    assert program.argv("ls", ["-l"]) == ("ls", "-l")
    assert program.executables == (real,)
    assert program.identity.inode == os.stat(real).st_ino
    assert program.path is program.path


def test_folders_that_are_links_of_root_work(jail: Jail) -> None:
    if os.path.islink("/bin"):
        assert find(jail, "sh", "/bin").real.startswith("/usr/bin/")
    assert find(jail, "/bin/sh").found == "/bin/sh"


def test_the_first_executable_along_the_path_is_taken(jail: Jail, safe_folder: Path) -> None:
    put(safe_folder / "one/tool", mode=0o644)
    (safe_folder / "one/other").mkdir()
    (safe_folder / "one/gone").symlink_to("nowhere")
    for name in ("tool", "other", "gone"):
        put(safe_folder / "two" / name)
        put(safe_folder / "three" / name)
        path = (safe_folder / "none", safe_folder / "one", safe_folder / "two", safe_folder / "three")
        assert find(jail, name, *path).found == str(safe_folder / "two" / name)


def test_a_program_that_the_machine_lacks_is_an_error_of_the_call_only(jail: Jail) -> None:
    assert "not installed" in problem(jail, "no-such-program", "/usr/bin")
    known = Programs(("/usr/bin",), jail, ["no-such-program", "ls"])
    assert known.problem("ls") is None
    with pytest.raises(ExecutorError, match="no program of this policy"):
        known.get("cat")


@pytest.mark.parametrize(
    "name", ["bin/ls", "./ls", "../ls", "/usr/bin/../bin/ls", "/usr//bin/ls", "/usr/bin/"]
)
def test_a_name_with_a_slash_must_be_an_absolute_path(jail: Jail, name: str) -> None:
    assert "absolute path" in problem(jail, name, "/usr")


@pytest.mark.parametrize("name", ["", ".", "..", "/usr/bin", "/none/ls", "a\nb", "x" * 5_000])
def test_what_is_no_program_is_no_error_at_start(jail: Jail, name: str) -> None:
    assert Programs(("/usr/bin",), jail, [name]).problem(name)


@pytest.mark.parametrize("folder", ["bin", "", ".", "./x"])
def test_a_path_that_depends_on_the_working_directory_stops_the_start(jail: Jail, folder: str) -> None:
    with pytest.raises(StartupError, match="absolute"):
        Programs(("/usr/bin", folder), jail, [])


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777, 0o2775])
def test_a_program_in_a_folder_that_others_can_write_is_refused(
    jail: Jail, bin_folder: Path, mode: int
) -> None:
    put(bin_folder / "tool")
    bin_folder.chmod(mode)
    assert "can be written by others" in problem(jail, "tool", bin_folder)


def test_a_program_under_a_folder_that_others_can_write_is_refused(jail: Jail, bin_folder: Path) -> None:
    put(bin_folder / "tool")
    bin_folder.parent.chmod(0o777)
    assert "can be written by others" in problem(jail, "tool", bin_folder)


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_program_that_others_can_write_is_refused(jail: Jail, bin_folder: Path, mode: int) -> None:
    put(bin_folder / "tool", mode=mode)
    assert "can be written by others" in problem(jail, "tool", bin_folder)


def test_a_link_through_a_folder_that_others_can_write_is_refused(
    jail: Jail, bin_folder: Path, tmp_path: Path
) -> None:
    put(bin_folder / "real")
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (open_folder / "middle").symlink_to(bin_folder / "real")
    (bin_folder / "tool").symlink_to(open_folder / "middle")
    assert "can be written by others" in problem(jail, "tool", bin_folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", ["tool", "."])
def test_a_program_of_another_user_is_refused(jail: Jail, bin_folder: Path, part: str) -> None:
    put(bin_folder / "tool")
    os.chown(bin_folder / part, 12_345, 0)
    assert "belongs to user 12345" in problem(jail, "tool", bin_folder)


def test_a_program_in_the_jail_is_refused_by_whatever_name(safe_folder: Path) -> None:
    put(safe_folder / "jail/bin/tool")
    (safe_folder / "alias").symlink_to("jail")
    (safe_folder / "bin").mkdir()
    (safe_folder / "bin/tool").symlink_to("../jail/bin/tool")
    put(safe_folder / "bin/script", f"#!{safe_folder}/jail/bin/tool\n")
    jail = Jail(str(safe_folder / "jail"))
    for folder in ("jail/bin", "alias/bin", "bin", "jail/../jail/bin"):
        assert "lies in the jail" in problem(jail, "tool", safe_folder / folder)
    assert "lies in the jail" in problem(jail, "script", safe_folder / "bin")
    assert "of a .venv, README.md tells another way" in problem(jail, "script", safe_folder / "bin")
    assert "lies in the jail" in problem(jail, str(safe_folder / "alias/bin/tool"))
    jail.close()


def test_links_that_go_round_are_refused(jail: Jail, bin_folder: Path) -> None:
    (bin_folder / "loop").symlink_to("loop")
    assert problem(jail, "loop", bin_folder)
    assert problem(jail, str(bin_folder / "loop"))


def test_links_are_followed_as_alternatives_and_version_managers_use_them(
    jail: Jail, bin_folder: Path
) -> None:
    real = put(bin_folder.parent / "versions/3/bin/tool3")
    (bin_folder.parent / "current").symlink_to("versions/3")
    (bin_folder / "tool").symlink_to("../current/../3/./bin/tool3")
    assert find(jail, "tool", bin_folder).real == str(real)


@pytest.mark.parametrize("change", ["rewrite", "replace", "remove", "touch"])
def test_a_program_that_changed_since_is_not_run(jail: Jail, bin_folder: Path, change: str) -> None:
    tool = put(bin_folder / "tool")
    program = find(jail, "tool", bin_folder)
    program.verify()
    if change == "rewrite":
        tool.write_text(tool.read_text().replace("printf", "PRINTF"))
    elif change == "replace":
        put(bin_folder / "new").rename(tool)
    elif change == "remove":
        tool.unlink()
    else:
        os.utime(tool, (1, 1))
    with pytest.raises(ExecutorError, match="changed"):
        program.verify()


def test_an_interpreter_that_changed_since_is_not_run(jail: Jail, bin_folder: Path) -> None:
    interpreter = Path(shutil.copy(os.path.realpath("/bin/sh"), bin_folder / "shell"))
    put(bin_folder / "tool", f"#!{interpreter}\n")
    program = find(jail, "tool", bin_folder)
    program.verify()
    shutil.copy(os.path.realpath("/bin/sh"), interpreter)
    with pytest.raises(ExecutorError, match="changed"):
        program.verify()


@pytest.mark.parametrize(
    "line", ["#!/bin/sh", "#! /bin/sh", "#!\t/bin/sh \t", "#!/bin/sh -e", "#!/bin/sh  -e  "]
)
def test_a_script_runs_as_the_kernel_would_run_it(jail: Jail, bin_folder: Path, line: str) -> None:
    tool = put(bin_folder / "tool", f'{line}\nprintf \'%s|\' "$0" "$@" $-\n')
    program = find(jail, "tool", bin_folder)
    assert program.path == os.fsencode(os.path.realpath("/bin/sh"))
    by_kernel = subprocess.run(
        [tool, "a b", "-c"], capture_output=True, check=True, timeout=10
    ).stdout.decode()
    assert run(program, "tool", "a b", "-c") == by_kernel
    assert program.executables == (str(tool), os.path.realpath("/bin/sh"))


@pytest.mark.parametrize(
    "line", ["#!/usr/bin/env shell", "#!/usr/bin/env -S shell -e", "#!/usr/bin/env -Sshell -e"]
)
def test_env_looks_its_program_up_along_the_policys_path(jail: Jail, bin_folder: Path, line: str) -> None:
    (bin_folder / "shell").symlink_to("/bin/sh")
    tool = put(bin_folder / "tool", f'{line}\nprintf \'%s|\' "$0" "$@" $-\n')
    program = find(jail, "tool", bin_folder)
    by_kernel = subprocess.run(
        [tool, "a"], capture_output=True, check=True, timeout=10, env={"PATH": str(bin_folder)}
    ).stdout.decode()
    assert run(program, "tool", "a") == by_kernel
    assert program.argv0 == "shell"
    assert os.path.realpath("/usr/bin/env") in program.executables


def test_a_script_that_a_script_interprets_runs_as_the_kernel_would_run_it(
    jail: Jail, bin_folder: Path
) -> None:
    put(bin_folder / "inner", '#!/bin/sh -e\nprintf \'%s|\' "$0" "$@" $-\n')
    tool = put(bin_folder / "tool", f"#!{bin_folder}/inner one two\n")
    by_kernel = subprocess.run([tool, "a"], capture_output=True, check=True, timeout=10).stdout.decode()
    assert run(find(jail, "tool", bin_folder), "tool", "a") == by_kernel


@pytest.mark.parametrize(
    "head",
    [
        "#!\n",
        "#! \n",
        "#!sh\n",
        "#!./sh\n",
        "#!/bin/none\n",
        "#!/bin/sh\r\n",
        "#!/usr/bin/env\n",
        "#!/usr/bin/env -i sh\n",
        "#!/usr/bin/env -S -i sh\n",
        "#!/usr/bin/env X=1 sh\n",
        "#!/usr/bin/env -S X=1 sh\n",
        "#!/usr/bin/env -S 'sh'\n",
        "#!/usr/bin/env -S sh $X\n",
        "#!/usr/bin/env -S\n",
        "#!/usr/bin/env sh -e\n",
        "#!/usr/bin/env no-such-program\n",
        "#!/usr/bin/env ./sh\n",
        "#!/bin/" + "x" * 300,
    ],
)
def test_a_first_line_that_cannot_be_followed_is_refused(jail: Jail, bin_folder: Path, head: str) -> None:
    put(bin_folder / "tool", head)
    assert problem(jail, "tool", bin_folder, "/usr/bin")


def test_an_assignment_for_env_is_not_taken_for_a_program(jail: Jail, bin_folder: Path) -> None:
    (bin_folder / "X=1").symlink_to("/bin/sh")
    put(bin_folder / "tool", "#!/usr/bin/env X=1\n")
    assert "env" in problem(jail, "tool", bin_folder)


def test_a_script_that_interprets_itself_is_refused(jail: Jail, bin_folder: Path) -> None:
    put(bin_folder / "tool", f"#!{bin_folder}/tool\n")
    assert "script" in problem(jail, "tool", bin_folder)


def test_a_virtual_environments_python_keeps_its_environment(jail: Jail, bin_folder: Path) -> None:
    real = os.path.realpath("/usr/bin/python3")
    if not os.path.exists(real):
        pytest.skip("no python3 of the system")
    (bin_folder / "python").symlink_to(real)
    (bin_folder.parent / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\n")
    tool = put(bin_folder / "tool", f"#!{bin_folder}/python\nimport sys; print(sys.prefix)\n")
    program = find(jail, str(tool))
    assert program.path == os.fsencode(real)
    assert run(program, str(tool)) == f"{bin_folder.parent}\n"


def test_a_first_line_is_read_no_further_than_the_kernel_reads(tmp_path: Path) -> None:
    fits = "#!/bin/" + "x" * (shebang.HEAD_BYTES - 9) + "\n"
    assert shebang.read(str(put(tmp_path / "fits", fits)))
    with pytest.raises(shebang.ShebangError):
        shebang.read(str(put(tmp_path / "over", "#!/bin/x" + fits[2:])))
    assert shebang.read(str(put(tmp_path / "binary", "\x7fELF"))) is None
    assert shebang.read(str(put(tmp_path / "empty", ""))) is None


def test_a_thousand_names_that_the_machine_lacks_cost_no_system_call_each(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, asked = os.stat, []
    monkeypatch.setattr(programs.os, "stat", lambda *a, **k: asked.append(a) or stat(*a, **k))
    Programs(("/usr/bin",), jail, [f"no-such-{number}" for number in range(1_000)])
    assert asked == []


def test_lazily_a_name_is_looked_up_when_it_is_asked_for(jail: Jail, bin_folder: Path) -> None:
    put(bin_folder / "tool")
    known = Programs((str(bin_folder),), jail, ["tool"], lazily=True)
    first = known.get("tool")
    assert known.get("tool") is first
    eager = Programs((str(bin_folder),), jail, ["tool"])
    (bin_folder / "tool").unlink()
    with pytest.raises(ExecutorError, match="changed"):
        eager.get("tool").verify()


def test_among_many_names_each_is_found_as_among_few(jail: Jail, bin_folder: Path) -> None:
    put(bin_folder / "tool")
    many = ["tool", *(f"absent-{number}" for number in range(MANY))]
    known = Programs((str(bin_folder),), jail, many)
    assert known.get("tool") == Programs((str(bin_folder),), jail, ["tool"]).get("tool")
    assert "is not installed" in str(known.problem("absent-1"))
