"""Is a value a secret, or only something that stands where a secret would: a placeholder, a reference, a piece of code?

Always true: the decision depends on the value and on what stood around it, never on chance, and costs time linear in
at most `LOOK_CHARACTERS`. Nothing here searches; it only judges what others found.
"""

from math import log2

LOOK_CHARACTERS = 512
MARKER = "[REDACTED:"

_STAND_INS = frozenset(
    """none null nil undefined true false yes no on off string str bytes int integer bool boolean float number object
    any void required optional enabled disabled hidden masked redacted sensitive secret secrets password passwd pass
    token key value changeme change-me example sample dummy placeholder todo fixme tbd n/a na empty default unknown
    unset missing invalid expired valid success failed failure denied granted ok error bearer basic digest negotiate
    ntlm apikey credentials credential user username admin root text hash plain plaintext auto prompt stdin env file
    vault keychain keyring store helper username:password user:pass user:password xxx yyy zzz abc foo bar baz test
    strong weak char const self this function return async await new public private static final var let type""".split()
)
_STAND_IN_PARTS = (
    "your", "example", "changeme", "change_me", "change-me", "replace", "placeholder", "redacted", "insert",
    "dummy", "sample", "xxxx", "****", "....", "todo", "fixme", "<", "my-secret", "not-set", "notset", "goes_here", "goes-here",
    "_here", "-here", "here>", "secret_key_here", "put_your", "todo", "1234567890abc", "_token_", "access_token", "base64(", "…",
)  # fmt: skip
_REFERENCE_STARTS = (
    "$(", "${", "{{", "{%", "%(", "%{", "#{", "<", "!sub", "!ref", "!getatt", "!vault", "op://", "vault:", "ssm:",
    "arn:", "secretsmanager:", "sops", "enc[", "env.", "env:", "var.", "local.", "process.", "os.", "self.", "this.",
    "config.", "settings.", "secrets.", "context.", "inputs.", "params.", "request.", "data.", "module.", "./", "../",
    "~/", "/", "http://", "https://", "file:", "ref+", "keychain:", "keyring:", "azurekeyvault", "kms:", "aws-sm:", "gcp:",
    "function(", "lambda", "new ", "await ", "getenv", "[redacted", "\\u", "@", "c:\\", "bash:", "akv:",
)  # fmt: skip


def is_stand_in(value: str) -> bool:
    """Placeholder, mask or reference, in whatever quotes."""
    low = value[:LOOK_CHARACTERS].lower()
    return (
        low in _STAND_INS
        or low.startswith(_REFERENCE_STARTS)
        or MARKER.lower() in low
        or any(part in low for part in _STAND_IN_PARTS)
        or _is_variable(value)
        or is_monotonous(low)
    )


def _is_variable(value: str) -> bool:
    """`$NAME`, `%NAME%`, `%s`, `:name`, `?`: something else will be put in."""
    if value[:1] == "$" and value[1:2] != "":
        name = value[1:]
        return (
            name.replace("_", "").replace("/", "").replace(":", "").isalnum()
            and not name[:1].isdigit()
            and (name.isupper() or name.islower() or "/" in name)
            or name.isdigit()
        )
    if value[:1] == "%" and (value[-1:] == "%" or len(value) <= 3):
        return True
    return value[:1] == ":" and value[1:].replace("_", "").isalpha()


def is_monotonous(value: str) -> bool:
    """Hardly any different characters (`xxxxxxxx`, `000000`, `abcabcabcabc`), or a long run of one of them."""
    different = len(set(value))
    if different <= 2 or (len(value) >= 12 and different <= 4) or (len(value) >= 24 and different <= 6):
        return True
    return any(character * 6 in value for character in "x0*.#-_a1=?") if len(value) >= 8 else False


def entropy_bits(value: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    length = len(value)
    return -sum((n := value.count(c)) / length * log2(n / length) for c in set(value)) if length else 0.0


def classes(value: str) -> int:
    """How many of: small letters, capitals, digits."""
    return any(c.islower() for c in value) + any(c.isupper() for c in value) + any(c.isdigit() for c in value)


def is_random_looking(value: str) -> bool:
    """Long and mixed enough to be a generated secret, for names that do not promise one."""
    value = value[:LOOK_CHARACTERS]
    if len(value) < 16 or not any(c.isdigit() for c in value) or any(c in " \t/()[]{}<>$" for c in value[:8]):
        return False
    if value.count("-") > 5 or value.count(".") > 3 or value.count(":") > 1:
        return False
    return entropy_bits(value) >= (3.0 if classes(value) < 3 else 3.4) and not is_stand_in(value)


def is_code(value: str) -> bool:
    """An unquoted value that is an expression: a call, an index, a dotted name, an operator, a type."""
    if (
        any(c in value for c in "(){}[]`")
        or "||" in value
        or "&&" in value
        or "??" in value
        or "->" in value
        or "::" in value
    ):
        return True
    body = value.rstrip(",;")
    if body.replace("_", "").isalpha() and body.isascii():
        return True
    return _is_dotted_name(body)


def _is_dotted_name(value: str) -> bool:
    """`ctx.token`, `tokens.length`, `settings.API_KEY`: names and dots, no digit that would speak for chance."""
    parts = value.replace("?.", ".").split(".")
    return len(parts) > 1 and all(part.replace("_", "").isalpha() and part.isascii() for part in parts)


def is_prose(value: str) -> bool:
    """Words for people: letters and blanks, one capitalised word, a sentence."""
    if " " in value.strip():
        return True
    letters = value.replace("'", "").replace("?", "").replace("!", "").replace(".", "").replace(":", "")
    return letters.isalpha()


def is_passphrase(value: str) -> bool:
    """Four or more words joined by hyphens, dots or underscores."""
    for joint in "-._":
        words = value.split(joint)
        if len(words) >= 4 and all(word.isalpha() and word.islower() for word in words) and len(value) >= 18:
            return True
    return False


def is_secret_value(value: str, *, quoted: bool, certain: bool) -> bool:
    """The judgement for the value of a setting whose name promises a secret (`certain`) or hints at one."""
    if len(value) < 6 or is_stand_in(value):
        return len(value) in (4, 5) and certain and classes(value) == 3 and not is_stand_in(value)
    if not certain:
        return is_random_looking(value)
    if is_passphrase(value):
        return True
    if is_prose(value) if quoted else is_code(value):
        return False
    return not _is_plain_datum(value)


def _is_plain_datum(value: str) -> bool:
    """A number with a unit, a version, a date, an address, a bare identifier of words."""
    if value.replace(".", "").replace(",", "").replace("_", "").replace("-", "").replace(":", "").isdigit():
        return len(value) < 8 or any(c in value for c in ".:,")
    if value[0] in "/~" or value.startswith(("./", "../")) or "://" in value:
        return True
    words = value.replace("-", "_").replace(".", "_").split("_")
    return len(words) > 1 and all(word.isalpha() for word in words if word)
