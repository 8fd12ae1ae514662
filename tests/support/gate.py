"""A policy over a folder, for tests of verdicts: what a call would be told, without starting anything."""

from pathlib import Path

from broker import policy_file
from broker.grammar import parse
from broker.jail import Jail
from broker.policy import Permitted, Policy
from broker.programs import Programs
from broker.refusal import PolicyDenied, Refusal

ROOT = Path(__file__).resolve().parent.parent.parent
DEFAULT_POLICY = ROOT / "policy.toml"


def policy_over(folder: Path, text: str | bytes) -> Policy:
    """Return the policy `text` in force over `folder`; programs are looked up when they are asked for."""
    raw = text.encode() if isinstance(text, str) else text
    file = policy_file.load(raw, "policy.toml")
    jail = Jail(str(folder))
    names = policy_file.named_programs(file)
    return Policy(file, raw, jail, Programs(file.environment.path, jail, names, lazily=True))


def permitted(policy: Policy, command: str, cwd: str | None = None) -> Permitted:
    """Return what the policy makes of `command`. Raises what a call would be refused with."""
    with policy.jail.locate(cwd) as located:
        return policy.permit(policy.choose(parse(command)), located)


def refusal(policy: Policy, command: str, cwd: str | None = None) -> str:
    """Return the reason with which `command` is denied; fails if it is allowed."""
    try:
        granted = permitted(policy, command, cwd)
    except PolicyDenied as denied:
        return denied.reason
    raise AssertionError(f"{command} was allowed: {granted.reason}")


def verdict(policy: Policy, command: str, cwd: str | None = None) -> tuple[bool, str]:
    """Return whether `command` is allowed, and the reason. A program that is missing here is allowed."""
    try:
        return True, permitted(policy, command, cwd).reason
    except Refusal as refused:
        return refused.code == "EXECUTOR_ERROR", refused.reason
