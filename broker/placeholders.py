"""Is a value a secret, or only something that stands where a secret would: a placeholder, a reference, a piece of code?

Always true: the decision depends on the value and on how it was written, never on chance. Nothing here searches; it
only judges what others found.
"""

from binascii import a2b_base64
from functools import lru_cache

from broker.key_names import is_technical, is_word_for_one, speaks_of_secrets
from broker.randomness import (
    LOOK_CHARACTERS,
    classes,
    has_digit,
    is_counted,
    is_gibberish,
    is_hexadecimal,
    is_monotonous,
    is_opaque,
    is_uuid,
    mixing,
)
from broker.redaction_catalogue import word_parts, words
from broker.regex_engine import Expression, escaped

MARKER = "[redacted:"
SHORTEST = 6
LONGEST_WORD = 24
MIXED_ABOVE = 0.42
TELLING_PART = 7
_VARIABLE = Expression(
    r"\$(?:[A-Z_][A-Z0-9_]{2,}|[a-z_][a-z0-9_]*(?:$|[^a-zA-Z0-9])|[0-9]$)|%[A-Za-z_]+%$|%[sdrvqf]$|%\([a-z_]+\)|@[a-z][a-z_/.\-]*[0-9]{0,2}$|[*&]+[A-Za-z_][A-Za-z0-9_]*$|:[a-z_]+$|\?$|[#.][a-z][a-z\-]*$"
    r"|#[0-9A-Fa-f]{3,8}$|[A-Z]{2,}(?:_[A-Z]+)+$|[A-Z][A-Z0-9]+(?:_[A-Z0-9]+){2,}$|\$[a-z]+(?:[A-Z][a-z]+)+$|[*&]+[A-Za-z_][A-Za-z0-9_.]*$|\{(?:[a-z_][a-z0-9_.\[\]:]*|[A-Za-z_.]+)\}$|[0-9]\*[a-z]+$"
)
_DIGITS = Expression(r"[0-9]+")
_NUMBERED_TOKEN = Expression(r"(?i).*(?:token|key|auth)s?[_\-]?[0-9]*$")
_FORMAT = Expression(
    r"\$\{|`[a-z ]+`|%[0-9]*\.[0-9]*f|%(?:[srvqf]|d(?:[^0-9A-Fa-f]|$)).*%[sdrvqf]|\[(?:a-z|A-Z|0-9)|[a-zA-Z0-9]-[zZ9]\]|\.\.\."
)
_NUMBER = Expression(
    r"-?0[xX][0-9A-Fa-f]{1,16}[uUlL]*$|0x[0-9A-Fa-f]{40}$|[0-9]{1,5}/(?:tcp|udp|sctp)$|[A-Z]{2,6}-[0-9]{1,3}$"
    r"|[\^~<>=v]{0,2}[0-9]+(?:\.[0-9x*]+){1,3}(?:-[a-z]+[.0-9]*)?(?:\+[a-z0-9.]+)?$"
)
_ASSIGNMENT = Expression(
    r"[a-z_]{3,}=[A-Za-z0-9_.]+$|[A-Za-z_$][A-Za-z0-9_$]*(?:=$|(?:\.[A-Za-z0-9_$]+)+=[A-Za-z_$])"
)
_NAME_PATH = Expression(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+$")
_USER = Expression(r"[A-Za-z][A-Za-z0-9_.@+\-]{0,63}$")
_VERSIONED = Expression(r"[a-z][a-z\-]*-[0-9]+(?:\.[0-9]+)+$")


def is_stand_in(value: str) -> bool:
    """Placeholder, mask or reference, in whatever quotes."""
    value = value[:LOOK_CHARACTERS].strip("'\"`")
    low = value.lower()
    return (
        low in words("stand_ins")
        or _is_reference(value, low)
        or MARKER in low
        or _says_stand_in(value, low)
        or is_counted(low)
        or (not has_digit(value) and any(part in low for part in word_parts("trade_parts")))
        or _is_variable(value)
        or _finds(_FORMAT, value)
        or is_monotonous(low)
        or _is_path(value)
    )


def _is_reference(value: str, low: str) -> bool:
    """`${NAME}`, `vault:db`, `sops`: a start that ends with a sign, or that is a word of its own."""
    starts = word_parts("reference_starts")
    if not low.startswith(starts):
        return False
    start = next(start for start in starts if low.startswith(start))
    return not (start.isalpha() and value[len(start) : len(start) + 1].isalnum())


def _is_path(value: str) -> bool:
    """`/run/secrets/db`; but keys in base64 may begin with a slash too."""
    return value[:1] == "/" and not is_chance(value)


def is_chance(value: str) -> bool:
    """Only chance puts small letters, capitals and digits together so."""
    if len(value) < 16 or value.lower() == value or value.upper() == value:
        return False
    return mixing(value) > MIXED_ABOVE or (classes(value) == 3 and is_gibberish(value))


@lru_cache(maxsize=1)
def _stand_in_parts() -> Expression:
    return Expression("|".join(escaped(part) for part in word_parts("stand_in_parts")))


def _says_stand_in(value: str, low: str) -> bool:
    """`your-token`, `xxxx`, `example1`: with a part that says so. It comes up by chance too, and in what people choose."""
    data = low.encode(errors="replace")
    parts = [spans[0] for spans in _stand_in_parts().each(data, 0, len(data))]
    if any(stop - start >= TELLING_PART for start, stop in parts):
        return True
    if not parts or is_chance(value):
        return False
    numbers = sum(1 for _ in _DIGITS.each(data, 0, len(data)))
    data = value.encode(errors="replace")
    return numbers == 0 or any(
        not data[start:stop].isalpha()
        or (
            _begins_a_word(data, start) and (numbers == 1 or not data[max(0, start - 1) : stop + 1].isalnum())
        )
        for start, stop in parts
    )


def _begins_a_word(data: bytes, start: int) -> bool:
    return data[start : start + 1].isupper() or not data[start - 1 : start].isalpha()


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


def _finds(expression: Expression, value: str) -> bool:
    data = value.encode(errors="replace")
    return expression.first(data, 0, len(data)) is not None


def is_secret_value(
    value: str,
    *,
    quoted: bool,
    certain: bool,
    tight: bool = False,
    spoken: bool = False,
    code: bool = False,
) -> bool:
    """The judgement for the value of a setting whose name promises a secret (`certain`) or hints at one.

    `tight`: name, sign and value stand together without blanks, as in an environment file. `spoken`: it may be
    several words, as a password or passphrase may. `code`: if bare, it may be the name of a variable.
    """
    value = value[:LOOK_CHARACTERS]
    if len(value) < SHORTEST:
        return len(value) >= 4 and certain and classes(value) == 3 and not is_stand_in(value)
    if is_stand_in(value) or _is_name_of_something(value, literal=quoted or tight, code=code or not certain):
        return False
    if not certain and quoted and " " in value.strip():
        return False
    if not certain:
        return is_basic(value) or (
            is_opaque(value) and not _is_plain_datum(value, numbered=True) and not _is_code(value)
        )
    if quoted and " " in value.strip():
        return spoken and _is_phrase(value)
    return _is_promised(value, quoted=quoted, literal=quoted or tight)


def _is_phrase(value: str) -> bool:
    """Words that nobody would say of a password: no sentence, no label in whatever language, no code."""
    parts = value.split(" ")
    if (
        not 2 <= len(parts) <= 12
        or not value.isascii()
        or value[-1] in ".:?"
        or any(c in value for c in "(){}[]<>=|\\;/")
    ):
        return False
    if value[0].isupper() and not has_digit(value):
        return False
    return all(part and part.strip(",!'").lower() not in words("speech") for part in parts)


def is_setting_words(value: str) -> bool:
    """Words in quotes where a setting's value must stand: all but code, and labels, which speak of secrets and hold no number."""
    value = value[:LOOK_CHARACTERS]
    parts = value.split()
    if len(parts) < 2 or is_stand_in(value) or any(sign in value for sign in ("`", "$(")):
        return False
    if any(part.startswith("--") or (part[0] == "$" and _is_variable(part)) for part in parts):
        return False
    return has_digit(value) or not any(is_word_for_one(part.strip(",.:!?'")) for part in parts)


def _is_name_of_something(value: str, *, literal: bool, code: bool) -> bool:
    """An identifier that speaks of secrets (`Ed25519PrivateKey`), or a path of names where code may stand."""
    if literal:
        return not is_chance(value) and speaks_of_secrets(value, numbered=code)
    return _looks_at(_ASSIGNMENT, value) or _is_identifier(value, code=code)


def _is_identifier(value: str, *, code: bool) -> bool:
    """What stands bare where code may stand: `win32api.RegOpenKeyEx`, `pkcs12_val`, `hexTestKey`."""
    if speaks_of_secrets(value, numbered=code):
        return True
    parts = [part.rstrip("0123456789") if code else part for part in value.split("_")]
    named = all(_is_wordy(part) or is_technical(part) for part in parts if part)
    if named and len(parts) > 1 and any(parts):
        return True
    if _looks_at(_NAME_PATH, value):
        return (code or not value[-2:].isdigit()) and not (is_chance(value) and is_gibberish(value))
    return is_technical(value) and not is_gibberish(value)


def _is_promised(value: str, *, quoted: bool, literal: bool) -> bool:
    """The judgement where the name is certain: all but words, code and plain data."""
    if is_passphrase(value) and (literal or "_" not in value):
        return True
    if _is_letters(value):
        return (is_gibberish(value) or (literal and is_chance(value))) and (literal or len(value) >= 8)
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


def _is_plain_datum(value: str, *, numbered: bool = False) -> bool:
    """A number with a unit, a version, a date, an address, words with joints, also `numbered` ones."""
    digits = value
    for joint in ".,_-:":
        digits = digits.replace(joint, "")
    if digits.isdigit():
        return len(value) < 8 or digits != value
    if value[0] == "=" or value.startswith("~/") or "://" in value or value.startswith(("./", "../", "\\\\")):
        return True
    if _looks_at(_VERSIONED, value.lower()) or _looks_at(_NUMBER, value):
        return True
    for joint in "-./:+,*":
        value = value.replace(joint, "_")
    parts = value.split("_")
    if numbered and not is_hexadecimal("".join(parts)):
        parts = [part.rstrip("0123456789") for part in parts]
    return len(parts) > 1 and all(_is_wordy(part) for part in parts if part)


def _is_wordy(part: str) -> bool:
    return part.isalpha() and not is_gibberish(part)


def is_plain_word(value: str, name: str, *, loose: bool = False) -> bool:
    """A word that says nothing of passwords nor repeats the setting's name: `hunter`, but not `verify` of `VERIFY_PASSWORD`.

    `loose`, where no code and no label can stand: also with capitals, or several words with joints.
    """
    word = value.rstrip("!")
    letters = word.replace("_", "").replace("-", "").replace(".", "") if loose else word
    if not (SHORTEST <= len(word) <= LONGEST_WORD and letters.isalpha() and letters.isascii()):
        return False
    if word in name or not (word.islower() or (loose and not word.isupper())):
        return False
    if not any(part in name for part in ("passw", "pwd", "passphrase")) and not name.endswith("_pass"):
        return False
    return not is_stand_in(value) and not _is_trade(value)


@lru_cache(maxsize=1)
def _trade() -> Expression:
    listed = "|".join(sorted(words("trade"), key=len, reverse=True))
    return Expression(rf"(?i)(?:(?:{listed})[_\-]?)+[0-9]{{0,2}}!*$")


def _is_trade(value: str) -> bool:
    """Of nothing but words that one calls secrets by, as in examples: `mypassword`."""
    return _looks_at(_trade(), value)


def is_numbered_token(value: str) -> bool:
    """`token1`, `my_api_key_2`: where a program issues the secret, nobody is given such a one."""
    return _looks_at(_NUMBERED_TOKEN, value) and _is_trade(value)


LONGEST_NAME = 256
"""Characters of a value that are compared with its setting's name, which is shorter."""


def names_itself(value: str, name: str) -> bool:
    """A constant that only repeats its name: `"KxECDHE-PSK"` of `SN_kx_ecdhe_psk`."""
    core = "".join(filter(str.isalnum, value[:LONGEST_NAME].lower()))
    return len(core) >= 4 and core in "".join(filter(str.isalnum, name))


def is_password(value: str) -> bool:
    """For places that hold nothing but a password: all that is no stand-in."""
    return len(value) >= 3 and not is_stand_in(value)


def is_prompt(value: str) -> bool:
    """`Enter your password: `: asks for one."""
    return value.rstrip()[-1:] in (":", "?") or (" " in value.strip() and "assword" in value)


def is_generated(value: str) -> bool:
    """For prose: three of small letters, capitals, digits and signs, and no markup."""
    return classes(value) + (not value.isalnum()) >= 3 and value[0] != "\\" and not is_stand_in(value)


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
    if len(value) < 8 or is_stand_in(value) or "=" in value.rstrip("=") or _is_identifier(value, code=False):
        return False
    return has_digit(value) or is_uuid(value) or is_gibberish(value)


def is_basic(value: str) -> bool:
    """RFC 7617: base64 of user, colon, password."""
    user, colon, password = _decoded(value).partition(":")
    return bool(colon and user and password) and not is_stand_in(f"{user}:{password}")


def is_user_with_secret(value: str) -> bool:
    """`ada:` and a password with a digit; but no port, no digest, no path."""
    user, _, secret = value.partition(":")
    if not _looks_at(_USER, user) or is_technical(user) or _is_reference(value, value.lower()):
        return False
    return has_digit(secret) and secret[0] not in "/:" and is_secret_value(secret, quoted=True, certain=True)


def _decoded(value: str) -> str:
    """The readable text that `value` is the base64 of, or nothing."""
    try:
        text = a2b_base64(value + "=" * (-len(value) % 4)).decode("ascii")
    except ValueError:
        return ""
    return text if text.isprintable() else ""


def is_token_in_url(value: str) -> bool:
    """A token where a user's name may stand; `https://` and 32 hexadecimal digits are a public identifier of some services."""
    if is_stand_in(value) or is_uuid(value) or not has_digit(value):
        return False
    if is_hexadecimal(value):
        return len(value) >= 40
    return is_chance(value) or mixing(value) > MIXED_ABOVE


def is_kubernetes_value(value: str) -> bool:
    """A value of a Secret's data, in base64 or plain: all but words, numbers, certificates."""
    text = _decoded(value)
    if text:
        return not (text.isalpha() or text.isdigit() or "CERTIFICATE" in text or is_stand_in(text))
    return is_secret_value(value, quoted=True, certain=True)
