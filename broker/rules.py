"""One entry of the policy, compiled: judging the words of a command against it.

Always true: the words are read once, as the program reads them, and each word that is not an option of the rule is of a
kind that the rule names; without such a rule, every part of every word that could be a path is to be checked. Judging
does no I/O: what has to be looked up in the jail is returned in `Judged.paths`.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.deny import DeniedOptions, bare_name
from broker.kinds import NONE, SCANNED, Kind, kind
from broker.options import OptionTable, Reading, Word, read, read_leading
from broker.reasons import RuleError, denied, shown
from broker.schema import Rule


class Judged(NamedTuple):
    """Words that a rule allows: the complete arguments, the words whose path is still to be checked, the rules passed."""

    words: list[str]
    paths: list[Word]
    entries: list["Entry"]


class OptionSets:
    """The table `[options]`: named sets of option strings, each compiled once."""

    def __init__(self, sets: dict[str, tuple[str, ...]]) -> None:
        self._sets = sets
        self._compiled: dict[tuple[str, str], OptionTable] = {}
        self._open: set[str] = set()

    def fill(
        self, table: OptionTable, specs: tuple[str, ...], rule: Rule, fault: Callable[[RuleError], None]
    ) -> None:
        """Add `specs`, sets included, to `table`; report what cannot be meant to `fault`."""
        for spec in specs:
            try:
                if spec.startswith("@"):
                    table.include(self._set(spec[1:], rule, fault))
                else:
                    table.add(spec)
            except RuleError as error:
                fault(RuleError(f"allow_options: {error}"))

    def _set(self, name: str, rule: Rule, fault: Callable[[RuleError], None]) -> OptionTable:
        if name not in self._sets:
            raise RuleError(f"'@{name}': [options] has no such set; it has {', '.join(self._sets) or 'none'}")
        if name in self._open:
            raise RuleError(f"'@{name}': a set of [options] that does not contain itself is expected")
        table = self._compiled.get((name, rule.option_style))
        if table is None:
            table = self._compiled[name, rule.option_style] = OptionTable(rule, f"[options] {name}")
            self._open.add(name)
            self.fill(table, self._sets[name], rule, fault)
            self._open.discard(name)
        return table


class Entry:
    """A rule of the policy with everything that is needed to judge by it.

    Built from a rule with a fault it raises RuleError, or, given a list `faults`, adds a line for each and goes on.
    """

    __slots__ = (
        "_denied",
        "_faults",
        "_operands",
        "_operands_with",
        "_sets",
        "_subcommands",
        "_table",
        "name",
        "place",
        "rule",
        "subcommand_names",
    )

    def __init__(
        self, name: str, place: str, rule: Rule, sets: OptionSets, faults: list[str] | None = None
    ) -> None:
        self.name = name
        self.place = place
        self.rule = rule
        self._sets = sets
        self._faults = faults
        self.subcommand_names = tuple(rule.subcommand) if rule.subcommands is None else rule.subcommands
        self._table = self._compile_table()
        self._denied = self._compile_denied()
        default = None if self._table is None else ("path",)
        kinds = default if rule.operands is None else rule.operands
        self._operands = None if kinds is None else self._compile_operands(kinds)
        self._operands_with = {}
        for option, kinds in rule.operands_with.items():
            self._operands_with[self._canonical(option, "operands_with")] = self._compile_operands(kinds)
        for option in rule.require_options:
            self._canonical(option, "require_options")
        self._subcommands: dict[str, Entry] = {}
        if faults is not None:
            self._check_subcommands()

    def _fault(self, fault: RuleError) -> None:
        if self._faults is None:
            raise fault
        self._faults.append(f"{self.place}: {fault}")

    def _compile_table(self) -> OptionTable | None:
        """Return the options, or None if any may pass. In front of a subcommand only listed ones may."""
        allowed = self.rule.allow_options
        if allowed is None:
            if not self.has_subcommands:
                return None
            allowed = ()
        table = OptionTable(self.rule, self.place)
        self._sets.fill(table, allowed, self.rule, self._fault)
        return table

    @property
    def has_subcommands(self) -> bool:
        """Whether the first operand has to be a subcommand."""
        return self.rule.subcommands is not None or bool(self.rule.subcommand)

    def _compile_denied(self) -> DeniedOptions:
        good = []
        for name in self.rule.deny_options:
            try:
                good.append(bare_name(name))
            except RuleError as fault:
                self._fault(fault)
        return DeniedOptions(tuple(good), self.rule.option_style, self.place)

    def _compile_operands(self, kinds: tuple[str, ...]) -> tuple[Kind, ...]:
        compiled = []
        for text in kinds:
            try:
                compiled.append(kind(text))
            except RuleError as fault:
                self._fault(RuleError(f"operands: {fault}"))
        return tuple(compiled) or (NONE,)

    def _canonical(self, name: str, key: str) -> str:
        option = self._table.options.get(name) if self._table else None
        if option is not None:
            return option.name
        self._fault(RuleError(f"{key}: {name!r}: an option of allow_options is expected"))
        return name

    def _check_subcommands(self) -> None:
        for name in sorted(self.rule.subcommand.keys() - set(self.subcommand_names)):
            self._fault(RuleError(f"subcommand.{name}: a name in {self.place} subcommands is expected"))
        for name in self.subcommand_names:
            self.subcommand(name)

    def subcommand(self, name: str) -> "Entry":
        """Return the entry of one of `subcommand_names`."""
        entry = self._subcommands.get(name)
        if entry is None:
            place = f"{self.place.removesuffix(']')}.subcommand.{name}]"
            rule = self.rule.subcommand.get(name, Rule())
            entry = self._subcommands[name] = Entry(
                f"{self.name} {name}", place, rule, self._sets, self._faults
            )
            entry.inherit_advice(self._table)
        return entry

    def inherit_advice(self, outer: OptionTable | None) -> None:
        """Take the advice on options written out that the entry around this one gives, where this has none of its own."""
        if outer is not None and self._table is not None:
            options = {name: text for name, text in outer.advice.items() if name.startswith("--")}
            self._table.advice = {**options, **self.rule.instead}

    def judge(self, words: list[str], first_index: int = 1) -> Judged:
        """Return what of `words` still has to be checked. Raises PolicyDenied."""
        before = list(self.rule.arguments_before)
        if self.rule.arguments == "any":
            return Judged(before + words, [], [self])
        self._denied.check(words, first_index)
        self._check_beginnings(words, first_index)
        if self._table is None:
            return Judged(before + words, self._unread(words, first_index), [self])
        if self.has_subcommands:
            return self._judge_subcommand(self._table, words, first_index)
        reading = read(self._table, words, first_index)
        paths = self._check_options(reading) + self._check_operands(reading)
        return Judged(before + words, paths, [self])

    def _check_beginnings(self, words: list[str], first_index: int) -> None:
        start = self.rule.no_word_begins_with
        if not start:
            return
        for number, word in enumerate(words, first_index):
            if word.startswith(start):
                what = (
                    f"{self.name}: word {number} begins with '{start}', which reads further words from a file"
                )
                raise denied(what, self.place, f"a file of that name is ./{start}…")

    def _judge_subcommand(self, table: OptionTable, words: list[str], first_index: int) -> Judged:
        before = list(self.rule.arguments_before)
        reading, taken = read_leading(table, words, first_index)
        paths = self._check_options(reading, required=taken < len(words))
        if taken == len(words):
            if self.rule.subcommand_optional:
                return Judged(before + words, paths, [self])
            raise denied(f"{self.name} needs a subcommand", self.place, self._names())
        name = words[taken]
        if name not in self.subcommand_names:
            what = f"{self.name}: subcommand {shown(name)} is not allowed"
            raise denied(what, self.place, self.rule.instead.get(name) or self._elsewhere(name))
        inner = self.subcommand(name).judge(words[taken + 1 :], first_index + taken + 1)
        return Judged(before + words[: taken + 1] + inner.words, paths + inner.paths, [self, *inner.entries])

    def _elsewhere(self, untrusted_name: str) -> str:
        from broker.nearest import profile_with  # no command that is allowed pays for it

        return profile_with(self.name, untrusted_name) or self._names(untrusted_name)

    def _names(self, untrusted_name: str = "") -> str:
        """Return the subcommands, those first that `untrusted_name` was perhaps meant to be."""
        from broker.nearest import nearest  # no command that is allowed pays for it

        near = nearest(untrusted_name, self.subcommand_names)
        rest = [name for name in self.subcommand_names if name not in near]
        return "allowed: " + ", ".join([*near, *rest])

    def _check_options(self, reading: Reading, *, required: bool = True) -> list[Word]:
        self._denied.check_given(reading.given, self._table.options if self._table else {})
        for name in self.rule.require_options if required else ():
            if self._canonical(name, "require_options") not in reading.given:
                instead = self.rule.instead.get("operands", "")
                raise denied(f"{self.name} is allowed only with {name}", self.place, instead)
        for word in reading.values:
            self._check_kind(word)
        return [word for word in reading.values if word.kind and (word.kind.path or word.kind.scanned)]

    def _check_operands(self, reading: Reading) -> list[Word]:
        kinds = self._operands_given(reading) or (NONE,)
        paths = []
        for number, operand in enumerate(reading.operands):
            expected = kinds[min(number, len(kinds) - 1)]
            if expected.revision and operand.after_dashes:
                expected = expected.as_path()
            word = operand._replace(kind=expected)
            self._check_kind(word)
            if expected.path or expected.scanned:
                paths.append(word)
        return paths

    def _operands_given(self, reading: Reading) -> tuple[Kind, ...] | None:
        for name, kinds in self._operands_with.items():
            if name in reading.given:
                return kinds
        return self._operands

    def _unread(self, words: list[str], first_index: int) -> list[Word]:
        """Return all words, to be scanned; operands that the rule declares keep their kind."""
        found, number, after_dashes = [], 0, False
        for place, text in enumerate(words, first_index):
            expected = SCANNED
            if self._operands is not None and (after_dashes or not text.startswith("-")):
                expected = self._operands[min(number, len(self._operands) - 1)]
                expected = expected.as_path() if expected.revision and after_dashes else expected
                number += 1
            after_dashes = after_dashes or text == "--"
            word = Word(text, expected, place)
            self._check_kind(word)
            if expected.path or expected.scanned:
                found.append(word)
        return found

    def _check_kind(self, word: Word) -> None:
        if word.kind is None or word.kind.accepts(word.text):
            return
        where, instead = f"the value of {word.option}", ""
        if not word.option:
            is_path = word.kind.path or word.kind.scanned
            where = f"operand {shown(word.text, is_path=is_path)} (word {word.number})"
            instead = self.rule.instead.get("operands", "")
        if word.kind is NONE:
            here, expected = " here", self.operands_in_short()
        else:
            here, expected = "", "expected " + word.kind.expectation()
        if instead and not word.kind.speaks:
            expected = instead
        raise denied(f"{self.name}: {where} is not allowed{here}", self.place, expected)

    def operands_in_short(self) -> str:
        """Return the kinds of operands in words, for a reason or a description."""
        if self._operands is None:
            return "operands: any, paths beneath the jail"
        return (
            "operands: "
            + " ".join(entry.text for entry in self._operands)
            + ("" if self._operands[-1] is NONE else " …")
        )

    def options(self) -> OptionTable | None:
        """Return the allowed options; None where any passes."""
        return self._table
