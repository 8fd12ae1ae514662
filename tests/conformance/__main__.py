"""The official conformance suite, run against the installed command: `python -m tests.conformance`.

Installs Node 22 and the suite by npm into a cache folder. Where that cannot be done it says so and ends with 0: what cannot be
had is no fault of the server. Ends with 1 when a check fails that `scenarios.toml` does not excuse.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.support.command import COMMAND
from tests.support.place import Place

TABLE = tomllib.loads((Path(__file__).parent / "scenarios.toml").read_text(encoding="utf-8"))
NODE = "node@22"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
INSTALL_S = 150
RUN_S = 60
PASSED = ("SUCCESS", "SKIPPED", "INFO", "WARNING")


class CannotBeHadError(Exception):
    """npm cannot install what is needed."""


def installed(cache: Path, *packages: str) -> Path:
    """Return the folder of modules that holds `packages`. Raises CannotBeHadError."""
    folder = cache / "-".join(package.replace("/", "_") for package in packages)
    modules = folder / "node_modules"
    if not (folder / "complete").exists():
        if shutil.which("npm") is None:
            raise CannotBeHadError("npm is not installed")
        npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *packages]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(npm, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
        except (subprocess.SubprocessError, OSError) as error:
            raise CannotBeHadError(
                f"npm cannot install {' '.join(packages)}: {type(error).__name__}"
            ) from None
        (folder / "complete").touch()
    return modules


def program(modules: Path) -> Path:
    """Return the suite's script."""
    return modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def output_of(*command: str | Path) -> str:
    """Return what a command prints, whatever its status."""
    ended = subprocess.run(command, capture_output=True, timeout=RUN_S, check=False, stdin=subprocess.DEVNULL)
    return ended.stdout.decode()


def running_node(cache: Path) -> Path:
    """Return a Node that runs on this machine. Raises CannotBeHadError."""
    node = installed(cache, NODE) / ".bin" / "node"
    if not output_of(node, "--version").startswith("v22."):
        raise CannotBeHadError(f"{NODE} does not run here")
    return node


def scenarios_of(node: Path, suite: Path) -> list[str]:
    """Return the names of the scenarios for servers."""
    listed = output_of(node, suite, "list").partition("Server scenarios")[2].partition("Client scenarios")[0]
    return [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]


def reason_against(scenario: str) -> str | None:
    """Return why a scenario does not apply, if the table says so."""
    for entry in TABLE["not_applicable"]:
        if any(fnmatch.fnmatchcase(scenario, pattern) for pattern in entry["scenarios"]):
            reason: str = entry["reason"]
            return reason
    return None


def excuse_for(check: str) -> str | None:
    """Return why a check need not hold, if the table says so."""
    return next((entry["reason"] for entry in TABLE["excused"] if check in entry["checks"]), None)


def checks_of(node: Path, suite: Path, url: str, scenario: str, options: list[str]) -> list[dict[str, Any]]:
    """Run a scenario and return its checks."""
    said = output_of(node, suite, "server", "--url", url, "--scenario", scenario, *options, "--verbose")
    start = said.find("[\n")
    if start < 0:
        return [{"id": scenario, "status": "FAILURE", "errorMessage": said[-300:]}]
    checks: list[dict[str, Any]] = json.JSONDecoder().raw_decode(said[start:])[0]
    return checks


def judged(scenario: str, checks: list[dict[str, Any]]) -> bool:
    """Print one scenario's result. Return whether it passed."""
    failed = [check for check in checks if check["status"] not in PASSED]
    excused = [check for check in failed if excuse_for(check["id"])]
    faults = [check for check in failed if check not in excused]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    print(f"{'FAILED' if faults else 'passed'}  {scenario}: {passed} checks, {len(excused)} excused")
    for check in excused:
        print(f"        excused {check['id']}: {excuse_for(check['id'])}")
    for check in faults:
        print(f"        FAILED  {check['id']}: {check.get('errorMessage', '')}")
    return bool(passed) and not faults


def run_suite(entry: dict[str, Any], node: Path, suite: Path, url: str) -> bool:
    """Run one version of the suite. Return whether all that applies passed."""
    print(f"conformance {entry['version']}")
    sound, others = True, dict[str, list[str]]()
    listed = scenarios_of(node, suite)
    for scenario in listed:
        if scenario in entry["applies"]:
            sound &= judged(scenario, checks_of(node, suite, url, scenario, entry["options"]))
        elif (reason := reason_against(scenario)) is not None:
            others.setdefault(reason, []).append(scenario)
        else:
            sound = False
            print(f"FAILED  {scenario}: new; say in scenarios.toml whether it applies")
    for scenario in entry["applies"]:
        if scenario not in listed:
            sound = False
            print(f"FAILED  {scenario}: the suite does not know it")
    for reason, scenarios in others.items():
        print(f"n/a     {reason}: {', '.join(scenarios)}")
    return sound


def run_inspector(cache: Path, node: Path, place: Place) -> bool:
    """Give the inspector's command line the snippet that init prints; have it list the tools strictly and call one."""
    tool = installed(cache, INSPECTOR) / ".bin" / "mcp-inspector"
    environment = place.environment(PATH=f"{node.parent}:{os.environ['PATH']}")
    snippet = place.folder / "client.json"
    init = [COMMAND, "init", "--client", "claude", "--output", str(place.policy)]
    printed = subprocess.run(
        init, cwd=place.jail, env=environment, stdout=subprocess.PIPE, timeout=RUN_S, check=True
    )
    snippet.write_bytes(printed.stdout)
    call = ["--method", "tools/call", "--tool-name", "run_command", "--tool-arg", "command=cat readme.txt"]
    sound = True
    for words, expected in (
        (["--method", "tools/list", "--strict"], b"run_command"),
        (call, b"a small project"),
    ):
        command = [tool, "--cli", "--config", snippet, "--server", "hardened-terminal", *words]
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=RUN_S, check=False)
        passed = ended.returncode == 0 and expected in ended.stdout
        sound &= passed
        print(f"{'passed' if passed else 'FAILED'}  inspector {' '.join(words)}")
    return sound


def main() -> int:
    """Run what can be had. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--inspector", action="store_true", help="try the official inspector's command line too"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path.home() / ".cache" / "hardened-terminal-mcp-conformance"
    )
    options = parser.parse_args()
    try:
        node = running_node(options.cache)
        suites = [
            (
                entry,
                program(installed(options.cache, f"@modelcontextprotocol/conformance@{entry['version']}")),
            )
            for entry in TABLE["suite"]
        ]
        if options.inspector:
            installed(options.cache, INSPECTOR)
    except CannotBeHadError as error:
        print(f"conformance suite not run: {error}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        bridge = Bridge([COMMAND], place.environment())
        threading.Thread(target=bridge.serve_forever, daemon=True).start()
        try:
            results = [run_suite(entry, node, suite, bridge.url) for entry, suite in suites]
            if options.inspector:
                results.append(run_inspector(options.cache, node, place))
        finally:
            bridge.close()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
