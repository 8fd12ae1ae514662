"""The way of a command's output: decoded, cleaned, redacted, cut."""

import pytest

from broker.output import OutputFilter
from broker.redaction import Redactor
from tests.support.random_text import filled

SECRET = filled("ghp_{base62:36}")
MARKER = "[REDACTED:github_token]"
redactor = Redactor()


def _through(data: bytes, limit: int = 10_000, control: str = "strip", step: int = 7) -> OutputFilter:
    output = OutputFilter(redactor, limit, "keep" if control == "keep" else "strip")
    for start in range(0, len(data), step):
        output.feed(data[start : start + step])
    return output


def test_output_within_the_limit_is_complete() -> None:
    output = _through("grün ✓\n".encode())
    assert output.close() == "grün ✓\n"
    assert not output.truncated
    assert output.total_bytes == len("grün ✓\n".encode())


def test_invalid_utf8_is_replaced_and_never_fatal() -> None:
    assert _through(b"a\xff\xfeb\xc3").close() == "a\ufffd\ufffdb\ufffd"


def test_control_sequences_are_removed_before_redaction() -> None:
    raw = f"\x1b[31mghp_\x1b[0m{SECRET[4:]}\n".encode()
    assert _through(raw).close() == f"{MARKER}\n"


def test_control_sequences_can_be_kept_and_the_secret_still_goes() -> None:
    raw = f"\x1b[31m{SECRET}\x1b[0m\n".encode()
    assert _through(raw, control="keep").close() == f"\x1b[31m{MARKER}\x1b[0m\n"


@pytest.mark.parametrize("limit", [1, 5, 8, 10, 20, 30, 33, 40, 50])
def test_nothing_of_a_secret_is_left_at_the_limit(limit: int) -> None:
    output = _through(f"token: {SECRET} and more text that goes on\n".encode(), limit)
    text = output.close()
    assert len(text.encode()) <= limit
    assert not any(SECRET[i : i + 5] in text for i in range(len(SECRET) - 5))
    assert output.truncated


def test_a_cut_splits_neither_a_character_nor_a_marker() -> None:
    for limit in range(1, 60):
        text = _through(f"ééé {SECRET} ééé ééé ééé ééé ééé".encode(), limit).close()
        assert "\ufffd" not in text
        assert text.count("[") == text.count(MARKER), text


def test_past_the_limit_bytes_are_only_counted() -> None:
    output = OutputFilter(redactor, 100)
    block = b"some line of text\n" * 60_000
    for _ in range(200):
        output.feed(block)
    assert output.total_bytes == 200 * len(block)
    assert output.truncated
    assert len(output.close()) <= 100


def test_output_of_exactly_the_limit_is_not_truncated() -> None:
    output = _through(b"x" * 100, 100)
    assert output.close() == "x" * 100
    assert not output.truncated
