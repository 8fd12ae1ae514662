"""Secrets that can be told by their own shape: tokens with a provider's prefix, headers, URLs, flags of known programs.

The patterns are data (`redaction_patterns.json`). One automaton of all keywords runs over the text; only where a
keyword stands is that pattern's expression tried, within a bounded neighbourhood, so the cost hardly grows with the
number of patterns. This module decides where; whether a value is a placeholder is decided in `placeholders`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from broker import placeholders, private_keys, randomness
from broker.redaction_catalogue import Pattern, catalogue
from broker.regex_engine import NOWHERE, Expression, Spans, escaped

Found = tuple[int, int, str]
Judged = dict[tuple[str, bytes], bool]
SEEN_HEADS = 4096
DENSE = 64
_EDGE = r"(?:\b|%[0-9A-Fa-f]{2}|\\[nrt])"


def _unmasked(condition: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda value: condition(value) and not placeholders.is_masked(value)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "any": lambda value: len(value) > 3,
    "token": _unmasked(lambda value: True),
    "digits": _unmasked(randomness.has_digit),
    "letters": _unmasked(randomness.is_gibberish),
    "mixed": _unmasked(lambda value: randomness.classes(value) >= 2),
    "mixed_digit": _unmasked(lambda value: randomness.classes(value) >= 2 and randomness.has_digit(value)),
    "long_run": _unmasked(lambda value: randomness.classes(value) >= 2 and randomness.longest_run(value) >= 12),
    "three_classes": _unmasked(lambda value: randomness.classes(value) == 3),
    "random": _unmasked(lambda value: randomness.classes(value) >= 2 and randomness.entropy_bits(value[:200]) > 3.5),
    "chance": placeholders.is_chance,
    "strewn": _unmasked(lambda value: randomness.classes(value) == 3 and randomness.mixing(value) > 0.45),
    "jwt": lambda value: len(set(value)) > 12 and "." in value,
    "basic": placeholders.is_basic,
    "value": lambda value: not placeholders.is_stand_in(value),
    "password": placeholders.is_password,
    "typed": lambda value: placeholders.is_password(value) and not placeholders.is_prompt(value),
    "command_password": placeholders.is_command_password,
    "header": placeholders.is_header_value,
    "opaque": lambda value: randomness.is_opaque(value) and not placeholders.is_stand_in(value),
    "generated": placeholders.is_generated,
    "userinfo": placeholders.is_token_in_url,
    "kubernetes": placeholders.is_kubernetes_value,
    "body": private_keys.is_body,
    "credential": lambda value: placeholders.is_secret_value(value, quoted=True, certain=True),
}  # fmt: skip


class _Rule:
    """A pattern with its expressions."""

    __slots__ = (
        "alone",
        "before",
        "check",
        "checked_by",
        "expression",
        "inner",
        "name",
        "reach",
        "value",
        "within",
    )

    def __init__(self, pattern: Pattern) -> None:
        flags = "(?i)" if pattern.anycase else ""
        self.name = pattern.name
        self.expression = Expression(flags + pattern.expression)
        self.inner = Expression(flags + pattern.inner) if pattern.inner else None
        self.value = pattern.value
        self.within = pattern.within
        self.alone = pattern.around == "alone"
        self.before = pattern.before
        self.reach = pattern.reach
        self.checked_by = pattern.check
        self.check = _CHECKS[pattern.check]

    def find(self, data: bytes, places: list[tuple[int, int]], judged: Judged) -> Iterator[Found]:
        """What this pattern finds at its keywords' places; what was judged before in this text is not judged again."""
        for match in self._matches(data, places):
            for spans in (match,) if self.inner is None else self.inner.each(data, *match[self.within]):
                begin, stop = self._value(spans)
                if begin >= stop or not self._accepts(data[begin:stop], judged):
                    continue
                if not self.alone or private_keys.is_alone(data, begin, stop):
                    yield begin, stop, self.name

    def _matches(self, data: bytes, places: list[tuple[int, int]]) -> Iterator[Spans]:
        """Where the keywords are dense, one pass goes over all of `data`: its cost does not depend on their number."""
        if len(places) <= DENSE:
            for start, end in places:
                match = self._match(data, start, end)
                if match is not None:
                    yield match
            return
        starts = {start for start, _end in places}
        for match in self.expression.each(data, 0, len(data)):
            if self.before or match[0][0] in starts:
                yield match

    def _match(self, data: bytes, start: int, end: int) -> Spans | None:
        limit = min(len(data), end + self.reach)
        if not self.before:
            return self.expression.here(data, start, limit)
        before = self.expression.each(data, max(0, start - self.before), limit)
        spans = next((spans for spans in before if spans[0][1] > start), None)
        return spans if spans is not None and spans[0][0] < end else None

    def _accepts(self, value: bytes, judged: Judged) -> bool:
        key = (self.checked_by, value)
        if key not in judged:
            judged[key] = self.check(value.decode(errors="replace"))
        return judged[key]

    def _value(self, match: Spans) -> tuple[int, int]:
        """The group that is the value, or the first after it that took part."""
        return next((span for span in match[self.value :] if span != NOWHERE), NOWHERE)


class KnownTokens:
    """All shipped patterns, ready to run; built once per process by `known_tokens`."""

    __slots__ = ("_anycase", "_exact", "_heads", "_seen", "_shaped", "_shapes")

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        self._exact: dict[bytes, tuple[_Rule, ...]] = {}
        self._anycase: dict[bytes, tuple[_Rule, ...]] = {}
        self._shaped: dict[int, tuple[_Rule, ...]] = {}
        for pattern in patterns:
            rule = _Rule(pattern)
            if pattern.head is not None:
                for first in pattern.first.encode() or range(256):
                    self._shaped[first] = (*self._shaped.get(first, ()), rule)
            table = self._anycase if pattern.anycase else self._exact
            for keyword in pattern.keywords:
                key = (keyword.lower() if pattern.anycase else keyword).encode()
                table[key] = (*table.get(key, ()), rule)
        self._heads = Expression(_heads(patterns), longest=True)
        self._shapes = Expression("|".join(pattern.head for pattern in patterns if pattern.head is not None))
        self._seen: dict[bytes, tuple[int, tuple[_Rule, ...]]] = {}

    def find(self, data: bytes) -> Iterator[Found]:
        """All secrets of known shape in `data`; they may overlap."""
        places: dict[_Rule, list[tuple[int, int]]] = {}
        for start, end in self._heads.each_last_of_a_run(data):
            skip, rules = self._rules_at(data[start:end])
            for rule in rules:
                places.setdefault(rule, []).append((start + skip, end))
        for (start, end), *_rest in self._shapes.each(data, 0, len(data)):
            for rule in self._shaped[data[start]]:
                places.setdefault(rule, []).append((start, end))
        judged: Judged = {}
        for rule, where in places.items():
            yield from rule.find(data, where, judged)

    def _rules_at(self, head: bytes) -> tuple[int, tuple[_Rule, ...]]:
        """The rules for a keyword, which may come with what counts as its edge (`%3D`, `\\n`)."""
        known = self._seen.get(head)
        if known is None:
            known = next(
                filter(lambda found: found[1], (self._look_up(head, skip) for skip in (0, 2, 3))), (0, ())
            )
            if len(self._seen) < SEEN_HEADS:
                self._seen[head] = known
        return known

    def _look_up(self, head: bytes, skip: int) -> tuple[int, tuple[_Rule, ...]]:
        """Where a longer keyword stands, a shorter one that begins it stands too (`sk-ant-`, `sk-`)."""
        text, low = head[skip:], head[skip:].lower()
        rules: list[_Rule] = []
        for length in range(len(text), 0, -1):
            rules += self._exact.get(text[:length], ()) + self._anycase.get(low[:length], ())
        return skip, tuple(rules)


def _heads(patterns: tuple[Pattern, ...]) -> str:
    """One expression for all keywords; the longest that stands somewhere is found, whatever their order."""
    groups: dict[tuple[bool, bool], dict[str, None]] = {}
    for pattern in patterns:
        loose = not pattern.edge or pattern.before > 0
        groups.setdefault((loose, pattern.anycase), {}).update(dict.fromkeys(pattern.keywords))
    return "|".join(
        f"{'' if loose else _EDGE}{'(?i:' if anycase else '(?:'}{_any_of(keywords)})"
        for (loose, anycase), keywords in groups.items()
        if keywords
    )


def _any_of(keywords: Iterable[str]) -> str:
    """An alternative of them, escaped at once: one by one it would take a third of a millisecond at each start."""
    return escaped("\n".join(sorted(keywords))).replace("\\\n", "|")


@lru_cache(maxsize=1)
def known_tokens() -> KnownTokens:
    """The shipped patterns, compiled on first use."""
    return KnownTokens(catalogue().patterns)
