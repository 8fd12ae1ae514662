"""Secrets of every kind that the contract names, made by chance but the same in each run; none was ever valid.

Prefixes are put together here, so that no scanner takes this file for a leak.
"""

import base64
import random
import string
from typing import NamedTuple

_ALPHANUMERIC = string.ascii_letters + string.digits
_HEXADECIMAL = "0123456789abcdef"
_BASE64 = _ALPHANUMERIC + "+/"
_random = random.Random(2026)


class Made(NamedTuple):
    """`text` as a program might print it, on one line, and `secret`, the part of it that nobody may read."""

    kind: str
    text: str
    secret: str


def characters(count: int, alphabet: str = _ALPHANUMERIC) -> str:
    """Return `count` random characters."""
    return "".join(_random.choices(alphabet, k=count))


def github_token() -> str:
    """Return a token of GitHub's form."""
    return "gh" + "p_" + characters(36)


def _json_web_token() -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    claims = (
        base64.urlsafe_b64encode(f'{{"sub":"{characters(12)}","iat":1516239022}}'.encode())
        .decode()
        .rstrip("=")
    )
    return f"{header}.{claims}.{characters(43)}"


def _private_key() -> str:
    body = characters(64, _BASE64)
    return (
        f"-----BEGIN {'PRIVATE'} KEY-----\n{body}\n{characters(64, _BASE64)}\n-----END {'PRIVATE'} KEY-----"
    )


def _whole(kind: str, secret: str) -> Made:
    return Made(kind, secret, secret)


def _keyed(kind: str, before: str, secret: str) -> Made:
    return Made(kind, before + secret, secret)


def every_kind() -> list[Made]:
    """Return one secret of each kind that the contract names, always the same."""
    _random.seed("every kind")
    return [
        _whole("openai key", "s" + "k-" + characters(48)),
        _whole("github token", github_token()),
        _whole(
            "slack token",
            "xo" + f"xb-{characters(12, string.digits)}-{characters(12, string.digits)}-{characters(24)}",
        ),
        _whole(
            "langsmith key", "ls" + f"v2_pt_{characters(32, _HEXADECIMAL)}_{characters(10, _HEXADECIMAL)}"
        ),
        _whole("aws access key id", "AK" + "IA" + characters(16, string.ascii_uppercase + "234567")),
        _keyed("aws secret access key", "aws_secret_access_key = ", characters(40)),
        _keyed(
            "aws secret access key like a path",
            "aws_secret_access_key = ",
            f"/{characters(21)}+{characters(17)}",
        ),
        _whole("private key", _private_key()),
        _whole("jwt", _json_web_token()),
        _keyed("authorization header", "Authorization: Bearer ", characters(32)),
        _keyed("assignment", "DB_PASSWORD=", characters(20)),
        _keyed("password flag", "mysqldump --password ", characters(20)),
        _keyed("token flag", "deploy --token ", characters(24)),
        _keyed("short flag", "sshpass -p ", characters(18)),
        _keyed("short flag with its value attached", "mysql -u root -p", characters(18)),
    ]


def survives(secret: str, text: str, *, characters_at_once: int = 8) -> bool:
    """Whether any run of `characters_at_once` characters of the secret's lines stands in `text`."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    return any(
        line[start : start + characters_at_once] in text
        for line in lines
        for start in range(max(1, len(line) - characters_at_once + 1))
    )
