"""The verdict: which program a command names, and whether the policy allows its arguments. Deny by default, deny wins.

Always true: `permit` takes what `choose` returned; both refuse by raising; the words that are checked are the words that
run, globs expanded; every word that the rule does not call text has been led to its end in the jail. Nothing is run here.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from broker.digest import sha256_hex
from broker.grammar import Argv
from broker.jail import Jail, Located
from broker.kinds import Kind
from broker.options import Word
from broker.paths import declared, from_folder, undeclared, written_like
from broker.policy_file import expanded
from broker.profile import Profile
from broker.programs import Program, Programs
from broker.reasons import denied, shortened, shown_match, shown_program
from broker.refusal import REASON_CHARACTERS, CwdEscape, ExecutorError, PolicyDenied
from broker.rules import Entry, Judged, OptionSets
from broker.schema import Limits, PolicyFile, Rule
from broker.virtual_environment import places_of


class Listed(NamedTuple):
    """A command whose program is on the allow list and on no deny list."""

    name: str
    argv: Argv
    entry: Entry


class Permitted(NamedTuple):
    """A command that may run, complete: what starts, with which words, variables, rights and limits, and why.

    `argv` is as it was called: of a script its name, not its interpreter's.
    """

    program: Program
    argv: tuple[str, ...]
    environment: dict[str, str]
    profile: Profile
    limits: Limits
    reason: str


class _Granted(NamedTuple):
    """What the rules that a command passed grant it: found out once, as programs are pinned."""

    environment: dict[str, str]
    profile: Profile
    limits: Limits
    reason: str


class Policy:
    """The policy in force. `digest` is the SHA-256 of the file's bytes, `programs` the names that may be called."""

    def __init__(self, file: PolicyFile, raw: bytes, jail: Jail, programs: Programs) -> None:
        self.file = file
        self.jail = jail
        self.digest = sha256_hex(raw)
        self.lookup = programs
        denied_names = {os.path.basename(name) for name in file.commands.deny}
        self._denied = frozenset(denied_names)
        self._allowed = dict.fromkeys(file.commands.allow)
        self._sets = OptionSets(file.options)
        self._entries: dict[str, Entry] = {}
        self._grants: dict[tuple[Entry, ...], _Granted] = {}
        self.programs = tuple(name for name in self._allowed if os.path.basename(name) not in denied_names)
        self.suggests = True

    def choose(self, argv: Argv) -> Listed:
        """Return the command's entry by the lists alone. Raises PolicyDenied."""
        name = argv.words[0].text
        if os.path.basename(name) in self._denied:
            raise denied(f"{shown_program(name)} is on the deny list", "[commands] deny")
        if name in self._allowed:
            return Listed(name, argv, self.entry(name))
        what = "a program is called by its name alone, not by a path"
        if "/" not in name:
            what = f"{shown_program(name)} is not on the allow list"
        raise denied(what, "[commands] allow", self._instead(name))

    def _instead(self, name: str) -> str:
        """Return what to call instead of a program that is on no list, or is not here."""
        if not self.suggests:
            return ""
        from broker.nearest import instead_of  # no command that is allowed pays for it

        return instead_of(self, name)

    @property
    def callable(self) -> tuple[str, ...]:
        """The names that may be called, less those that this machine lacks."""
        return tuple(name for name in self.programs if self.lookup.problem(name) is None)

    def entry(self, name: str) -> Entry:
        """Return the compiled rule of a listed program; one without a rule may have any arguments beneath the jail."""
        entry = self._entries.get(name)
        if entry is None:
            rule = self.file.rules.get(name)
            place = f"[rules.{name}]" if rule else "[commands] allow"
            entry = self._entries[name] = Entry(name, place, rule or Rule(), self._sets)
        return entry

    def permit(self, listed: Listed, located: Located) -> Permitted:
        """Return the command as it may run in `located`. Raises PolicyDenied, or ExecutorError if the program is missing."""
        words, matches = listed.argv.texts, frozenset[str]()
        if listed.argv.has_globs:
            from broker import globs  # few starts need it, and its patterns take a millisecond to compile

            words = globs.expand(listed.argv, located, self.jail)
            matches = frozenset(words).difference(listed.argv.texts)
        judged = listed.entry.judge(list(words[1:]))
        try:
            self._check_paths(judged, located)
        except _PathRefused as refused:
            raise _path_refusal(refused, judged, matches) from None
        program = self._program(listed.name)
        granted = self._granted(tuple(judged.entries), program)
        return Permitted(program, (listed.name, *judged.words), *granted)

    def _program(self, name: str) -> Program:
        try:
            return self.lookup.get(name)
        except ExecutorError as missing:
            if not (instead := self._instead(name)):
                raise
            why = shortened(missing.reason, REASON_CHARACTERS - len(instead) - 2)
            raise ExecutorError(f"{why}; {instead}") from None

    def _check_paths(self, judged: Judged, located: Located) -> None:
        """Lead each path to its end, from the folder that the command is in by then."""
        folder: Located | None = None
        try:
            for word in judged.paths:
                self._check_path(word, folder or located)
                if word.kind is not None and word.kind.folder:
                    inner = self._enter(word, folder or located)
                    if folder is not None:
                        folder.close()
                    folder = inner
        finally:
            if folder is not None:
                folder.close()

    def _check_path(self, word: Word, located: Located) -> None:
        try:
            for part in _parts(word):
                if part:
                    _check_text(part)
                    if word.kind is not None and word.kind.ends:
                        self._check_end(word.kind, word.text, part, located)
                    else:
                        self.jail.check(part, located)
        except PolicyDenied as refusal:
            raise _PathRefused(word, refusal.reason) from None

    def _check_end(self, kind: Kind, word: str, part: str, located: Located) -> None:
        """Lead a path to its end, which must be of the kind as much as the word is: links have names of their own."""
        end = self.jail.end(part, located)
        before = word.removesuffix(part)
        written = written_like(part, end, located.relative, (self.jail.root, self.jail.real))
        names = (from_folder(end, located.relative), end or ".")
        if not kind.accepts_end(tuple(before + name for name in written), names):
            raise PolicyDenied(
                f"the path leads to a place that is not allowed; expected {kind.expectation()}"
            )

    def _enter(self, word: Word, located: Located) -> Located:
        inside = word.text if word.text.startswith("/") else os.path.join(located.relative, word.text)
        try:
            return self.jail.locate(inside, located.budget)
        except CwdEscape as refusal:
            why = "the folder" + refusal.reason.partition(";")[0].removeprefix("cwd")
            raise _PathRefused(word, why) from None

    def _granted(self, entries: tuple[Entry, ...], program: Program) -> _Granted:
        granted = self._grants.get(entries)
        if granted is None:
            rules = [entry.rule for entry in entries]
            granted = self._grants[entries] = _Granted(
                environment=_environment(rules),
                profile=self._profile(rules, program),
                limits=_limits(self.file.limits, rules),
                reason=f"allowed by {entries[-1].place}",
            )
        return granted

    def _profile(self, rules: list[Rule], program: Program) -> Profile:
        may_run = tuple(self._may_run(rules))
        surroundings = (place for each in (program, *may_run) for place in places_of(each.found))
        return Profile(
            writes=any(rule.writes for rule in rules),
            network=any(rule.network for rule in rules),
            may_run=may_run,
            may_run_own=any(rule.may_run_own for rule in rules),
            read=tuple(dict.fromkeys((*(path for rule in rules for path in rule.read), *surroundings))),
            temporary=any(rule.temporary for rule in rules),
        )

    def _may_run(self, rules: list[Rule]) -> Iterator[Program]:
        """Yield the programs that may be started and are there; deny wins here too."""
        for name in dict.fromkeys(name for rule in rules for name in expanded(rule.may_run)):
            if os.path.basename(name) not in self._denied and self.lookup.problem(name) is None:
                yield self.lookup.get(name)

    def describe(self) -> str:
        """Return the policy for a model to read, under 8 KiB."""
        from broker.describe import describe

        return describe(self)

    def self_test(self) -> list[str]:
        """Run the file's own tests, starting nothing; return a line for each that fails."""
        from broker.selftest import failures

        return failures(self)


def _parts(word: Word) -> Iterable[str]:
    """Return what of `word` may be a path, by what its rule says of it."""
    if word.kind is None or word.kind.scanned:
        return undeclared(word.text)
    return (word.text,) if word.kind.revision else declared(word.text)


def _check_text(part: str) -> None:
    if part[0] == "~":
        raise PolicyDenied("begins with `~`, which is not expanded; write the path itself")
    if "\n" in part:
        raise PolicyDenied("holds a newline, which no path here may have")


class _PathRefused(Exception):
    """A word whose path leads where it may not, and why."""

    def __init__(self, word: Word, why: str) -> None:
        self.word = word
        self.why = why


def _path_refusal(refused: _PathRefused, judged: Judged, matches: frozenset[str]) -> PolicyDenied:
    """Return the reason; of `matches`, which nobody typed, the name is said."""
    word = refused.word
    where = f"the value of {word.option}" if word.option else f"word {word.number}"
    if word.text in matches:
        where = f"{shown_match(word.text)}, which the pattern matches"
    return denied(f"{judged.entries[-1].name}: {where}: {refused.why}", judged.entries[-1].place)


def _environment(rules: list[Rule]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for rule in rules:
        variables.update(rule.environment)
    return variables


def _limits(limits: Limits, rules: list[Rule]) -> Limits:
    """Return `limits` with what the rules say of their own, the innermost last."""
    changes: dict[str, int | float] = {}
    for rule in rules:
        for name in rule.limits.__struct_fields__:
            value = getattr(rule.limits, name)
            if value is not None:
                changes[name] = value
    return msgspec.structs.replace(limits, **changes) if changes else limits
