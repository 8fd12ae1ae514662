"""The cage sees an escape when there is one: a program that nobody confines leaves every trace that the other tests look for."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.adversarial.cage import Cage
from tests.adversarial.identity import IDENTITIES

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


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's watch needs root")
@pytest.mark.parametrize(("trace", "escape"), _WATCHED_ESCAPES.items(), ids=_WATCHED_ESCAPES)
def test_the_kernel_reports_an_escape(cage: Cage, trace: str, escape: str) -> None:
    traces = _traces(cage, escape)
    if not cage.watched:
        pytest.skip(f"no namespaces or no fanotify here: {cage.facts}")
    assert any(found.startswith(trace) for found in traces), traces
