"""A real ssh server on loopback, and the command that reaches a broker through it.

Always true: keys, configuration and port are the test's own; the server listens on 127.0.0.1 only, takes one key, and ends
with the test. Nothing of the user's ssh configuration is read, on either side.
"""

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

from tests.support.command import COMMAND
from tests.support.place import Place
from tests.support.waiting import eventually

_CONFIGURATION = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
PermitRootLogin yes
LogLevel ERROR
SetEnv {variables}
"""
_NEEDED = ("ssh", "ssh-keygen", "sshd")
_SBIN = "/usr/sbin:/sbin"
_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""Compiled into sshd: an empty folder that it needs when it is started by root."""
BOUND_S = 15.0


def why_not() -> str | None:
    """Return why there can be no server here, or None."""
    missing = [name for name in _NEEDED if _program(name) is None]
    return f"{', '.join(missing)} not installed" if missing else None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}")


class SshServer:
    """sshd for one place: whoever logs in gets the place's environment. `with` starts it and ends it."""

    def __init__(self, place: Place) -> None:
        self.folder = place.folder / "ssh"
        self.folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        variables = " ".join(
            f'"{name}={value}"' for name, value in place.environment().items() if name != "HOME"
        )
        text = _CONFIGURATION.format(port=self.port, folder=self.folder, variables=variables)
        (self.folder / "sshd_config").write_text(text)
        for key in ("host_key", "user_key"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(made, check=True, timeout=BOUND_S)

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        log = (self.folder / "log").open("w")
        argv = [_program("sshd") or "", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with log:
            self._process = subprocess.Popen(argv, stderr=log)
        eventually(self._listens, f"sshd listens: {(self.folder / 'log').read_text()}", bound_s=BOUND_S)
        return self

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait(BOUND_S)

    @property
    def broker_command(self) -> str:
        """The value of HTMCP_BROKER that leads to a broker beyond this server."""
        options = (
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
        )
        words = ["ssh", "-F", "none", "-i", str(self.folder / "user_key"), "-p", str(self.port)]
        words += [word for option in options for word in ("-o", option)]
        broker = Path(COMMAND).with_name("hardened-terminal-broker")
        return " ".join([*words, f"{getpass.getuser()}@127.0.0.1", str(broker), "--stdio"])
