"""Made-up secrets: random text of a given shape, the same in each run, so that no file holds anything like a token."""

import random
import re
import string

ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "base64": string.ascii_letters + string.digits + "+/",
    "base64url": string.ascii_letters + string.digits + "-_",
    "base52": string.ascii_letters,
    "base32": string.ascii_uppercase + "234567",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "lower36": string.ascii_lowercase + string.digits,
    "upper36": string.ascii_uppercase + string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "digits": string.digits,
}
_SLOT = re.compile(r"\{([A-Za-z0-9]+):(\d+)\}")


def filled(example: str, seed: int = 1) -> str:
    """`ghp_{base62:36}` with each slot filled at random; begins and ends with a letter or a digit, holds a digit."""
    source = random.Random(f"{seed}{example}")
    return _SLOT.sub(lambda slot: _some(source, ALPHABETS[slot[1]], int(slot[2])), example)


def _some(source: random.Random, alphabet: str, length: int) -> str:
    plain = [c for c in alphabet if c.isalnum()]
    while True:
        text = "".join(source.choice(alphabet) for _ in range(length))
        text = (
            source.choice(plain) + text[1:-1] + source.choice(plain) if length > 1 else source.choice(plain)
        )
        if length < 6 or any(c.isdigit() for c in text) or not any(c.isdigit() for c in alphabet):
            return text
