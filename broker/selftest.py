"""`[[tests]]` of a policy: each command is judged as a call would be, in a jail without any file; nothing is started.

Always true: the verdict depends on the policy's file alone. Neither what lies in the jail, which somebody else may have
written, nor which programs this machine has can make a test fail and keep the broker from starting.
"""

from typing import TYPE_CHECKING

from broker import grammar
from broker.beneath import Budget
from broker.jail import Jail, Located
from broker.refusal import ExecutorError, PolicyDenied, Refusal

if TYPE_CHECKING:
    from broker.policy import Policy
    from broker.schema import SelfTest


class EmptyJail(Jail):
    """A jail that is no directory: paths are judged by their text alone, every folder exists, no file does."""

    __slots__ = ()

    def __init__(self) -> None:
        self.fd = -1
        self.identity = (-1, -1)
        self.root = self.real = "/"

    def locate(self, untrusted_cwd: str | None, budget: Budget | None = None) -> Located:
        """Return a folder without looking for it."""
        return Located(-1, "/".join(self._collapsed(untrusted_cwd or "")), budget or Budget())

    def check(self, word: str, located: Located) -> str:
        """Return the path from the root. Raises PolicyDenied if its text leads out."""
        if word.startswith("/"):
            raise PolicyDenied("the path is absolute and leads out of the jail")
        return "/".join(self._collapsed(f"{located.relative}/{word}"))

    def end(self, word: str, located: Located) -> str:
        """Return the path from the root: no link leads elsewhere."""
        return self.check(word, located)

    def _collapsed(self, path: str) -> list[str]:
        names: list[str] = []
        for part in path.split("/"):
            if part == ".." and not names:
                raise PolicyDenied("the path leads out of the jail by `..`")
            if part == "..":
                names.pop()
            elif part not in ("", "."):
                names.append(part)
        return names

    def open(self, relative: str, flags: int, budget: Budget) -> int:
        """Find nothing."""
        raise FileNotFoundError(relative)


def failures(policy: "Policy") -> list[str]:
    """Return a line for each test of the policy that fails, with its place, as any other fault of the file has one."""
    tested = type(policy).__new__(type(policy))  # what copy.copy does, without a millisecond of imports
    vars(tested).update(vars(policy), jail=EmptyJail(), suggests=False)
    failing = [(number, test) for number, test in enumerate(tested.file.tests, 1) if failure(tested, test)]
    # what was perhaps meant takes longer to find than all else, and is part of a reason
    tested.suggests = True
    found = [(number, failure(tested, test)) for number, test in failing]
    return [f"tests.{number}: self-test failed: {text}" for number, text in found if text]


def failure(policy: "Policy", test: "SelfTest") -> str:
    """Return why a test fails whose policy has an `EmptyJail`, an empty text if it holds."""
    verdict, reason = judge(policy, test.command)
    if verdict != test.expect:
        return f"{test.command!r}: {test.expect} expected, got {verdict}: {reason}"
    if test.reason is not None and test.reason not in reason:
        return f"{test.command!r}: a reason with {test.reason!r} expected, got: {reason}"
    return ""


def judge(policy: "Policy", command: str) -> tuple[str, str]:
    """Return "allow" or "deny", and the reason. A program that is missing here is allowed all the same."""
    try:
        argv = grammar.parse(command, metacharacters=policy.file.metacharacters, globs=policy.file.globs)
        located = policy.jail.locate(
            None
        )  # for each anew: what its paths may cost is a command's, not the file's
        return "allow", policy.permit(policy.choose(argv), located).reason
    except ExecutorError as refusal:
        return "allow", refusal.reason
    except Refusal as refusal:
        return "deny", refusal.reason
