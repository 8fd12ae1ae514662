"""`hardened-terminal-mcp trust FILE`: approve exactly these bytes at exactly this place, as direnv does."""

import os

from broker import configuration, policy_file, private_folder
from broker.arguments import operator_parser
from broker.configuration import FoundPolicy
from broker.refusal import StartupError


def main(arguments: list[str]) -> int:
    """Approve a policy. Returns the exit status."""
    parser = operator_parser(
        "trust",
        "Approve a policy.toml that lies in the jail. A change of the file withdraws the approval.",
        ("hardened-terminal-mcp trust", "hardened-terminal-mcp trust /srv/project/policy.toml"),
        "0 approved, 78 the file cannot be read, is no policy, or cannot be approved",
    )
    parser.add_argument("file", nargs="?", default="policy.toml", help="the policy (default: ./policy.toml)")
    options = parser.parse_args(arguments)
    found = configuration.read_policy(options.file)
    policy_file.check(found.raw, found.path)
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
