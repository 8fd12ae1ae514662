"""Which names of a list were perhaps meant by one that is not on it, and what ships for it: for the reason of a refusal.

Always true: its cost is bounded by the list, whatever was asked; it is imported only once something was refused.
"""

from collections.abc import Sequence
from difflib import get_close_matches

LONGEST = 32
"""Characters of a name that is worth comparing: the cost grows with their square."""


def nearest(untrusted_name: str, names: Sequence[str]) -> list[str]:
    """Return at most three of `names`, the most similar first."""
    if len(untrusted_name) > LONGEST:
        return []
    return get_close_matches(untrusted_name, [name for name in names if len(name) <= LONGEST], 3)


_PROFILES = {
    "git-write": "git",
    "go": "go gofmt",
    "make": "make",
    "node": "npm node",
    "python": "pytest python3 python mypy ruff pip",
    "rust": "cargo rustc",
}
"""Profile of `init --profile` → the programs that it allows; a test holds this against the profiles."""


def profile_of(untrusted_name: str) -> str:
    """Return the profile that has entries for a program, an empty text for none."""
    return next((name for name, programs in _PROFILES.items() if untrusted_name in programs.split()), "")
