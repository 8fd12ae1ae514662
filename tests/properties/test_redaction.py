"""Properties of redaction over generated text: no secret survives a cut, streams equal the whole, nothing else changes."""

import re
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.output import OutputFilter
from broker.redaction import Redactor
from broker.redaction_catalogue import catalogue
from tests.support.random_text import filled

redactor = Redactor()
EXAMPLES = sorted({example for pattern in catalogue().patterns for example in pattern.examples})
KEYED = [
    "DB_PASSWORD={base62:20}",
    '"client_secret": "{base62:24}"',
    "tool --token {base62:20} x",
    "api.key={hex:32}",
    "password:\n  {base62:16}",
    '{"name":"db_password","value":"{base62:9}"}',
    "  password: word{digits:3}key\n",
    "SMTP_PASSWORD=Secret{digits:4}!",
    "user=ada,password=my_secret_{lower36:6},port=1",
    "https://{base62:24}@git.example.com/",
    "\n{base64:64}\n{base64:64}\n",
]
WORDS = [
    "\n",
    " ",
    "=",
    ": ",
    '"',
    "'",
    "password",
    "token=",
    "key: ",
    "sk-",
    "ghp_",
    "eyJ",
    "://a:",
    "@",
    "[REDACTED:x]",
]
SIGNS = [
    "\x1b[31m",
    "\\n",
    "é",
    "🚀",
    "Authorization: Bearer ",
    "\r",
    "%3D",
    "&",
    ";",
    "login ",
    "\u200b",
    "\u00ad",
    "[0m",
]
STRUCTURES = [
    '"name":"db_password","value":"',
    '{"value":"x1y2z3q4","name":"token"}',
    "user,password\n",
    "ada,",
    " | password | ",
    "kind: Secret\n",
    "data:\n  dsn: ",
    "<password>",
    "</",
    "password:\n  ",
    "monkey_key_77",
    "token2, ",
    "INSERT INTO t (a, password) VALUES ('a', '",
    "-----BEGIN CERTIFICATE-----\n",
]
ARMOUR = ["-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"]
PIECES = st.sampled_from([*WORDS, *SIGNS, *STRUCTURES, *ARMOUR])
SECRETS = st.builds(filled, st.sampled_from(EXAMPLES + KEYED), st.integers(1, 50))
PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TEXTS = st.lists(PIECES | SECRETS | PLAIN, max_size=30).map("".join)


@cache
def _secret_parts(example: str) -> tuple[str, tuple[str, ...]]:
    """A text that holds the example, and the parts of it that redaction takes out of it."""
    text = f"first line\n{filled(example)}\nlast line\n"
    data, stream = text.encode(), []
    for start, end, _name in redactor.find(data):
        stream.append(data[start:end].decode())
    return text, tuple(stream)


def _cut_output(pieces: list[bytes], limit: int) -> str:
    output = OutputFilter(redactor, limit)
    for piece in pieces:
        output.feed(piece)
    return output.close()


def _shows(secret: str, shown: str, text: str) -> bool:
    """Is there a piece of 6 characters of the secret that stands nowhere else in the text?"""
    rest, shown = text.replace(secret, "\0"), re.sub(r"\[REDACTED:[a-z0-9_]+\]", "\0", shown)
    windows = (secret[i : i + 6] for i in range(len(secret) - 5))
    return any(window in shown and window not in rest for window in windows)


@pytest.mark.parametrize("example", EXAMPLES + KEYED)
def test_no_part_of_a_secret_survives_the_cap_wherever_it_falls(example: str) -> None:
    text, secrets = _secret_parts(example)
    assert secrets
    whole = redactor.redact(text)
    for limit in range(1, len(whole.encode()) + 1):
        shown = _cut_output([text.encode()], limit)
        assert whole.startswith(shown)
        assert not any(_shows(secret, shown, text) for secret in secrets), limit


@pytest.mark.parametrize("example", EXAMPLES + KEYED)
def test_no_part_of_a_secret_survives_a_stream_split_at_every_byte(example: str) -> None:
    text, secrets = _secret_parts(example)
    data, whole = text.encode(), _cut_output([text.encode()], 1 << 20)
    assert not any(_shows(secret, whole, text) for secret in secrets)
    assert _cut_output([data[i : i + 1] for i in range(len(data))], 1 << 20) == whole
    for cut in range(0, len(data), 3):
        assert _cut_output([data[:cut], data[cut:]], 1 << 20) == whole


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redactor.redact(text)
    assert redactor.redact(once) == once


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_text_in_which_nothing_is_found_comes_back_as_the_same_object(text: str) -> None:
    if not redactor.find(text.encode()):
        assert redactor.redact(text) is text


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_gives_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    stream = redactor.stream()
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    given = [stream.feed(text[a:b]) for a, b in pairwise(places)]
    assert "".join(given) + stream.close() == redactor.redact(text)


@pytest.mark.parametrize(
    "filler", ["an ordinary line of a log, module/file.py:12\n", "x=1,", "é🚀\n", "word "]
)
@pytest.mark.parametrize("step", [1000, 4096, 65_537])
def test_a_long_stream_gives_what_the_whole_gives_and_no_window_edge_leaks(filler: str, step: int) -> None:
    secrets = [filled("ghp_{base62:36}", seed) for seed in range(150)]
    keys = [
        "-----BEGIN PRIVATE KEY-----\n" + "\n".join(filled("{base64:64}", 99 + n) for n in range(26))
        for _ in range(2)
    ]
    text = "".join(filler * (4500 // len(filler)) + f" TOKEN={secret} " for secret in secrets) + "\n".join(
        keys
    )
    whole = redactor.redact(text)
    assert not any(secret in whole for secret in secrets)
    stream = redactor.stream()
    given = [stream.feed(text[start : start + step]) for start in range(0, len(text), step)]
    assert "".join(given) + stream.close() == whole


@pytest.mark.parametrize("last", ["-----END RSA PRIVATE KEY-----", "$ whoami"])
def test_a_private_key_is_redacted_wherever_a_window_ends(last: str) -> None:
    lines = [
        filled("{base64:64}", seed) for seed in range(200)
    ]  # longer than the tail that a window looks at again
    block = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, last])
    for before in range(128 * 1024 - 24_000, 128 * 1024 + 500, 997):
        result = redactor.redact(
            "x" * 80 + "\n" + "filler line\n" * (before // 12) + block + "\nend\n" + "more\n" * 3000
        )
        assert not any(line in result for line in lines), before
        assert "end\n" in result


def test_an_endless_secret_is_swallowed_in_bounded_memory() -> None:
    stream = redactor.stream()
    body = filled("{base62:1000}")
    given = stream.feed("JWT=eyJhbGciOiJIUzI1NiJ9.")
    for _ in range(2000):
        given += stream.feed(body)
        assert stream.pending_bytes <= 300_000
    given += stream.feed(" after it") + stream.close()
    assert body[:12] not in given
    assert given.endswith(" after it")
