"""Secrets that can be told by their own shape: tokens with a provider's prefix, headers, URLs, flags of known programs.

The patterns are data (`redaction_patterns.json`). One automaton of all keywords runs over the text; only where a
keyword stands is that pattern's expression tried, within a bounded neighbourhood, so the cost does not grow with the
number of patterns. This module decides where; whether a value is a placeholder is decided in `placeholders`.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files

import msgspec

from broker import placeholders
from broker.regex_engine import NOWHERE, Expression

Found = tuple[int, int, str]
REACH_BYTES = 4096
_EDGE = r"(?:\b|%[0-9A-Fa-f]{2}|\\[nrt])"


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the data file; what each field means stands there."""

    name: str
    expression: str
    keywords: tuple[str, ...] = ()
    head: str | None = None
    value: int = 0
    inner: str | None = None
    before: int = 0
    reach: int = REACH_BYTES
    anycase: bool = False
    check: str = "token"
    examples: tuple[str, ...] = ()


class _Catalogue(msgspec.Struct, frozen=True):
    about: str
    patterns: tuple[Pattern, ...]


@lru_cache(maxsize=1)
def catalogue() -> tuple[Pattern, ...]:
    """All shipped patterns, in the order of the data file."""
    data = files("broker").joinpath("redaction_patterns.json").read_bytes()
    return msgspec.json.decode(data, type=_Catalogue).patterns


def _digits(value: str) -> bool:
    return any(c.isdigit() for c in value)


def _jwt(value: str) -> bool:
    """Is the first part really a JSON object's beginning: `eyJ` is `{"`."""
    return len(set(value)) > 12 and value.count(".") >= 1


_CHECKS: dict[str, Callable[[str], bool]] = {
    "any": lambda value: True,
    "token": lambda value: not _masked(value),
    "digits": lambda value: _digits(value) and not _masked(value),
    "digit": lambda value: _digits(value) and not _masked(value),
    "mixed": lambda value: placeholders.classes(value) >= 2 and not _masked(value),
    "mixed_digit": lambda value: placeholders.classes(value) >= 2 and _digits(value) and not _masked(value),
    "three_classes": lambda value: placeholders.classes(value) == 3 and not _masked(value),
    "random": lambda value: placeholders.classes(value) >= 2 and placeholders.entropy_bits(value[:200]) > 3.5 and not _masked(value),
    "jwt": _jwt,
    "encoded_private_key": lambda value: len(value) > 60,
    "value": lambda value: len(value) >= 4 and not placeholders.is_stand_in(value),
    "password": lambda value: len(value) >= 3 and not placeholders.is_stand_in(value) and not value.isalpha() | (len(value) < 6 and value.isdigit()),
    "opaque": lambda value: placeholders.is_random_looking(value),
    "credential": lambda value: placeholders.is_secret_value(value, quoted=True, certain=True),
}  # fmt: skip


def _masked(value: str) -> bool:
    """`ghp_xxxxxxxx`, `AKIAXXXXEXAMPLE`, `sk-...`: shown in documents, opens nothing."""
    body = value[:200].lower()
    return (
        "xxxx" in body
        or "****" in body
        or "...." in body
        or "your" in body
        or "example" in body
        or placeholders.is_monotonous(body[4:])
    )


class _Rule:
    """A pattern with its expressions."""

    __slots__ = ("before", "check", "expression", "inner", "name", "reach", "value")

    def __init__(self, pattern: Pattern) -> None:
        flags = "(?is)" if pattern.anycase else "(?s)"
        self.name = pattern.name
        self.expression = Expression(flags + pattern.expression)
        self.inner = Expression(flags + pattern.inner) if pattern.inner else None
        self.value = pattern.value
        self.before = pattern.before
        self.reach = pattern.reach
        self.check = _CHECKS[pattern.check]

    def find(self, data: bytes, start: int, end: int) -> Iterator[Found]:
        """What this pattern finds around a keyword at `data[start:end]`."""
        limit = min(len(data), end + self.reach)
        if self.before:
            spans = self.expression.first(data, max(0, start - self.before), limit)
            if spans is not None and not spans[0][0] <= start < spans[0][1]:
                spans = None
        else:
            spans = self.expression.here(data, start, limit)
        if spans is None:
            return
        if self.inner is None:
            yield from self._accept(data, spans)
        else:
            for inside in self.inner.each(data, *spans[0]):
                yield from self._accept(data, inside)

    def _accept(self, data: bytes, spans: tuple[tuple[int, int], ...]) -> Iterator[Found]:
        begin, stop = spans[self.value] if self.value < len(spans) else spans[-1]
        if (
            (begin, stop) != NOWHERE
            and begin < stop
            and self.check(data[begin:stop].decode(errors="replace"))
        ):
            yield begin, stop, self.name


class KnownTokens:
    """All shipped patterns, ready to run; built once per process by `known_tokens`."""

    __slots__ = ("_heads", "_rules", "_unkeyed")

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        self._rules: dict[bytes, list[_Rule]] = {}
        self._unkeyed: list[tuple[Expression, _Rule]] = []
        edged: list[str] = []
        loose: list[str] = []
        folded: list[str] = []
        for pattern in patterns:
            rule = _Rule(pattern)
            if pattern.head is not None:
                self._unkeyed.append((Expression(pattern.head), rule))
            for keyword in pattern.keywords:
                (folded if pattern.anycase else loose if pattern.before else edged).append(keyword)
                self._rules.setdefault((keyword.lower() if pattern.anycase else keyword).encode(), []).append(
                    rule
                )
        self._heads = Expression(
            f"(?:{_EDGE}(?:{_any_of(edged)})|{_any_of(loose)}|\\b(?i:{_any_of(folded)}))"
        )
        self._share_prefixes()

    def _share_prefixes(self) -> None:
        """Where a longer keyword was seen, a shorter one that begins it stands too (`sk-ant-`, `sk-`)."""
        keywords = sorted(self._rules, key=len)
        for longer in keywords:
            for shorter in keywords:
                if longer != shorter and longer.startswith(shorter):
                    self._rules[longer] = self._rules[longer] + [
                        r for r in self._rules[shorter] if r not in self._rules[longer]
                    ]

    def find(self, data: bytes) -> Iterator[Found]:
        """All secrets of known shape in `data`; they may overlap."""
        for (start, end), *_rest in self._heads.each(data, 0, len(data)):
            head = data[start:end]
            for skip in (0, 2, 3):
                rules = self._rules.get(head[skip:]) or self._rules.get(head[skip:].lower())
                if rules is not None:
                    for rule in rules:
                        yield from rule.find(data, start + skip, end)
                    break
        for expression, rule in self._unkeyed:
            for (start, end), *_rest in expression.each(data, 0, len(data)):
                yield from rule.find(data, start, end)


def _any_of(keywords: list[str]) -> str:
    escaped = {_escape(keyword) for keyword in keywords}
    return "|".join(sorted(escaped, key=len, reverse=True)) or "$^"


def _escape(keyword: str) -> str:
    return "".join(c if c.isalnum() or c in "_-/: " else "\\" + c for c in keyword)


@lru_cache(maxsize=1)
def known_tokens() -> KnownTokens:
    """The shipped patterns, compiled on first use."""
    return KnownTokens(catalogue())
