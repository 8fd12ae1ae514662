"""The examples of docs/deployment.md are tried, each as far as the machine that runs the tests has what it takes."""

import configparser
import getpass
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker import audit_mirror
from tests.contract.ssh_server import SshServer, why_not
from tests.support.command import COMMAND, run_cli
from tests.support.documents import ROOT, VARIABLES_IN_CODE, Block, blocks
from tests.support.opened_trail import a_call, open_trail, result
from tests.support.place import Place
from tests.support.waiting import eventually

DOCUMENT = ROOT / "docs" / "deployment.md"
BROKER = str(Path(COMMAND).with_name("hardened-terminal-broker"))
BOUND_S = 30.0
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"
NOTHING_HERE = {"HTMCP_POLICY_FILE": None, "HTMCP_JAIL_ROOT": None, "HTMCP_AUDIT_LOG": None}


def shown(language: str, beginning: str) -> Block:
    """Return the one block of the document that begins so."""
    (block,) = [block for block in blocks(DOCUMENT, language) if block.text.startswith(beginning)]
    return block


def installed(*names: str) -> dict[str, str]:
    """Return where the programs are, or skip the test."""
    places = {name: shutil.which(name, path=SBIN) for name in names}
    missing = [name for name, place in places.items() if place is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    return {name: place for name, place in places.items() if place is not None}


@contextmanager
def running(argv: list[str], log: Path, **environment: str) -> Iterator[None]:
    """Keep a process alive meanwhile."""
    with log.open("w") as stderr, subprocess.Popen(argv, stderr=stderr, env=environment or None) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(BOUND_S)


UNIT = ("[Unit]\nCollectMode", "[Socket]")


def test_systemd_reads_the_units_without_a_complaint(tmp_path: Path) -> None:
    analyze = installed("systemd-analyze")["systemd-analyze"]
    service, listening = (shown("ini", beginning).text for beginning in UNIT)
    program = re.search(r"(?m)^ExecStart=(\S+)", service)
    assert program
    (tmp_path / "htmcp@.service").write_text(service.replace(program[1], BROKER))
    (tmp_path / "htmcp.socket").write_text(listening)
    environment = {"PATH": SBIN, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    units = [str(tmp_path / name) for name in ("htmcp@.service", "htmcp.socket")]
    ended = subprocess.run(
        [analyze, "--user", "verify", *units],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_each_connection_to_the_socket_gets_a_broker_of_its_own(place: Place) -> None:
    activate = installed("systemd-socket-activate", "socat")["systemd-socket-activate"]
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(shown("ini", UNIT[0]).text)
    service = unit["Service"]
    assert service["StandardInput"] == service["StandardOutput"] == "socket"
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == Path(BROKER).name
    (place.folder / "home").mkdir()
    path = place.folder / "htmcp.sock"
    passed = [f"--setenv={name}={value}" for name, value in place.environment().items()]
    serve = [activate, "--accept", "--inetd", f"--listen={path}", *passed, BROKER, *arguments]
    with running(serve, place.folder / "log", PATH=SBIN):
        eventually(path.exists, "the socket is there")
        settings = NOTHING_HERE | {"HTMCP_BROKER": f"socat - UNIX-CONNECT:{path}"}
        for word in ("first", "second"):
            ended = run_cli(place, "run", f"echo {word}", **settings)
            assert (ended.status, ended.stdout) == (0, f"{word}\n"), ended
    starts = [json.loads(line) for line in place.trail.read_text().splitlines()]
    assert len({record["session"] for record in starts}) == 2


@pytest.mark.skipif(why_not() is not None, reason=f"no ssh server: {why_not()}")
def test_the_line_of_authorized_keys_makes_a_key_good_for_a_broker_alone(place: Place) -> None:
    forced = re.search(r'(?m)^restrict,command="[^"]+"', DOCUMENT.read_text(encoding="utf-8"))
    assert forced
    other = place.folder / "other"
    other.mkdir()
    line = forced[0].replace("/srv/project", str(other)).replace("/etc/htmcp/policy.toml", str(place.policy))
    server = SshServer(place)
    key = server.folder / "user_key.pub"
    key.write_text(f"{line.replace('hardened-terminal-broker', BROKER)} {key.read_text()}")
    with server:
        for asked in (f"{BROKER} --stdio", "cat /etc/passwd"):
            way = server.broker_command.replace(f"{BROKER} --stdio", asked)
            ended = run_cli(place, "run", "pwd", **NOTHING_HERE | {"HTMCP_BROKER": way})
            assert (ended.status, ended.stdout) == (0, f"{other}\n"), ended


@pytest.mark.skipif(why_not() is not None, reason=f"no ssh server: {why_not()}")
def test_the_whole_server_can_be_started_over_ssh(place: Place) -> None:
    (place.folder / "home").mkdir()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with SshServer(place) as server:
        way = shlex.split(server.broker_command.partition(f"{getpass.getuser()}@")[0])
        ended = subprocess.run(
            [*way, "-T", f"{getpass.getuser()}@127.0.0.1", COMMAND],
            input=json.dumps(message).encode() + b"\n",
            capture_output=True,
            timeout=BOUND_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert "serverInfo" in json.loads(ended.stdout)["result"]


def test_a_record_of_a_long_command_comes_whole_through_rsyslog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = installed("rsyslogd")["rsyslogd"]
    path, out, configuration = tmp_path / "log.sock", tmp_path / "out", tmp_path / "rsyslog.conf"
    configuration.write_text(
        shown("text", "global(").text
        + f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{path}")\n'
        'template(name="plain" type="string" string="%msg%\\n")\n'
        f'authpriv.info action(type="omfile" file="{out}" template="plain")\n'
    )
    monkeypatch.setattr(audit_mirror, "SYSLOG_SOCKET", str(path))
    trail = tmp_path / "audit.jsonl"
    serve = [daemon, "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")]
    with running(serve, tmp_path / "log", PATH=SBIN):
        eventually(path.exists, "rsyslogd listens")
        opened = open_trail(trail, mirror="syslog")
        call = a_call("echo " + "word " * 4000)
        opened.attempt(call)
        opened.outcome(call, result())
        opened.close()
        eventually(lambda: out.exists() and out.read_text().count("\n") == 2, "both records have arrived")
    records = trail.read_text()
    assert max(map(len, records.splitlines())) > 8192
    assert [line.strip() for line in out.read_text().splitlines()] == records.splitlines()


def test_the_cluster_would_take_the_manifest() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load(shown("yaml", "apiVersion").text)
    validate.validate(manifest, desired_version="1.30", strict=True)
    pod = manifest["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in pod["containers"]}
    runs_as = containers["htmcp"]["securityContext"]["runAsGroup"]
    assert runs_as == pod["securityContext"]["fsGroup"], "a folder of another group is no place for a trail"
    mounts = {mount["mountPath"] for mount in containers["htmcp"]["volumeMounts"]}
    environment = dict(pair.split("=") for pair in image_environment())
    assert environment["HTMCP_JAIL_ROOT"] in mounts
    assert str(Path(environment["HTMCP_AUDIT_LOG"]).parent) in mounts


def image_environment() -> list[str]:
    text = shown("dockerfile", "FROM").text
    return [pair for line in re.findall(r"(?m)^ENV (.*)$", text) for pair in line.split()]


def test_the_image_is_made_of_what_is_here() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = shown("dockerfile", "FROM").text
    version = re.search(r"(?m)^FROM python:([\d.]+)-", text)
    assert version
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]
    for name in re.findall(r"(?m)^COPY (\S+)", text) + re.findall(
        r"-r /opt/hardened-terminal-mcp/(\S+)", text
    ):
        assert (ROOT / name).exists(), name
    assert {pair.partition("=")[0] for pair in image_environment()} <= VARIABLES_IN_CODE
    (entry,) = re.findall(r"(?m)^ENTRYPOINT (.*)$", text)
    assert json.loads(entry)[0] in project["scripts"]
    assert re.search(r"(?m)^USER runner$", text)


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="these tests run in no virtual environment")
@pytest.mark.parametrize("arguments", [("run", "true"), ()])
def test_an_installation_that_an_isolated_interpreter_does_not_find_is_refused_in_one_line(
    place: Place, arguments: tuple[str, ...]
) -> None:
    (place.folder / "home").mkdir()
    only_here = os.pathsep.join([str(ROOT), *site.getsitepackages()])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    start = "from broker.main import hardened_terminal_mcp as main; main()"
    ended = subprocess.run(
        [f"{sys.base_prefix}/bin/{version}", "-c", start, *arguments],
        env=place.environment(PYTHONPATH=only_here),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (78, "", 1), ended.stderr
    assert "virtual environment" in ended.stderr
