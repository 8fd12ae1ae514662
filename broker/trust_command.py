"""`hardened-terminal-mcp trust FILE`: approve exactly these bytes at exactly this place, as direnv does."""

import os

from broker import configuration, policy_file, private_folder
from broker.arguments import operator_parser
from broker.configuration import FoundPolicy
from broker.refusal import StartupError

_HERE = "policy.toml"


def main(arguments: list[str]) -> int:
    """Approve a policy. Returns the exit status."""
    parser = operator_parser(
        "trust",
        "Approve a policy.toml that lies in the jail. A change of the file withdraws the approval.",
        ("hardened-terminal-mcp trust", "hardened-terminal-mcp trust /srv/project/policy.toml"),
        "0 approved, or nothing to approve, 78 the file cannot be read, is no policy, or cannot be approved",
    )
    parser.add_argument("file", nargs="?", help="the policy (default: ./policy.toml)")
    file = parser.parse_args(arguments).file
    needed = file is not None or os.path.lexists(_HERE)
    read = _HERE if file is None else file
    found = configuration.read_policy(read) if needed else configuration.find_policy(os.environ)
    policy_file.check(found.raw, found.path)
    if not needed:
        whose = "named by HTMCP_POLICY_FILE" if found.named else "the user's own"
        print(f"nothing to approve: the policy in force is {found.path}, {whose}")
        return 0
    _approve(found)
    print(f"approved {os.path.realpath(found.path)}, SHA-256 {found.digest}")
    return 0


def _approve(found: FoundPolicy) -> None:
    path = configuration.trust_path(os.environ)
    if configuration.trust_line(found) in configuration.trusted(os.environ):
        return
    try:
        private_folder.make(os.path.dirname(path))
        if problem := private_folder.problem(os.path.dirname(path)):
            raise StartupError(f"approvals {path}: {problem}")
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(fd, "a", encoding="utf-8") as file:
            file.write(configuration.trust_line(found) + "\n")
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None
