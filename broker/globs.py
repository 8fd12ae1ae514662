"""Live globs, expanded by the broker itself: what a shell would have put in their place.

What always holds:
- only names beneath the jail are read: each directory is opened through the jail, so that no link leads out;
- results are sorted bytewise, a name that begins with a dot needs a dot in the pattern, `.` and `..` never match;
- no result can be taken for an option: one that begins with `-` gets `./` in front;
- nothing is left out silently: a pattern that matches nothing, too much, or a name that a person could not read (not
  UTF-8, control or invisible characters) is refused. Directories that lead out or cannot be read match nothing, as in a shell;
- names, directories and results are bounded, and what is left of the command's budget, each bound refuses, and no
  pattern takes more than time linear in pattern times name.

`**` means `*`. Character classes (`[[:alpha:]]`) and ranges are those of the C locale. Results are operands like any
other: whether they may be used is for the policy to say. This module must not decide what is a glob: `grammar` did.
"""

import os
import re
from collections.abc import Iterator

from broker.beneath import SpentError
from broker.grammar import Argv, Word
from broker.grammar_reasons import hidden_characters
from broker.jail import Jail, Located
from broker.refusal import PolicyDenied
from protocol.messages import PATH_CHARACTERS

RESULTS = 4_096
"""The most words of a command after expansion."""

RESULT_CHARACTERS = 1_048_576
NAMES = 200_000
"""The most directory entries looked at for one command."""

DIRECTORIES = 2_000

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
_UNREADABLE = re.compile("[\0-\x1f\x7f\ud800-\udfff]")
_PIECE = re.compile(r"\\([\s\S])|([*?\[])|([^\\*?\[]+)")
_LIVE = re.compile(r"(?:[^\\*?\[]|\\[\s\S])*[*?\[]")
_NEVER = "(?!)"
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NAMED = re.compile(r"\[([:.=])([^\\/]*?)\1\]")


def expand(argv: Argv, located: Located, jail: Jail) -> tuple[str, ...]:
    """Return the words of a command with each live glob replaced by what it matches, read from `located`.

    Raises PolicyDenied if a pattern matches nothing, leads out of the jail, or goes over a bound.
    """
    if not argv.has_globs:
        return argv.texts
    search = _Search(jail, located)
    words: list[str] = []
    characters = 0
    for word in argv.words:
        results = (word.text,) if word.pattern is None else search.results(word)
        words.extend(results)
        characters += sum(map(len, results))
        if len(words) > RESULTS or characters > RESULT_CHARACTERS:
            raise PolicyDenied(_too_much(word, "matches too many names"))
    return tuple(words)


class _Search:
    """The expansion of one command's patterns, within the bounds that they share."""

    def __init__(self, jail: Jail, located: Located) -> None:
        self._jail = jail
        self._located = located
        self._names = 0
        self._directories = 0

    def results(self, word: Word) -> list[str]:
        """Return what one word matches, at least one."""
        try:
            return self._results(word)
        except SpentError:
            raise PolicyDenied(_too_much(word, "has too many names to look at")) from None

    def _results(self, word: Word) -> list[str]:
        if len(word.text) > PATH_CHARACTERS:
            raise PolicyDenied(f"the pattern at column {word.column} is longer than a path may be")
        parts = (word.pattern or "").split("/")
        first = next(place for place, part in enumerate(parts) if _LIVE.match(part))
        shown = "".join(_literal(part) + "/" for part in parts[:first])
        found = [(shown, self._jail.check(shown, self._located))]
        for place in range(first, len(parts)):
            found = found and self._step(found, parts[place], word, last=place == len(parts) - 1)
        if not found:
            raise PolicyDenied(
                f"the pattern at column {word.column} matches nothing in the jail; "
                "if it is meant as text, put the word in single quotes"
            )
        return sorted("./" + shown if shown.startswith("-") else shown for shown, _ in found)

    def _step(
        self, found: list[tuple[str, str]], part: str, word: Word, *, last: bool
    ) -> list[tuple[str, str]]:
        """Return all that `found`, pairs of the text so far and the path from the root, becomes with one more part."""
        end = "" if last else "/"
        if not _LIVE.match(part):
            name = _literal(part)
            return [
                (shown + name + end, f"{path}/{name}")
                for shown, path in found
                if self._exists(path, name, last=last)
            ]
        matches = _regex(part).match
        dotted = part.startswith(".")
        step: list[tuple[str, str]] = []
        for shown, path in found:
            for name in self._list(path, directories=not last):
                if (dotted or name[0] != ".") and matches(name):
                    _check_readable(name, word)
                    step.append((shown + name + end, f"{path}/{name}"))
            if len(step) > RESULTS:
                raise PolicyDenied(_too_much(word, "matches too many names"))
        return step

    def _exists(self, path: str, name: str, *, last: bool) -> bool:
        """Whether a name without globs is there; an empty one, behind a slash at the end, wants a directory before it."""
        flags = os.O_PATH | os.O_NOFOLLOW if name and last else os.O_PATH | os.O_DIRECTORY
        try:
            os.close(self._jail.open(f"{path}/{name}".lstrip("/"), flags, self._located.budget))
        except SpentError:
            raise
        except OSError:
            return False
        return True

    def _list(self, path: str, *, directories: bool) -> Iterator[str]:
        """Yield the names in a directory beneath the jail, or with `directories` those that may be one."""
        self._directories += 1
        try:
            fd = self._jail.open(path.lstrip("/"), _READ, self._located.budget)
        except SpentError:
            raise
        except OSError:
            return
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._check_bounds()
                    if not directories or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
                        yield entry.name
        finally:
            os.close(fd)

    def _check_bounds(self) -> None:
        self._names += 1
        if self._names > NAMES or self._directories > DIRECTORIES:
            raise SpentError
        self._located.budget.spend(0)


def _too_much(word: Word, what: str) -> str:
    return f"the pattern at column {word.column} {what}; name a folder that lies deeper, or fewer files"


def _check_readable(name: str, word: Word) -> None:
    if name.isascii() and name.isprintable():
        return
    if _UNREADABLE.search(name) or hidden_characters().search(name):
        raise PolicyDenied(
            f"the pattern at column {word.column} matches a file whose name holds control, invisible or undecodable "
            "characters; name the other files one by one"
        )


def _literal(part: str) -> str:
    return re.sub(r"\\([\s\S])", r"\1", part)


def _regex(part: str) -> re.Pattern[str]:
    """Return one component of a pattern as an expression that needs no backtracking over a star that has matched.

    Between two stars the leftmost match is as good as any other, so it is kept (an atomic group).
    """
    segments = [""]
    place = 0
    while place < len(part):
        if part[place] == "[":
            piece, place = _bracket(part, place)
            segments[-1] += piece
            continue
        match = _PIECE.match(part, place)
        assert match is not None  # noqa: S101 - `grammar` never leaves a backslash at the end
        place = match.end()
        if match[2] == "*":
            segments.append("")
        else:
            segments[-1] += "[\\s\\S]" if match[2] else re.escape(match[1] or match[3])
    if len(segments) == 1:
        return re.compile(segments[0] + "\\Z")
    middle = "".join(f"(?>[\\s\\S]*?{segment})" for segment in segments[1:-1] if segment)
    return re.compile(f"{segments[0]}{middle}[\\s\\S]*{segments[-1]}\\Z")


def _bracket(part: str, start: int) -> tuple[str, int]:
    """Return the bracket expression at `start` as a set, and where it is over (XBD 9.3.5, XCU 2.13.1)."""
    place = start + 1
    negated = part[place] in "!^"
    place += negated
    first, members = place, ""
    while part[place] != "]" or place == first:
        named = _NAMED.match(part, place)
        if named and named[1] == ":":
            if named[2] not in _CLASSES:
                return _NEVER, _end_of_bracket(part, named.end())
            members += _CLASSES[named[2]]
            place = named.end()
            continue
        low, place = _member(part, place)
        if part[place] == "-" and part[place + 1] != "]":
            high, place = _member(part, place + 1)
            members += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            members += re.escape(low)
    if not members:
        return ("[\\s\\S]" if negated else _NEVER), place + 1
    return f"[{'^' if negated else ''}{members}]", place + 1


def _member(part: str, place: int) -> tuple[str, int]:
    named = _NAMED.match(part, place)
    if named and named[1] != ":" and len(named[2]) == 1:
        return named[2], named.end()
    if part[place] == "\\":
        return part[place + 1], place + 2
    return part[place], place + 1


def _end_of_bracket(part: str, place: int) -> int:
    while part[place] != "]":
        _, place = _member(part, place)
    return place + 1
