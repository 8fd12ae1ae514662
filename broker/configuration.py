"""Which policy is used, and where jail and trail are: environment, policy file and defaults, in that order.

Always true: a policy that a cloned repository brings along is not used unless it equals the shipped one or its owner
approved its digest. This module reads files and settings; it opens nothing that stays open.
"""

import os
import stat
import sys
from collections.abc import Mapping
from typing import NamedTuple

from broker import policy_file, private_folder
from broker.digest import sha256_hex
from broker.refusal import StartupError
from broker.schema import PolicyFile

NAME = "hardened-terminal-mcp"
POLICY_LIMIT_BYTES = 4 * 1024 * 1024


class FoundPolicy(NamedTuple):
    """The bytes of the policy in force. `named` is whether HTMCP_POLICY_FILE named it."""

    path: str
    raw: bytes
    named: bool

    @property
    def digest(self) -> str:
        """SHA-256 of the file, as hexadecimal."""
        return sha256_hex(self.raw)


class Settings(NamedTuple):
    """What a start goes by: the environment, and the policy that it leads to."""

    environ: dict[str, str]
    found: FoundPolicy
    file: PolicyFile


def read(environ: Mapping[str, str]) -> Settings:
    """Return the settings. Raises StartupError for a system that is not supported, and for every fault of the policy."""
    if sys.platform != "linux":
        raise StartupError(
            f"{sys.platform} is not supported: commands are confined by Linux Landlock and seccomp"
        )
    found = find_policy(environ)
    return Settings(dict(environ), found, policy_file.load(found.raw, found.path))


def config_folder(environ: Mapping[str, str]) -> str:
    """Return the user's configuration folder (XDG Base Directory Specification)."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def state_folder(environ: Mapping[str, str]) -> str:
    """Return the user's state folder (XDG Base Directory Specification)."""
    return _xdg(environ, "XDG_STATE_HOME", ".local/state")


def _xdg(environ: Mapping[str, str], variable: str, below_home: str) -> str:
    base = environ.get(variable, "")
    if not os.path.isabs(base):
        base = os.path.join(_home(environ), below_home)
    return os.path.join(base, NAME)


def _home(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return home
    import pwd  # only where HOME is unset: some service managers do that

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise StartupError("HOME is not set; set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME") from None


def shipped_policy_path() -> str:
    """Return the path of the policy that ships: in the wheel beside this module, in a checkout one folder up."""
    here = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(here, "policy.toml")
    return inside if os.path.exists(inside) else os.path.join(os.path.dirname(here), "policy.toml")


def find_policy(environ: Mapping[str, str]) -> FoundPolicy:
    """Return HTMCP_POLICY_FILE, else ./policy.toml, else the user's. Raises StartupError without one that is safe to read."""
    named = environ.get("HTMCP_POLICY_FILE")
    if named:
        return FoundPolicy(os.path.abspath(named), _read(named), named=True)
    user = os.path.join(config_folder(environ), "policy.toml")
    for path in ("policy.toml", user):
        if os.path.lexists(path):
            return read_policy(path)
    raise StartupError(
        f"no policy: neither ./policy.toml nor {user} exists; write the default one with: {NAME} init"
    )


def read_policy(path: str) -> FoundPolicy:
    """Return the policy at `path`. Raises StartupError if it cannot be read, or anybody else could have written it."""
    return FoundPolicy(os.path.abspath(path), _read(path), named=False)


def _read(path: str) -> bytes:
    try:
        raw, problem = _contents(path)
    except FileNotFoundError as error:
        raise StartupError(
            f"policy {path}: {error.strerror}; write one with: {NAME} init --output {path}"
        ) from None
    except OSError as error:
        raise StartupError(f"policy {path}: {error.strerror}") from None
    if problem:
        raise StartupError(f"policy {path}: {problem}")
    if len(raw) > POLICY_LIMIT_BYTES:
        raise StartupError(f"policy {path}: longer than {POLICY_LIMIT_BYTES} bytes")
    return raw


def _contents(path: str) -> tuple[bytes, str]:
    """Return what is in a file, and what makes it one that others could have written: then nothing of it. Raises OSError."""
    # O_NONBLOCK: a fifo in the place of the file must not wait for a writer
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return b"", "not a regular file"
        problem = private_folder.problem(path)
        return b"" if problem else file.read(POLICY_LIMIT_BYTES + 1), problem


def check_trust(
    policy: FoundPolicy, environ: Mapping[str, str], *, in_jail: bool, jail_is_writable: bool
) -> None:
    """Raise StartupError if `policy` was written by whoever wrote the jail, and nobody vouched for it."""
    if not in_jail or _is_shipped(policy):
        return
    if policy.named:
        if jail_is_writable:
            raise StartupError(
                f"policy {policy.path}: lies in the jail, which some program may write; move it outside the jail"
            )
        return
    if trust_line(policy) in trusted(environ):
        return
    if policy.path == os.path.abspath(os.path.join(config_folder(environ), "policy.toml")):
        raise StartupError(
            f"policy {policy.path}: lies in the jail, and it is your own; the jail is a project's folder, not your home: "
            "go to one, or name it with HTMCP_JAIL_ROOT"
        )
    raise StartupError(
        f"policy {policy.path}: comes with the folder and is not approved, so whoever wrote the folder may have written it; "
        f"read it and approve it with: {NAME} trust {policy.path} — or name another one with HTMCP_POLICY_FILE"
    )


def _is_shipped(policy: FoundPolicy) -> bool:
    try:
        return policy.raw == _read(shipped_policy_path())
    except StartupError:
        return False


def trust_path(environ: Mapping[str, str]) -> str:
    """Return the path of the file of approvals."""
    return os.path.join(config_folder(environ), "trusted")


def trust_line(policy: FoundPolicy) -> str:
    """Return the line that approves exactly these bytes at this place."""
    path = os.path.realpath(policy.path)
    if not path.isprintable():  # a newline in it could forge a second approval
        raise StartupError(f"policy {path!r}: a path with control characters cannot be approved")
    return f"{policy.digest} {path}"


def trusted(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the approvals on record. Raises StartupError if others could have written, or can replace, them."""
    path = trust_path(environ)
    try:
        raw, problem = _contents(path)
        approvals = frozenset(raw.decode().split("\n"))
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"approvals {path}: cannot be read: {error}") from None
    if problem:
        raise StartupError(f"approvals {path}: {problem}")
    return approvals
