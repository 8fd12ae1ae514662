"""Is a value a secret, or only something that stands where a secret would: a placeholder, a reference, a piece of code?

Always true: the decision depends on the value and on how it was written, never on chance. Nothing here searches; it
only judges what others found.
"""

from functools import lru_cache

from broker.randomness import (
    LOOK_CHARACTERS,
    classes,
    has_digit,
    is_gibberish,
    is_monotonous,
    is_opaque,
    is_uuid,
    mixing,
)
from broker.redaction_catalogue import word_parts, words
from broker.regex_engine import Expression, escaped

MARKER = "[redacted:"
SHORTEST = 6
MIXED_ABOVE = 0.42
TELLING_PART = 7
_VARIABLE = Expression(
    r"\$(?:[A-Z_][A-Z0-9_]{2,}|[a-z_][a-z0-9_]*(?:$|[^a-zA-Z0-9])|[0-9]$)|%[A-Za-z_]+%$|%[sdrvqf]$|%\([a-z_]+\)|@[a-z][a-z0-9_/.\-]*$|[*&]+[A-Za-z_][A-Za-z0-9_]*$|:[a-z_]+$|\?$|[#.][a-z][a-z\-]*$"
    r"|#[0-9A-Fa-f]{3,8}$|[A-Z]{2,}(?:_[A-Z]+)+$|(?i:password|passwd|secret|token|pass|test|user|admin|qwerty|welcome)[0-9!]{0,4}$"
)
_SPOKEN_OF = Expression(
    r"(?i)[A-Za-z_][A-Za-z0-9_.]*(?:key|token|secret|passw|_pass|credential|encryption|signature|auth|type|error)[A-Za-z0-9_.]*$"
)
_NAME_PATH = Expression(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+$")
_VERSIONED = Expression(r"[a-z][a-z\-]*-[0-9]+(?:\.[0-9]+)+$")


def is_stand_in(value: str) -> bool:
    """Placeholder, mask or reference, in whatever quotes."""
    value = value[:LOOK_CHARACTERS].strip("'\"`")
    low = value.lower()
    return (
        low in words("stand_ins")
        or low.startswith(word_parts("reference_starts"))
        or MARKER in low
        or _has_part_of_stand_in(low, chance=is_chance(value))
        or _is_variable(value)
        or is_monotonous(low)
        or _is_path(value)
    )


def _is_path(value: str) -> bool:
    """`/run/secrets/db`; but keys in base64 may begin with a slash too."""
    return value[:1] == "/" and not is_chance(value)


def is_chance(value: str) -> bool:
    """Only chance puts small letters, capitals and digits together so."""
    if len(value) < 16 or value.lower() == value or value.upper() == value:
        return False
    return mixing(value) > MIXED_ABOVE or (classes(value) == 3 and is_gibberish(value))


@lru_cache(maxsize=2)
def _stand_in_parts(shortest: int) -> Expression:
    return Expression(
        "|".join(escaped(part) for part in word_parts("stand_in_parts") if len(part) >= shortest)
    )


def _has_part_of_stand_in(low: str, *, chance: bool) -> bool:
    """`your`, `xxxx`, `example`; the short ones come up by chance too."""
    data = low.encode(errors="replace")
    return _stand_in_parts(TELLING_PART if chance else 1).first(data, 0, len(data)) is not None


def is_masked(token: str) -> bool:
    """`ghp_xxxxxxxx`, `AKIA…EXAMPLE`, `sk-...`: shown in documents, opens nothing."""
    low = token[:200].lower()
    return any(part in low for part in ("xxxx", "****", "....", "your", "example")) or is_monotonous(low[4:])


def _is_variable(value: str) -> bool:
    """`$NAME`, `%NAME%`, `%s`, `:name`, `?`, `#element`: something else will be put in."""
    return _looks_at(_VARIABLE, value)


def _looks_at(expression: Expression, value: str) -> bool:
    data = value.encode(errors="replace")
    return expression.here(data, 0, len(data)) is not None


def is_secret_value(value: str, *, quoted: bool, certain: bool, tight: bool = False) -> bool:
    """The judgement for the value of a setting whose name promises a secret (`certain`) or hints at one.

    `tight`: name, sign and value stand together without blanks, as in an environment file.
    """
    value = value[:LOOK_CHARACTERS]
    if len(value) < SHORTEST:
        return len(value) >= 4 and certain and classes(value) == 3 and not is_stand_in(value)
    if is_stand_in(value) or _is_name_of_something(value, literal=quoted or tight):
        return False
    if not certain:
        return is_opaque(value) and not _is_plain_datum(value) and not _is_code(value)
    return _is_promised(value, quoted=quoted, literal=quoted or tight)


def _is_name_of_something(value: str, *, literal: bool) -> bool:
    """An identifier that speaks of secrets (`Ed25519PrivateKey`), or a path of names where code may stand."""
    if is_chance(value):
        return False
    return _looks_at(_SPOKEN_OF, value) or (not literal and _looks_at(_NAME_PATH, value))


def _is_promised(value: str, *, quoted: bool, literal: bool) -> bool:
    """The judgement where the name is certain: all but words, code and plain data."""
    if is_passphrase(value) and (literal or "_" not in value):
        return True
    if _is_letters(value):
        return (is_gibberish(value) or (literal and is_chance(value))) and (literal or len(value) >= 8)
    if quoted and " " in value.strip():
        return False
    return (quoted or not _is_code(value)) and not _is_plain_datum(value)


def _is_letters(value: str) -> bool:
    """Words and nothing else, as an identifier or a sentence has them."""
    return (
        value.replace("_", "")
        .replace(".", "")
        .replace("'", "")
        .replace("!", "")
        .replace("?", "")
        .replace(" ", "")
        .isalpha()
    )


def _is_code(value: str) -> bool:
    """An unquoted value that is an expression: a call, an index, an operator."""
    return any(c in value for c in "(){}[]`") or any(sign in value for sign in ("||", "&&", "??", "->", "::"))


def is_passphrase(value: str) -> bool:
    """Four or more small words joined by one kind of joint."""
    for joint in "-._":
        parts = value.split(joint)
        if len(parts) >= 4 and len(value) >= 18 and all(part.isalpha() and part.islower() for part in parts):
            return True
    return False


def _is_plain_datum(value: str) -> bool:
    """A number with a unit, a version, a date, an address, words with joints."""
    digits = value
    for joint in ".,_-:":
        digits = digits.replace(joint, "")
    if digits.isdigit():
        return len(value) < 8 or digits != value
    if value[0] == "=" or value.startswith("~/") or "://" in value or value.startswith(("./", "../", "\\\\")):
        return True
    if _looks_at(_VERSIONED, value.lower()):
        return True
    parts = value.replace("-", "_").replace(".", "_").replace("/", "_").replace(":", "_").split("_")
    return len(parts) > 1 and all(part.isalpha() and not is_gibberish(part) for part in parts if part)


def is_password(value: str) -> bool:
    """For places that hold nothing but a password: all that is no stand-in."""
    return len(value) >= 3 and not is_stand_in(value)


def is_command_password(value: str) -> bool:
    """For options that hold a password with some programs only: no path, no number, no option, no plain word."""
    return (
        len(value) >= 4
        and not is_stand_in(value)
        and not value.isdigit()
        and value[0] not in "/-.:"
        and "=" not in value[:-2]
    )


def is_header_value(value: str) -> bool:
    """What stands in an Authorization header: anything long and mixed."""
    if len(value) < 8 or is_stand_in(value) or "=" in value.rstrip("="):
        return False
    return has_digit(value) or is_uuid(value) or is_gibberish(value)
