"""Options that a rule denies, found however a program would let them be written.

Always true: where the rule also lists what is allowed, the exact reading decides. Where it does not, nothing is known of
the other options, so every word that could hold a denied one is refused: any abbreviation of a long name, any cluster
that has the letter, and words behind `--` too when the word in front of it may have taken it as its value.
"""

from collections.abc import Iterator

from broker.options import Option
from broker.reasons import RuleError, denied, option_name


def bare_name(name: str) -> str:
    """Return `name` if it is an option's name alone. Raises RuleError."""
    if not name.startswith("-") or name.strip("-") == "" or "=" in name or " " in name:
        raise RuleError(f"deny_options: {name!r}: a bare option name such as '-o' or '--output' is expected")
    return name


class DeniedOptions:
    """The `deny_options` of one rule."""

    __slots__ = ("_exact", "_letters", "_longs", "_place", "_style")

    def __init__(self, names: tuple[str, ...], style: str, place: str) -> None:
        self._place = place
        self._style = style
        self._exact = frozenset(names)
        self._letters = frozenset(name[1] for name in names if len(name) == 2)
        self._longs = tuple(name for name in names if len(name) > 2)

    def check(self, words: list[str], first_index: int) -> None:
        """Raise PolicyDenied if a word of `words` could be, or hold, a denied option."""
        if not self._exact:
            return
        for index, word in self._option_words(words, first_index):
            if self._could_hold(word):
                raise self._refusal(option_name(word), index)

    def _option_words(self, words: list[str], first_index: int) -> Iterator[tuple[int, str]]:
        previous = ""
        for index, word in enumerate(words, first_index):
            takes_next = previous.startswith("-") and previous != "-" and "=" not in previous
            if word == "--" and not takes_next and self._style != "single-dash":
                return
            previous = word
            if word.startswith("-") and len(word) > 1:
                yield index, word

    def _could_hold(self, word: str) -> bool:
        name = word.partition("=")[0]
        if self._style == "single-dash":
            bare = name.lstrip("-")
            return any(bare == denied_name.lstrip("-") for denied_name in self._exact)
        if len(name) > 2 and any(denied_name.startswith(name) for denied_name in self._longs):
            return True
        return not word.startswith("--") and not self._letters.isdisjoint(name[1:].partition("/")[0])

    def check_given(self, given: set[str], options: dict[str, Option]) -> None:
        """Raise PolicyDenied if one of `given`, canonical names of `options`, is denied under any of its names."""
        for name in self._exact:
            option = options.get(name)
            if option is not None and option.name in given:
                raise self._refusal(name, None)

    def _refusal(self, name: str, index: int | None) -> Exception:
        where = "" if index is None else f": word {index}"
        return denied(
            f"option {name} is denied, or could be one that is{where}", f"{self._place} deny_options"
        )
