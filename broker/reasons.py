"""Words for refusals: what was refused, where in the command, which rule said so, what is allowed instead.

Always true: a word that the caller sent is repeated only when it is short, plain and does not look like a secret; a word
that was refused as a path is never repeated, because it may name a place outside the jail; what a pattern matched lies in it.
"""

from broker.refusal import REASON_CHARACTERS, PolicyDenied

SHOWN_CHARACTERS = 32
_MATCH_CHARACTERS = 100
_LONG, _SHORT = 16, 4
"""Characters from which on a word may be a secret by its look, and up to which none hides behind `=`."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,+")
_SHOWN = _PLAIN | frozenset("/%;$[](){}*?!^")
_SECRET_WORDS = ("pass", "secret", "token", "key", "auth", "cred", "bearer")


class RuleError(Exception):
    """A rule of the policy file that cannot be meant; the message names the value and what was expected."""


def shown_program(name: str) -> str:
    """Return the name of a program, as `shown`; one that speaks of keys is no secret if it looks like a program's."""
    plain = name.replace("-", "")
    if len(name) < _LONG and plain.isascii() and plain.isalpha() and plain.islower():
        return f"'{name}'"
    return shown(name)


def shown(word: str, *, is_path: bool = True) -> str:
    """Return `word` in quotes if it may be repeated, of `NAME=value` the name; else how long it is.

    Of a word that is no path (`is_path`) an address of sed, `/text/p`, may be repeated.
    """
    name, _, value = word.partition("=")
    if name.isidentifier() and value.strip("=") and _may_be_shown(name):
        return f"'{name}=…'"
    hidden = word.startswith("/") and (is_path or word[-2:-1] != "/" or word.count("/") != 2)
    plain = word.removesuffix("=") if len(word) <= _SHORT else word
    if _may_be_shown(plain) and not hidden and ".." not in word:
        return f"'{word}'"
    return f"a word of {len(word)} characters" if len(word) != 1 else "a word of one character"


def shown_match(name: str) -> str:
    """Return the name of a file that a pattern matched, of a long one the end; secrets in it are redacted with the reason."""
    return repr(name if len(name) <= _MATCH_CHARACTERS else "…" + name[-_MATCH_CHARACTERS:])


def _may_be_shown(word: str) -> bool:
    return len(word) <= SHOWN_CHARACTERS and _SHOWN.issuperset(word) and not _looks_secret(word)


def _looks_secret(word: str) -> bool:
    lowered = word.lower()
    if any(part in lowered for part in _SECRET_WORDS):
        return True
    return len(word) >= _LONG and any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def option_name(word: str) -> str:
    """Return the part of an option word that names the option; the value, which may be a secret, is left away."""
    name = word.partition("=")[0]
    if not name.startswith("--"):
        name = name[:2] if len(name) > SHOWN_CHARACTERS else name
    return name if len(name) <= SHOWN_CHARACTERS and _PLAIN.issuperset(name) else "this one"


def denied(what: str, rule: str, instead: str = "") -> PolicyDenied:
    """Return the refusal `what; [rule] allows: instead`, cut so that the beginning and the rule stay whole."""
    head = f"{what} ({rule})"
    if not instead:
        return PolicyDenied(head)
    room = REASON_CHARACTERS - 1 - len(head) - len("; ")
    return PolicyDenied(head if room < SHOWN_CHARACTERS else f"{head}; {shortened(instead, room)}")


def shortened(text: str, characters: int) -> str:
    """Return `text`, cut at a word's end if it is longer than `characters`."""
    if len(text) <= characters:
        return text
    return text[: characters - 2].rpartition(" ")[0].rstrip(",") + " …"
