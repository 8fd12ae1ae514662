"""The data that redaction works with: patterns, word lists, letter pairs; read once, when they are first needed.

Always true: nothing here decides anything. The file is `redaction_patterns.json`, which says what its fields mean.
"""

import os
from functools import lru_cache

import msgspec

REACH_BYTES = 4096
_FILE = __file__.removesuffix("redaction_catalogue.py") + "redaction_patterns.json"


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the data file."""

    name: str
    expression: str
    keywords: tuple[str, ...] = ()
    head: str | None = None
    first: str = ""
    value: int = 0
    inner: str | None = None
    within: int = 0
    before: int = 0
    reach: int = REACH_BYTES
    anycase: bool = False
    edge: bool = True
    check: str = "token"
    around: str = ""
    examples: tuple[str, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    about: str
    words: dict[str, str]
    letter_pairs: dict[str, str]
    patterns: tuple[Pattern, ...]


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The shipped data."""
    with open(os.path.join(os.path.dirname(__file__), "redaction_patterns.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=Catalogue)


@lru_cache(maxsize=32)
def words(name: str) -> frozenset[str]:
    """One of the word lists."""
    return frozenset(catalogue().words[name].split())


@lru_cache(maxsize=8)
def word_parts(name: str) -> tuple[str, ...]:
    """A word list in its order, for `str.startswith` and the like."""
    return tuple(catalogue().words[name].split())


@lru_cache(maxsize=1)
def letter_pairs() -> dict[str, int]:
    """How common each pair of letters is in words, against pairs by chance: 6 as common, each step half a power of e."""
    return {
        first + chr(ord("a") + place): int(rank)
        for first, ranks in catalogue().letter_pairs.items()
        for place, rank in enumerate(ranks)
    }
