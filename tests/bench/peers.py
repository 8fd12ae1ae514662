"""Peers in folders of their own, pinned, and how each is asked to run `echo hi`.

Always true: nothing is installed outside the folder that was named, and a peer that is there already is not installed
again.
"""

import os
import subprocess
from pathlib import Path

from tests.bench.rpc import Server

SDK = "mcp==1.30.0"
"""Both Python peers are written for 1.x and do not say so."""
PYTHON_PEERS = {"cli-mcp-server": "0.2.5", "mcp-shell-server": "1.1.14"}
NODE_PEER, NODE_PEER_VERSION = "mcp-server-commands", "0.5.0"


def installed(folder: Path, jail: Path) -> list[Server]:
    """Install the peers below `folder`, and return them. Raises CalledProcessError and FileNotFoundError (uv, npm)."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "cli-mcp-server": {
            "ALLOWED_DIR": str(jail),
            "ALLOWED_COMMANDS": "echo",
            "ALLOWED_FLAGS": "all",
        },
        "mcp-shell-server": {"ALLOW_COMMANDS": "echo"},
    }
    one_string = {"name": "run_command", "arguments": {"command": "echo hi"}}
    calls = {
        "cli-mcp-server": one_string,
        "mcp-shell-server": {
            "name": "shell_execute",
            "arguments": {"command": ["echo", "hi"], "directory": str(jail)},
        },
    }
    common = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    servers = []
    for name, version in PYTHON_PEERS.items():
        program = _with_uv(folder / name, name, version)
        environment = {**common, **settings[name]}
        servers.append(Server(name, jail, (program,), environment, calls[name]))
    program = _with_npm(folder / NODE_PEER)
    servers.append(Server(NODE_PEER, jail, (program,), common, one_string))
    return servers


def _with_uv(folder: Path, name: str, version: str) -> str:
    program = folder / "bin" / name
    if not program.exists():
        subprocess.run(["uv", "venv", "-q", folder], check=True)
        python = folder / "bin" / "python"
        subprocess.run(
            ["uv", "pip", "install", "-q", "--python", python, f"{name}=={version}", SDK], check=True
        )
    return str(program)


def _with_npm(folder: Path) -> str:
    program = folder / "node_modules" / ".bin" / NODE_PEER
    if not program.exists():
        folder.mkdir(exist_ok=True)
        package = f"{NODE_PEER}@{NODE_PEER_VERSION}"
        quiet = ["--silent", "--no-fund", "--no-audit", "--ignore-scripts"]
        subprocess.run(["npm", "install", *quiet, "--prefix", folder, package], check=True)
    return str(program)
