"""How random a value looks: entropy, kinds of characters, how it is put together from letters.

Always true: pure functions of the value, linear in at most `LOOK_CHARACTERS` of it. What follows from randomness is
decided elsewhere (`placeholders`).
"""

from itertools import pairwise
from math import log2
from operator import ne

from broker.redaction_catalogue import letter_pairs

LOOK_CHARACTERS = 512
LIKE_CHANCE = 6  # the rank of a pair that is as common in words as by chance
COUNTED_RUN = 6
COUNTED_SHARE = 0.9
SHORT_LETTERS = 10
# Shorter ones are gibberish only if clearly so: 2 % of words and 3 to 25 % of random letters err.
_SMALL, _CAPITALS, _FIGURES = b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789"
_DIGITS = frozenset(_FIGURES.decode())
_NO_LETTERS = bytes(range(256)).translate(None, _SMALL + _CAPITALS)
_SIGNS = _NO_LETTERS.translate(None, _FIGURES)
_KINDS = bytes.maketrans(
    _SMALL + _CAPITALS + _FIGURES + _SIGNS, b"a" * 26 + b"A" * 26 + b"0" * 10 + b"." * len(_SIGNS)
)


def entropy_bits(value: str) -> float:
    """Shannon entropy, in bits per character."""
    length = len(value)
    return -sum((n := value.count(c)) / length * log2(n / length) for c in set(value)) if length else 0.0


def classes(value: str) -> int:
    """How many of: small letters, capitals, digits."""
    return (value.upper() != value) + (value.lower() != value) + has_digit(value)


def has_digit(value: str) -> bool:
    """Is there a digit?"""
    return not _DIGITS.isdisjoint(value)


def is_monotonous(value: str) -> bool:
    """Hardly any different characters (`xxxxxxxx`, `000000`, `abcabcabcabc`), or a long run of one that is a quarter of it."""
    different, length = len(set(value)), len(value)
    if different <= 2 or (length >= 12 and different <= 4) or (length >= 24 and different <= 5):
        return True
    return length >= 8 and any(
        character * 6 in value and 4 * value.count(character) >= length for character in "x0*.#-_a1=?"
    )


def is_counted(low: str) -> bool:
    """`abcdefgh12345678`, `sk-0123456789abcdef`: (nearly) all in the order of letters and digits, whatever words lead to it."""
    if "abcdefgh" not in low and "01234567" not in low:
        return False
    parts = low.replace("_", "-").split("-")
    while len(parts) > 1 and parts[0].isalpha() and len(parts[0]) < COUNTED_RUN:
        del parts[0]
    counted, covered, run = "".join(parts), 0, 1
    for a, b in pairwise(counted + " "):
        if ord(b) == ord(a) + 1:
            run += 1
            continue
        covered += run if run >= COUNTED_RUN else 0
        run = 1
    return covered >= COUNTED_SHARE * len(counted)


def is_gibberish(value: str) -> bool:
    """Letters that no language puts together so: rare pairs, or capitals strewn in (`YAufAYDtGZ`)."""
    letters = value[:LOOK_CHARACTERS].encode(errors="replace").translate(None, _NO_LETTERS).decode()
    if len(letters) < 5:
        return False
    low = letters.lower()
    pairs = letter_pairs()
    ranks = sum(pairs[low[i : i + 2]] for i in range(len(low) - 1)) / (len(low) - 1)
    likely = LIKE_CHANCE - 0.32 * max(0, SHORT_LETTERS - len(low))
    return ranks < likely or (len(letters) >= 10 and _turns(letters) / len(letters) > 0.5)


def _turns(letters: str) -> int:
    return sum(a.isupper() != b.isupper() for a, b in pairwise(letters))


def mixing(value: str) -> float:
    """The share of neighbours of different kinds (small, capital, digit, other): 0.6 by chance, 0.3 in `Python3Path`."""
    kinds = value[:LOOK_CHARACTERS].encode(errors="replace").translate(_KINDS)
    changes: int = sum(map(ne, kinds, kinds[1:]))
    return changes / max(1, len(kinds) - 1)


def longest_run(value: str) -> int:
    """The length of the longest part without a joint that holds a digit."""
    return max((len(part) for part in value.replace("_", "-").split("-") if has_digit(part)), default=0)


def is_opaque(value: str) -> bool:
    """Long and mixed enough to be generated: letters and digits without a pattern that words would give."""
    value = value[:LOOK_CHARACTERS]
    if len(value) < 16 or not has_digit(value) or entropy_bits(value) < 3.0:
        return False
    parts = value
    for joint in "/.:-_+=~,":
        parts = parts.replace(joint, " ")
    if is_uuid(value) or (classes(value) == 3 and is_gibberish(value)):
        return True
    return any(
        len(part) >= 12 and not part.isdigit() and (has_digit(part) or is_gibberish(part))
        for part in parts.split()
    )


def is_uuid(value: str) -> bool:
    """8-4-4-4-12 hexadecimal digits."""
    return [len(part) for part in value.split("-")] == [8, 4, 4, 4, 12] and is_hexadecimal(
        value.replace("-", "")
    )


def is_hexadecimal(value: str) -> bool:
    """Only hexadecimal digits."""
    return bool(value) and all(c in "0123456789abcdefABCDEF" for c in value)
