"""Path-like words, wherever they hide: which parts of a word a program could take for a path.

Always true: every part that is returned is checked by the jail, after links are resolved; a word with more parts than
`PARTS` is refused, not cut. Nothing here decides where a path leads.
"""

from collections.abc import Iterator
from os.path import relpath

from broker.refusal import PolicyDenied

PARTS = 64
_SEPARATORS = "=:,@"


def declared(word: str) -> Iterator[str]:
    """Yield what `word` may name when the rule says that it is a path.

    Besides the word itself: what follows `@` (binutils reads options from `@FILE`), a leading `=` (`-f=FILE` is read as
    FILE by some parsers) and the scheme of a URL.
    """
    yield word
    if word[:1] in ("@", "="):
        yield word[1:]
    if "://" in word:
        yield word.partition("://")[2]


def written_like(part: str, end: str, folder: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return how `part`, written in `folder`, could be written if it named the place `end` itself.

    `end` and `folder` are paths from the jail's root without links; `roots` are absolute names of the root.
    """
    slash = "/" if part.endswith("/") else ""
    if part.startswith("/"):
        return tuple(f"{root}/{end}{slash}".rstrip("/") + slash for root in roots)
    name = from_folder(end, folder)
    here = "./" if part.startswith("./") and not name.startswith("../") else ""
    return (here + name + slash,)


def from_folder(end: str, folder: str) -> str:
    """Return the path from one place in the jail to another: both from the root, without links."""
    return relpath("/" + end, "/" + folder)


def undeclared(word: str) -> Iterator[str]:
    """Yield every part of `word` that some program might take for a path. Raises PolicyDenied if they are too many.

    `--file=/etc/x`, `-f/etc/x`, `-C..`, `@/etc/x`, `a=b/../../x`, `:/x`, `file:///etc`.
    """
    yield word
    starts = [place for place, character in enumerate(word) if character in _SEPARATORS]
    if word.startswith("-") and not word.startswith("--"):
        slash = word.find("/")
        # a letter and its value, up to a slash; the letter may be one itself
        starts += range(1, len(word) - 1 if slash < 0 else min(len(word) - 1, max(slash, 2)))
    if len(starts) > PARTS:
        raise PolicyDenied(f"a word has more than {PARTS} parts that could be paths")
    for start in starts:
        rest = word[start + 1 :]
        yield rest
        piece = _first_piece(rest)
        if piece != rest:
            yield piece


def _first_piece(rest: str) -> str:
    ends = (place for place in map(rest.find, _SEPARATORS) if place >= 0)
    return rest[: min(ends, default=len(rest))]
