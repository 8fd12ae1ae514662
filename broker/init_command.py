"""`hardened-terminal-mcp init`: a policy of the user's own to start from, and the snippet that a client wants.

Always true: an existing policy is never overwritten without `--force`; nothing is asked.
"""

import argparse
import os
import sys
from typing import Any

import msgspec

from broker import configuration, policy_file
from broker.refusal import StartupError

CLIENTS = {
    "claude": ("claude_desktop_config.json (Claude Desktop) or .mcp.json (Claude Code)", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}
"""Client → where its configuration stands, and the key that holds the servers."""


def main(arguments: list[str]) -> int:
    """Write the policy, or print a client's snippet. Returns the exit status."""
    options = _parser().parse_args(arguments)
    path = options.output or os.path.join(configuration.config_folder(os.environ), "policy.toml")
    if options.client:
        path = options.output or os.environ.get("HTMCP_POLICY_FILE") or path
        print(f"# for {CLIENTS[options.client][0]}; the jail is this folder", file=sys.stderr)
        for line in _doubts(os.path.realpath(path)):
            print(f"# {line}", file=sys.stderr)
        print(_snippet(options.client, os.path.abspath(path)))
        return 0
    raw = configuration.read_policy(configuration.shipped_policy_path()).raw
    _write(path, policy_file.with_profiles(raw, options.profile), force=options.force)
    print(_next_steps(os.path.abspath(path), named=options.output is not None))
    return 0


def _parser() -> argparse.ArgumentParser:
    profiles = ", ".join(policy_file.profile_names())
    parser = argparse.ArgumentParser(
        prog="hardened-terminal-mcp init",
        description="Write a commented policy to start from, and say what to do next.",
        epilog="examples:\n  hardened-terminal-mcp init --profile python --profile git-write\n"
        "  hardened-terminal-mcp init --output /srv/policies/project.toml\n"
        "  hardened-terminal-mcp init --client claude\n\n"
        "exit status: 0 written or printed, 2 wrong usage, 78 it cannot be written",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--profile", action="append", default=[], metavar="NAME", help=f"add ready-made entries: {profiles}"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="where to write it, or which one --client names (default: the user's policy)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write it anew; one that is there is kept as FILE.bak"
    )
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        help="write nothing; print this client's configuration, with the current folder as the jail",
    )
    return parser


def _write(path: str, text: bytes, *, force: bool) -> None:
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        if force and os.path.exists(path):
            os.replace(path, path + ".bak")
        with open(path, "xb") as file:
            file.write(text)
        os.chmod(path, 0o600)
    except FileExistsError:
        raise StartupError(
            f"{path}: there is a policy already; --force writes it anew and keeps that one as .bak"
        ) from None
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None


def _command() -> str:
    beside_python = os.path.join(os.path.dirname(sys.executable), configuration.NAME)
    return beside_python if os.path.exists(beside_python) else os.path.abspath(sys.argv[0])


def _snippet(client: str, policy: str) -> str:
    environment = {"HTMCP_JAIL_ROOT": os.getcwd(), "HTMCP_POLICY_FILE": policy}
    server: dict[str, Any] = {"command": _command(), "args": [], "env": environment}
    if client == "vscode":
        server = {"type": "stdio", **server}
    snippet = {CLIENTS[client][1]: {"hardened-terminal": server}}
    return msgspec.json.format(msgspec.json.encode(snippet), indent=2).decode()


def _doubts(policy: str) -> list[str]:
    """Return what keeps a server with this snippet from starting, as far as it can be told from here."""
    doubts = []
    if not os.path.exists(policy):
        doubts.append(f"{policy} does not exist yet: write it with {configuration.NAME} init")
    jail = os.path.join(os.path.realpath(os.getcwd()), "")
    if os.path.realpath(configuration.state_folder(os.environ)).startswith(jail):
        doubts.append(f"{jail} holds your audit trail, so it can be no jail: go to the project's own folder")
    return doubts


def _next_steps(path: str, *, named: bool) -> str:
    prefix = f"HTMCP_POLICY_FILE={path} " if named else ""
    option = f" --output {path}" if named else ""
    return f"""wrote {path}

next:
  1. read it; allow what you need     $EDITOR {path}
  2. check it                         {configuration.NAME} check {path}
  3. try it in a folder of yours      {prefix}{configuration.NAME} run "ls -l"
  4. print your client's snippet      {configuration.NAME} init --client claude{option}
     (or cursor, vscode) in the folder that is to be the jail, and paste it into {CLIENTS["claude"][0]}
  5. see what was called              {configuration.NAME} audit show"""
