"""How a program reads its own arguments: which words are options, which are their values, which are operands.

Always true: an option that is not in the table is refused, and so is every abbreviation of one: what a program would
make of it depends on options that the policy does not know. The reading follows getopt_long(3) ("gnu") and
find(1) ("single-dash"); a word is never read in two ways, and what may be an option is never taken for a value of its own.
"""

from typing import NamedTuple

from broker.kinds import Kind, kind
from broker.reasons import RuleError, denied, option_name
from broker.refusal import PolicyDenied
from broker.schema import Rule


class Option(NamedTuple):
    """One option: the name that reasons use, the kinds of its values, and whether they may be missing."""

    name: str
    kinds: tuple[Kind, ...]
    mode: str = "="
    """`=`, ` =`, `[=` or `?=`, as in the policy (schema.Rule)."""


class Word(NamedTuple):
    """One word of the command that has to be of a kind. `number` counts from 1, the program is 0."""

    text: str
    kind: Kind | None
    number: int
    option: str = ""
    after_dashes: bool = False


class Reading(NamedTuple):
    """A command as its program reads it."""

    values: list[Word]
    operands: list[Word]
    given: set[str]


class OptionTable:
    """The options that a rule allows, by exact name. `instead` is advice on options that it does not allow."""

    def __init__(self, rule: Rule, place: str) -> None:
        self.single_dash = rule.option_style == "single-dash"
        self.options_first = rule.options_first
        self.place = place
        self.advice = rule.instead
        self.options: dict[str, Option] = {}
        self.numeric = False
        self.specs: list[str] = []

    def add(self, spec: str) -> None:
        """Take one string of `allow_options`, no set. Raises RuleError."""
        self.specs.append(spec)
        if spec == "-NUM":
            self.numeric = True
            return
        if "=" in spec or "," in spec:
            names, mode, kinds = _split(spec)
            option = Option(names[0], kinds, mode)
            for name in names:
                self._add_name(name, option, spec)
            return
        for name in spec.split(" "):
            for each in _negatable(name):
                self._add_name(each, Option(each, ()), spec)

    def _add_name(self, name: str, option: Option, spec: str) -> None:
        if name.startswith("--") and len(name) > 2 and " " not in name:
            self.options[name] = option
        elif name[:1] != "-" or name in ("-", "--") or " " in name:
            raise RuleError(f"{spec!r}: an option's name begins with '-' and has no space")
        elif len(name) == 2 or self.single_dash:
            self.options[name] = option
        elif option.kinds:
            raise RuleError(f"{spec!r}: several letters after one '-' are flags, which take no value")
        else:
            self.options.update(("-" + letter, Option("-" + letter, ())) for letter in name[1:])

    def include(self, other: "OptionTable") -> None:
        """Take all options of `other`."""
        self.options.update(other.options)
        self.specs += other.specs
        self.numeric = self.numeric or other.numeric

    def instead(self, name: str) -> str:
        """Return what is allowed in place of the option `name`, for a reason."""
        advice = self.advice.get(name)
        if advice:
            return advice
        return "allowed: " + (" ".join(self.names()) or "no options")

    def names(self) -> list[str]:
        """Return the options in short, those that have a one-letter name first."""
        names = [name for spec in self.specs for name in _brief(spec)]
        return sorted(names, key=lambda name: name.startswith("--"))


def _brief(spec: str) -> list[str]:
    names = _divide(spec)[0].replace("[no-]", "")
    return [names.replace(", ", ",")] if "," in names else names.split(" ")


def _divide(spec: str) -> tuple[str, str, str]:
    """Return names, mode and kinds as they stand in `spec`."""
    names, _separator, kinds = spec.partition("=")
    for mode in ("[=", "?=", " ="):
        if names.endswith(mode[0]):
            return names[:-1], mode, kinds.removesuffix("]") if mode == "[=" else kinds
    return names, "=", kinds


def _negatable(name: str) -> tuple[str, ...]:
    return ("--" + name[7:], "--no-" + name[7:]) if name.startswith("--[no-]") else (name,)


def _split(spec: str) -> tuple[tuple[str, ...], str, tuple[Kind, ...]]:
    names_text, mode, kinds_text = _divide(spec)
    if not kinds_text and "=" in spec:
        raise RuleError(f"{spec!r}: a kind is expected after '='")
    names = [each for name in names_text.split(", ") for each in _negatable(name)]
    parts = [kinds_text] if "/" in kinds_text else kinds_text.split()
    return tuple(names), mode, tuple(kind(part) for part in parts)


class _Reader:
    """One pass over the words of one command."""

    def __init__(self, table: OptionTable, first_index: int, *, stop: bool) -> None:
        self.table = table
        self.reading = Reading([], [], set())
        self.first_index = first_index
        self.stop = stop
        self.position = 0

    def read(self, words: list[str]) -> int:
        """Read `words`; return how many were taken (all, unless `stop`: then up to the first operand)."""
        ended = after_dashes = False
        single_dash = self.table.single_dash
        while self.position < len(words):
            word = words[self.position]
            if ended or word == "-" or not word.startswith("-"):
                if self.stop:
                    return self.position
                ended = ended or self.table.options_first
                place = self.first_index + self.position
                self.reading.operands.append(Word(word, None, place, "", after_dashes))
            elif word == "--" and not single_dash:
                ended = after_dashes = True
            elif single_dash or word.startswith("--"):
                self._long(word, words)
            else:
                self._cluster(word, words)
            self.position += 1
        return self.position

    def _value(self, option: Option, number: int, text: str) -> None:
        place = self.first_index + self.position
        self.reading.values.append(Word(text, option.kinds[number], place, option.name))

    def _following(self, option: Option, words: list[str], since: int = 0) -> None:
        """Take the values of `option` that stand in the following words."""
        for number in range(since, len(option.kinds)):
            if self.position + 1 >= len(words):
                if option.mode == "?=":
                    return
                raise denied(
                    f"{option.name} needs a value", self.table.place, option.kinds[number].expectation()
                )
            self.position += 1
            if number == 0 and option.mode == "=" and self._looks_like_option(words[self.position]):
                attached = f"{option.name}=VALUE" if option.name.startswith("--") else f"{option.name}VALUE"
                raise denied(
                    f"the value of {option.name} looks like an option",
                    self.table.place,
                    f"one word for both: {attached}",
                )
            self._value(option, number, words[self.position])

    def _looks_like_option(self, word: str) -> bool:
        """Whether a program in whose version the option before takes no value would read the word as a long one."""
        return not self.table.single_dash and word.startswith("--") and word != "--"

    def _long(self, word: str, words: list[str]) -> None:
        name, separator, attached = word.partition("=")
        option = self.table.options.get(name)
        if option is None:
            raise self._unknown(name)
        self.reading.given.add(option.name)
        if separator:
            if not option.kinds or option.mode in (" =", "?="):
                instead = "its value is the next word" if option.kinds else "it takes none"
                raise denied(f"option {name} has no value after '='", self.table.place, instead)
            self._value(option, 0, attached)
            self._following(option, words, 1)
        elif option.mode != "[=":
            self._following(option, words)

    def _cluster(self, word: str, words: list[str]) -> None:
        if self.table.numeric and word[1:].isascii() and word[1:].isdigit():
            self.reading.given.add("-NUM")
            return
        for place in range(1, len(word)):
            option = self.table.options.get("-" + word[place])
            if option is None:
                raise self._unknown(word, "-" + word[place])
            self.reading.given.add(option.name)
            if option.kinds:
                self._cluster_value(option, word[place + 1 :], words)
                return

    def _cluster_value(self, option: Option, attached: str, words: list[str]) -> None:
        if attached and option.mode == " =":
            raise denied(f"the value of {option.name} must be the next word", self.table.place)
        if attached:
            self._value(option, 0, attached)
            self._following(option, words, 1)
        elif option.mode != "[=":
            self._following(option, words)

    def _unknown(self, word: str, letter: str = "") -> PolicyDenied:
        table, name = self.table, option_name(word)
        where = f"word {self.first_index + self.position}"
        full = [known for known in table.options if known.startswith(name)] if name.startswith("--") else []
        if full and name != "--" and name not in table.advice:
            meant = f"write it out, if that is meant: {' or '.join(full)}"
            return denied(f"option {name} is not allowed: {where}", table.place, meant)
        named = option_name(letter) if letter else name
        inside = f" in {name}" if letter and len(name) > 2 else ""
        return denied(f"option {named}{inside} is not allowed: {where}", table.place, table.instead(named))


def read(table: OptionTable, words: list[str], first_index: int = 1) -> Reading:
    """Return `words` as the program reads them. Raises PolicyDenied for an option that is not in `table`."""
    reader = _Reader(table, first_index, stop=False)
    reader.read(words)
    return reader.reading


def read_leading(table: OptionTable, words: list[str], first_index: int = 1) -> tuple[Reading, int]:
    """Read the options in front of the first operand; also return how many words they are."""
    reader = _Reader(table, first_index, stop=True)
    taken = reader.read(words)
    return reader.reading, taken
