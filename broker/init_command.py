"""`hardened-terminal-mcp init`: a policy of the user's own to start from, and the snippet that a client wants.

Always true: of an existing policy no byte is changed without `--force`; what is added below it was tried before it is
written, and is written whole or not at all; nothing is asked.
"""

import argparse
import contextlib
import itertools
import os
import shlex
import shutil
import sys
from typing import Any

import msgspec

from broker import configuration, policy_profiles, private_folder, remote
from broker.arguments import operator_parser
from broker.refusal import StartupError

CLIENTS = {
    "claude": ("claude_desktop_config.json (Claude Desktop)", "mcpServers"),
    "cursor": ("~/.cursor/mcp.json", "mcpServers"),
    "vscode": ("your user's mcp.json (command `MCP: Open User Configuration`)", "servers"),
}
"""Client → where its configuration stands outside of every project, and the key that holds the servers.

A file in the project would lie in the jail, and say which command the client starts outside of it.
"""
SERVER = "hardened-terminal"


def main(arguments: list[str]) -> int:
    """Write the policy, or print a client's snippet. Returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    named = options.output or os.environ.get("HTMCP_POLICY_FILE")
    path = named or os.path.join(configuration.config_folder(os.environ), "policy.toml")
    if options.client and (options.profile or options.force):
        parser.error(f"--client only prints; write the policy first: {_without_client(arguments)}")
    if options.client:
        _print_client(options.client, os.path.abspath(path), chosen=bool(named))
        return 0
    raw = configuration.read_policy(configuration.shipped_policy_path()).raw
    if options.output == "-":
        print(policy_profiles.with_profiles(raw, options.profile).raw.decode(), end="")
        return 0
    if named and _is_beneath(path, os.environ.get("HTMCP_JAIL_ROOT") or os.getcwd()):
        print(
            f"note: {path} lies in this folder; in a jail no policy may lie that grants writes: keep it elsewhere",
            file=sys.stderr,
        )
    if options.profile and not options.force and os.path.exists(path):
        return _add(path, options.profile)
    _write(path, policy_profiles.with_profiles(raw, options.profile).raw, force=options.force)
    print(_next_steps(os.path.abspath(path), named=named is not None))
    return 0


def _without_client(arguments: list[str]) -> str:
    """Return the command that writes what `arguments` ask for."""
    kept = [word for word in arguments if not word.startswith("--client")]
    kept = [word for word in kept if word not in CLIENTS]
    return " ".join([configuration.NAME, "init", *kept])


def _add(path: str, names: list[str]) -> int:
    """Put profiles below the policy at `path`. Returns the exit status; raises StartupError, and then nothing has changed."""
    found = configuration.read_policy(path)
    added = policy_profiles.with_profiles(found.raw, names, path)
    if not added.headers:
        print(f"{path}: has all of {', '.join(names)} already; nothing was written")
        return 0
    policy_profiles.check(added.raw, path)
    approved = configuration.trust_line(found) in configuration.trusted(os.environ)
    _replace(path, added.raw)
    tests = added.headers.count("[[tests]]")
    print(
        f"added to {path}, below what was there: {len(added.headers) - tests} tables and {tests} self-tests"
    )
    if approved:
        print(
            f"its approval does not hold for the new text; approve it with: {configuration.NAME} trust {path}"
        )
    print(
        f"look at it: {configuration.NAME} check {path}; a running server takes it after a restart or SIGHUP"
    )
    return 0


def _for_us_alone(path: str, flags: int) -> int:
    """Open a new file that nobody else can open before it has its mode."""
    return os.open(path, flags, 0o600)


def _replace(path: str, raw: bytes) -> None:
    """Put `raw` in the place of the file that `path` leads to, whole or not at all, with the mode that it had."""
    real = os.path.realpath(path)
    new = f"{real}.{os.getpid()}.new"
    try:
        with open(new, "xb", opener=_for_us_alone) as file:
            os.fchmod(file.fileno(), os.stat(real).st_mode & 0o7777)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, real)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise StartupError(f"{path}: {error.strerror}") from None


def _parser() -> argparse.ArgumentParser:
    profiles = policy_profiles.profile_names()
    parser = operator_parser(
        "init",
        "Write a commented policy to start from, or add ready-made entries to one, and say what to do next.",
        (
            "hardened-terminal-mcp init --profile python --profile git-write",
            "hardened-terminal-mcp init --output /srv/policies/project.toml",
            "hardened-terminal-mcp init --client claude",
        ),
        "0 written or printed, 2 wrong usage, 78 it cannot be written",
    )
    parser.add_argument(
        "--profile",
        action="append",
        choices=profiles,
        default=[],
        metavar="NAME",
        help=f"add ready-made entries, to a policy that is there too: {', '.join(profiles)}",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="where to write it, - for standard output, or which one --client names (default: HTMCP_POLICY_FILE, or the "
        "user's policy)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write it anew; one that is there is kept as FILE.bak, .bak1, …"
    )
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        help="write nothing; print this client's configuration, with HTMCP_JAIL_ROOT, or the current folder, as the jail",
    )
    return parser


def _write(path: str, text: bytes, *, force: bool) -> None:
    try:
        private_folder.make(os.path.dirname(os.path.abspath(path)))
        if force and os.path.exists(path):
            print(f"the old one is now {_set_aside(path)}")
        with open(path, "xb", opener=_for_us_alone) as file:
            file.write(text)
        os.chmod(path, 0o600)
    except FileExistsError:
        raise StartupError(
            f"{path}: there is a policy already; --profile NAME adds to it, --force writes it anew and keeps that one beside it"
        ) from None
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None


def _set_aside(path: str) -> str:
    """Give the file at `path` a name beside it that nothing has, and return that. Raises OSError."""
    names = (f"{path}.bak{number or ''}" for number in itertools.count())
    free = next(name for name in names if not os.path.lexists(name))
    os.rename(path, free)
    return free


def _is_beneath(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def _command() -> str:
    beside_python = os.path.join(os.path.dirname(sys.executable), configuration.NAME)
    return beside_python if os.path.exists(beside_python) else os.path.abspath(sys.argv[0])


def _print_client(client: str, policy: str, *, chosen: bool) -> None:
    """Print the snippet on stdout, and on stderr where it belongs and what would keep it from working."""
    jail = os.path.abspath(os.environ.get("HTMCP_JAIL_ROOT") or os.getcwd())
    environment = {"HTMCP_JAIL_ROOT": jail, "HTMCP_POLICY_FILE": policy}
    if log := os.environ.get("HTMCP_AUDIT_LOG"):
        environment["HTMCP_AUDIT_LOG"] = os.path.abspath(log)
    if carrier := os.environ.get("HTMCP_BROKER"):  # policy, jail and trail are those beyond
        words = remote.words_of(carrier)  # found from here, as a client starts servers with a small PATH
        environment = {"HTMCP_BROKER": shlex.join([shutil.which(words[0]) or words[0], *words[1:]])}
    server: dict[str, Any] = {"command": _command(), "args": [], "env": environment}
    place, key = CLIENTS[client]
    notes = [f"for {place}; the jail is {_jail_in_words(environment)}"]
    if client == "vscode":
        server = {"type": "stdio", **server}
    if client == "claude":
        one_line = shlex.quote(msgspec.json.encode(server).decode())
        notes.append(f"Claude Code, in this folder: claude mcp add-json {SERVER} {one_line}")
    if not chosen and os.path.lexists("policy.toml"):
        notes.append(
            f"run and doctor look at ./policy.toml first, this names {policy}; --output policy.toml names the other"
        )
    for note in [*notes, *_doubts(environment)]:
        print(f"# {note}", file=sys.stderr)
    snippet = {key: {SERVER: server}}
    print(msgspec.json.format(msgspec.json.encode(snippet), indent=2).decode())


def _jail_in_words(environment: dict[str, str]) -> str:
    jail = environment.get("HTMCP_JAIL_ROOT")
    if jail is None:
        return f"the one beyond {environment['HTMCP_BROKER']!r}"
    return "this folder" if jail == os.getcwd() else jail


def _doubts(environment: dict[str, str]) -> list[str]:
    """Return what keeps a server with this snippet from starting."""
    from broker.doctor_command import place_of

    if "HTMCP_BROKER" in environment:
        return []
    policy = environment["HTMCP_POLICY_FILE"]
    if not os.path.exists(policy):
        return [f"{policy} does not exist yet: write it with {configuration.NAME} init"]
    jail = os.path.join(os.path.realpath(environment["HTMCP_JAIL_ROOT"]), "")
    if "HTMCP_AUDIT_LOG" not in environment and _is_beneath(configuration.state_folder(os.environ), jail):
        return [f"{jail} holds your audit trail, so it can be no jail: go to the project's own folder"]
    problem = place_of({**os.environ, **environment}).problem
    return [f"a server would not start with this: {problem}"] if problem else []


def _next_steps(path: str, *, named: bool) -> str:
    profiles = ", ".join(policy_profiles.profile_names())
    prefix = f"HTMCP_POLICY_FILE={path} " if named else ""
    option = f" --output {path}" if named else ""
    return f"""wrote {path}

next:
  1. read it; allow what you need     $EDITOR {path}
     ready-made entries               {configuration.NAME} init{option} --profile NAME ({profiles})
  2. check it                         {configuration.NAME} check {path}
  3. try it in a project's folder     {prefix}{configuration.NAME} run "ls -l"
  4. print your client's snippet      {configuration.NAME} init --client claude{option}
     (or cursor, vscode) in the folder that is to be the jail, and paste it where that says
  5. see what was called              {configuration.NAME} audit show"""
