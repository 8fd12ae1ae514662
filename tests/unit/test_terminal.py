"""Control sequences go, progress bars fold, and the cut of the input never matters."""

from itertools import pairwise

import pytest

from broker.terminal import LINE_BYTES, Terminal

CASES = [
    (b"plain\ttext\n", b"plain\ttext\n"),
    (b"\x1b[1;31mred\x1b[0m\n", b"red\n"),
    (b"\x1b]0;title\x07after\n", b"after\n"),
    (b"\x1b]52;c;aGVsbG8=\x1b\\after\n", b"after\n"),
    (b"\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\\n", b"link\n"),
    (b"\x1bPdevice control\x1b\\after", b"after"),
    (b"\x1b]0;never closed\nnext line\n", b"\nnext line\n"),
    (b"\x1b(B\x1b7\x1b8\x1b=\x1bcreset\n", b"reset\n"),
    ("\u009b31mC1\u009b0m \u009d0;t\u009cx\n".encode(), b"C1 x\n"),
    (b"bell\x07 null\x00 delete\x7f\n", b"bell null delete\n"),
    ("left\u202eright \u2066iso\u2069 \u200emark\n".encode(), b"leftright iso mark\n"),
    ("a\U000e0049\U000e0067\U000e0001\U000e007fb\n".encode(), b"ab\n"),
    (
        "\u200c\u200d\ufe0f\u200b\u00ad\ufeff kept\n".encode(),
        "\u200c\u200d\ufe0f\u200b\u00ad\ufeff kept\n".encode(),
    ),
    (b"10%\r50%\r100%\n", b"100%\n"),
    (b"10%\r50%\r", b"50%"),
    (b"dos\r\nlines\r\n", b"dos\nlines\n"),
    (b"N\x08NA\x08AM\x08ME\x08E\n", b"NAME\n"),
    ("na\u0308ïve — ✓ 🚀\n".encode(), "na\u0308ïve — ✓ 🚀\n".encode()),
    (b"cut off\x1b[3", b"cut off"),
]


def _cleaned(pieces: list[bytes]) -> bytes:
    terminal = Terminal()
    return b"".join([*(terminal.feed(piece) for piece in pieces), terminal.close()])


@pytest.mark.parametrize(("raw", "clean"), CASES)
def test_what_steers_a_terminal_is_taken_out(raw: bytes, clean: bytes) -> None:
    assert _cleaned([raw]) == clean


@pytest.mark.parametrize(("raw", "clean"), CASES)
def test_the_result_does_not_depend_on_where_the_input_is_cut(raw: bytes, clean: bytes) -> None:
    cuts = [place for place in range(len(raw) + 1) if place == len(raw) or raw[place] & 0xC0 != 0x80]
    for cut in cuts:
        assert _cleaned([raw[:cut], raw[cut:]]) == clean, cut
    assert _cleaned([raw[a:b] for a, b in pairwise(cuts)]) == clean


def test_a_line_without_end_is_given_out_in_pieces_and_not_held() -> None:
    terminal = Terminal()
    given = sum(len(terminal.feed(b"x" * 10_000)) for _ in range(100))
    assert given >= 1_000_000 - LINE_BYTES - 10_000
    assert given + len(terminal.close()) == 1_000_000


def test_a_control_string_without_end_is_not_held() -> None:
    terminal = Terminal()
    terminal.feed(b"\x1b]52;c;")
    assert all(terminal.feed(b"A" * 10_000) == b"" for _ in range(100))
    assert terminal.feed(b"\x07shown\n") == b"shown\n"
