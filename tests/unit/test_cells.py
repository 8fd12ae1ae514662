"""How many cells a text takes on a terminal, and how it is made to fit."""

import pytest

from broker.cells import cells, fitted, folded, padded


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("ls -l", 5), ("naïve", 5), ("nai\u0308ve", 5), ("漢字", 4), ("\uff2f\uff2b", 4), ("🚀!", 3)],
)
def test_a_wide_character_takes_two_cells_and_a_mark_none(text: str, expected: int) -> None:
    assert cells(text) == expected
    assert cells(padded(text, 9)) == 9


def test_a_text_is_cut_by_cells_and_never_within_a_character() -> None:
    text = "a漢字e\u0308x"
    assert [fitted(text, room) for room in (7, 6, 5, 4, 3, 1)] == [
        text,
        "a漢字…",
        "a漢…",
        "a漢…",
        "a…",
        "…",
    ]


@pytest.mark.parametrize(
    "text", ["one two three " * 9, "漢字かな交じり文" * 9, "a漢字 " * 30, "x" * 70 + " 漢字" * 20]
)
def test_a_folded_line_holds_all_of_a_text_and_cuts_no_word(text: str) -> None:
    lines = folded(text, 40, 4).split("\n")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(cells(line) <= 40 for line in lines if "x" * 70 not in line)
    assert folded(text, 0) == text
