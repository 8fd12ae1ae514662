"""`[[tests]]` of a policy: each command is judged in the jail's root as a call would be, and nothing is started.

Always true: a test that allows passes even where the program is not installed, because the policy is what is tested.
"""

from typing import TYPE_CHECKING

from broker import grammar
from broker.refusal import ExecutorError, Refusal

if TYPE_CHECKING:
    from broker.jail import Located
    from broker.policy import Policy
    from broker.schema import SelfTest


def failures(policy: "Policy") -> list[str]:
    """Return a line for each test of the policy that fails."""
    located = policy.jail.locate(None)
    try:
        found = [_failure(policy, test, located) for test in policy.file.tests]
    finally:
        located.close()
    return [line for line in found if line]


def _failure(policy: "Policy", test: "SelfTest", located: "Located") -> str:
    verdict, reason = judge(policy, test.command, located)
    if verdict != test.expect:
        return f"{test.command!r}: {test.expect} expected, got {verdict}: {reason}"
    if test.reason is not None and test.reason not in reason:
        return f"{test.command!r}: a reason with {test.reason!r} expected, got: {reason}"
    return ""


def judge(policy: "Policy", command: str, located: "Located") -> tuple[str, str]:
    """Return "allow" or "deny", and the reason."""
    try:
        argv = grammar.parse(command, metacharacters=policy.file.metacharacters, globs=policy.file.globs)
        return "allow", policy.permit(policy.choose(argv), located).reason
    except ExecutorError as refusal:
        return "allow", refusal.reason
    except Refusal as refusal:
        return "deny", refusal.reason
