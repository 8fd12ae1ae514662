"""The cage sees an escape when there is one: a program that nobody confines leaves every trace that the other tests look for."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversarial import cases, evidence
from tests.adversarial.cage import Cage
from tests.adversarial.identity import IDENTITIES
from tests.adversarial.programs_on_path import POLICY_PATH

_ESCAPES = {
    "the canary is in the output": "print(open(f'{outside}/secret.txt').read())",
    "outside: pwned": "open(f'{outside}/pwned', 'w').close()",
    "outside: secret.txt": "os.chmod(f'{outside}/secret.txt', 0o600)",
    "a program printed its mark": "subprocess.run([f'{outside}/program'])",
    "process": "subprocess.Popen(['/bin/sleep', '20'], start_new_session=True, cwd=f'{outside}/..')",
}
_WATCHED_ESCAPES = {
    "opened outside": "open(f'{outside}/secret.txt').close()",
    "read outside": "open(f'{outside}/folder/kept.txt').read()",
    "ran /usr/bin/env": "subprocess.run(['/usr/bin/env'])",
    "wrote": "subprocess.run(['/bin/sh', '-c', f'echo x > {outside}/../state/other'])",
    "reached the listener": "socket.create_connection(('attacker.invalid', 12345)).close()",
    "reached the listener at ('127.0.0.1', 53)": "socket.getaddrinfo('other.invalid', 80)",
    "reached the listener at ('127.0.0.1', 12345)": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 12345))",
}
_IMPORTS = "import contextlib, os, socket, subprocess, sys; outside = sys.argv[1]"


@pytest.fixture
def cage() -> Iterator[Cage]:
    made = Cage("", IDENTITIES[-1])
    yield made
    shutil.rmtree(made.base)


def _traces(cage: Cage, escape: str) -> list[str]:
    body = f"{_IMPORTS}\nwith contextlib.suppress(OSError):\n    {escape}\n"
    return cage.traces_of(["/usr/bin/python3", "-I", "-c", body, str(cage.outside)])


def test_a_program_that_does_nothing_leaves_no_trace(cage: Cage) -> None:
    assert _traces(cage, "pass") == []


@pytest.mark.parametrize(("trace", "escape"), _ESCAPES.items(), ids=_ESCAPES)
def test_an_escape_leaves_a_trace(cage: Cage, trace: str, escape: str) -> None:
    assert any(found.startswith(trace) for found in _traces(cage, escape))


_needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's watch needs root")


@_needs_root
@pytest.mark.parametrize(("trace", "escape"), _WATCHED_ESCAPES.items(), ids=_WATCHED_ESCAPES)
def test_the_kernel_reports_an_escape(cage: Cage, trace: str, escape: str) -> None:
    traces = _traces(cage, escape)
    if not cage.watched:
        pytest.skip(f"no namespaces or no fanotify here: {cage.facts}")
    assert any(found.startswith(trace) for found in traces), traces


@_needs_root
def test_the_program_that_plays_those_that_are_missing_tries_every_escape(cage: Cage) -> None:
    cage.add_standins(["played"])
    traces = cage.traces_of(["/usr/bin/python3", "-I", str(cage.base / "standins" / "played")], cage.jail)
    expected = ["the canary", "outside: pwned", "outside: secret.txt", "a program printed", "process"]
    if cage.watched:
        expected += ["opened outside", "ran "]
    assert [trace for trace in expected if not any(found.startswith(trace) for found in traces)] == [], traces
    assert sum(found.startswith("reached the listener") for found in traces) >= 3 or not cage.watched, traces


_SEEN_TO_ESCAPE = [
    "gtfo-0004",
    "gtfo-0011",
    "gtfo-0020",
    "gtfo-0062",
    "gtfo-0071",
    "gtfo-0128",
    "gtfo-0132",
    "gtfo-0134",
    "gtfo-0140",
    "gtfo-0188",
    "gtfo-0214",
    "cve-0036",
    "cve-0063",
    "cve-0079",
    "cve-0082",
    "cve-0089",
    "cve-0229",
    "cve-0303",
    "cve-0366",
    "cve-0480",
    "cve-0503",
    "cve-0587",
]


@_needs_root
@pytest.mark.parametrize(
    "case", [case for case in cases.HOSTILE if case.id in _SEEN_TO_ESCAPE], ids=lambda case: case.id
)
def test_a_hostile_command_leaves_a_trace_when_nothing_confines_it(cage: Cage, case: cases.Case) -> None:
    assert case.argv
    program = shutil.which(case.argv[0], path=POLICY_PATH)
    assert program
    cage.prepare(lambda: cases.lay_out(case.files, cage.jail, cage.outside, cage.mark))
    arguments = [cases.placed(word, cage.jail, cage.outside) for word in case.argv[1:]]
    assert cage.traces_of([program, *arguments], cage.jail / (case.cwd or "."))


_DISORDERS = {
    "a file with other content": "(jail / 'a.txt').write_text('other')",
    "a file of the same size and time": "t = (jail / 'a.txt').stat(); (jail / 'a.txt').write_text('ALPHA\\nbeta\\ngamma\\n'); "
    "os.utime(jail / 'a.txt', ns=(t.st_atime_ns, t.st_mtime_ns))",
    "another mode": "(jail / 'src').chmod(0); (jail / 'a.txt').chmod(0o4777)",
    "another owner": "os.chown(jail / 'src', 54321, 54321)",
    "an attribute of a file": "os.setxattr(jail / 'a.txt', 'user.x', b'1')",
    "an attribute of a folder": "os.setxattr(jail / 'src', 'user.x', b'1')",
    "a folder that is gone": "shutil.rmtree(jail / '.git')",
    "a folder that moved": "(jail / 'src').rename(jail / 'moved')",
    "a folder that is a link to outside": "shutil.rmtree(jail / 'src'); (jail / 'src').symlink_to('../outside')",
    "a folder that is a file": "shutil.rmtree(jail / 'src'); (jail / 'src').write_text('x')",
    "a file that is a folder": "(jail / 'a.txt').unlink(); (jail / 'a.txt' / 'b').mkdir(parents=True)",
    "a file that is a link to outside": "(jail / 'a.txt').unlink(); (jail / 'a.txt').symlink_to('../outside/secret.txt')",
    "a second name of a file": "os.link(jail / 'a.txt', jail / 'c.txt')",
    "a fifo": "os.mkfifo(jail / 'fifo')",
    "a tree that is shut": "(jail / 'x/y').mkdir(parents=True); (jail / 'x/y').chmod(0); (jail / 'x').chmod(0)",
    "nothing at all": "pass",
}


@_needs_root
@pytest.mark.parametrize("disorder", _DISORDERS.values(), ids=_DISORDERS)
def test_a_jail_is_made_what_it_was_and_outside_stays_as_it_is(cage: Cage, disorder: str) -> None:
    def state(folder: Path) -> evidence.Fingerprint:
        return evidence.lasting(evidence.fingerprint(folder))

    jail, outside = state(cage.jail), evidence.fingerprint(cage.outside)
    exec(disorder, {"jail": cage.jail, "os": os, "shutil": shutil})
    cage.restore()
    assert evidence.differences(jail, state(cage.jail)) == []
    assert evidence.differences(outside, evidence.fingerprint(cage.outside)) == []
