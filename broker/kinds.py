"""What a word of a command may be: the kinds of operands and of option values, compiled from the policy's words.

Always true: a kind that is not understood is an error when the policy is read, never a kind that accepts. A kind only
looks at text; where a path leads is asked of the jail, for kinds whose `path` is true, in `paths`. A kind with `ends` is
asked of that place too: a link gives nothing that its target, written as the word, would not.
"""

from broker.reasons import RuleError
from broker.regex_engine import Expression, ExpressionError

_PATHS = frozenset({"path", "folder", "revision-or-path"})
_NAMED = _PATHS | {"text", "integer", "revision", "none", "scanned"}


class Kind:
    """One kind. `path`: where the word leads is checked. `folder`: later paths are relative to it.

    `scanned`: nothing is known of the word, so that every part of it that could be a path is checked. `ends`: the
    expression must hold for the place that a path ends at, too. `speaks`: what is expected can be said in words.
    """

    __slots__ = (
        "_choices",
        "_expression",
        "_name",
        "_wanted",
        "ends",
        "folder",
        "path",
        "revision",
        "scanned",
        "speaks",
        "text",
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self._choices: frozenset[str] = frozenset()
        self._expression: Expression | None = None
        self._wanted = True
        name = self._split_expression(text)
        if "|" in name:
            self._choices, name = frozenset(name.split("|")), "choice"
        elif name not in _NAMED:
            raise _no_kind(text)
        self._name = name
        self.path = name in _PATHS
        self.folder = name == "folder"
        self.revision = name.startswith("revision")
        self.scanned = name == "scanned"
        self.speaks = self._expression is None and name != "none"
        self.ends = self.path and self._expression is not None

    def _split_expression(self, text: str) -> str:
        """Take the expression off `text`; return the name in front of it."""
        name, separator, expression = text.partition("&")
        if text.startswith("/"):
            name, separator, expression = "text", "&", text
        if not separator:
            return text
        self._wanted = not expression.startswith("!")
        expression = expression.removeprefix("!")
        if len(expression) < 3 or expression[0] != "/" or expression[-1] != "/":
            raise RuleError(f"{text!r}: an expression between two '/' is expected")
        self._expression = _compile(expression[1:-1], whole=self._wanted)
        return name

    def accepts(self, word: str) -> bool:
        """Return whether the text of `word` is of this kind. Linear in its length."""
        if self._expression is not None and _matches(self._expression, word) is not self._wanted:
            return False
        name = self._name
        if name == "integer":
            digits = word[1:] if word[:1] in ("-", "+") else word
            return digits.isascii() and digits.isdigit()
        if name == "choice":
            return word in self._choices
        if self.revision:
            return not word.startswith("-")
        return name != "none"

    def accepts_end(self, as_written: tuple[str, ...], names: tuple[str, ...]) -> bool:
        """Return whether a path may end at a place: what is wanted matches one of its names, written as the word was.

        What is not wanted is in none of its `names` beneath the jail.
        """
        if self._expression is None:
            return True
        tried = as_written if self._wanted else names
        return any(_matches(self._expression, name) for name in tried) is self._wanted

    def as_path(self) -> "Kind":
        """Return the kind of a word that cannot be a revision any more, since it stands behind `--`."""
        return kind("path" + self.text[len(self._name) :])

    def expectation(self) -> str:
        """Return what is expected, for a reason: `a path in the jail`, `an integer`, `one of a, b`."""
        if self._name == "choice":
            return "one of " + ", ".join(sorted(self._choices))
        if self._expression is not None:
            matches = "what matches" if self._wanted else "what has no match of"
            return f"{matches} {self.text.partition('&')[2].removeprefix('!') or self.text}"
        return _EXPECTATIONS.get(self._name, self._name)


def _no_kind(text: str) -> RuleError:
    from broker.nearest import nearest  # only for a policy that is refused

    known = sorted(_NAMED - {"scanned"})
    near = nearest(text, known)
    alone = f"; the word itself is written '/{_literally(text)}/'" if text and not near else ""
    meant = f"{near[0]} is meant, perhaps" if near else f"{', '.join(known)}, a|b or /…/ is expected{alone}"
    return RuleError(f"{text!r} is no kind; {meant}")


def _literally(text: str) -> str:
    import re

    return re.escape(text)


_EXPECTATIONS = {
    "path": "a path beneath the jail",
    "folder": "a folder beneath the jail",
    "integer": "an integer",
    "revision": "a revision that does not begin with - (the branch before is @{-1})",
    "revision-or-path": "a revision, or a path beneath the jail (the branch before is @{-1})",
    "none": "nothing",
}


def _compile(expression: str, *, whole: bool) -> Expression:
    """Return `expression`, for the whole word or any part. It is tried by itself too, so that `a)|(b` stays a fault."""
    compiled = Expression(expression, utf8=True)
    try:
        compiled.compile()
    except ExpressionError as error:
        raise RuleError(f"{expression!r} is no expression of RE2: {error}") from None
    return Expression(rf"\A(?:{expression})\z", utf8=True) if whole else compiled


def _matches(expression: Expression, word: str) -> bool:
    data = word.encode("utf-8", "surrogatepass")
    return expression.first(data, 0, len(data)) is not None


_kinds: dict[str, Kind] = {}


def kind(text: str) -> Kind:
    """Return the kind that `text` names. Raises RuleError."""
    known = _kinds.get(text)
    if known is None:
        known = _kinds[text] = Kind(text)
    return known


SCANNED = kind("scanned")
NONE = kind("none")
