"""A trail is read in blocks: where they begin and end, no line is lost, doubled or joined with another."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker import audit_reading
from broker.audit_reading import lines, lines_backwards, placed_blocks

LIMIT = 12
"""The longest line, in these tests."""

WHOLE = st.lists(st.binary(max_size=LIMIT).map(lambda line: line.replace(b"\n", b"n")), max_size=20)


def _file(content: bytes) -> int:
    fd = os.memfd_create("trail")
    os.write(fd, content)
    return fd


@given(WHOLE, st.binary(max_size=LIMIT).map(lambda torn: torn.replace(b"\n", b"t")))
@example([b"x" * LIMIT] * 3, b"x" * LIMIT)
@example([b""] * 20, b"")
def test_lines_are_the_same_forwards_and_backwards_and_stand_where_it_is_said(
    whole: list[bytes], torn: bytes
) -> None:
    content = b"".join(line + b"\n" for line in whole) + torn
    fd = _file(content)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audit_reading, "LINE_LIMIT_BYTES", LIMIT)
            patch.setattr(audit_reading, "BLOCK_BYTES", LIMIT + 1)
            assert list(lines(fd, 0, len(content))) == whole
            assert list(lines_backwards(fd, len(content)))[::-1] == whole
            for offset, block in placed_blocks(fd, 0, len(content)):
                said = b"\n".join(block)
                assert content[offset : offset + len(said)] == said
    finally:
        os.close(fd)


@given(st.lists(st.one_of(st.binary(max_size=LIMIT), st.just(b"long" * LIMIT)), max_size=8))
def test_a_line_without_end_hides_no_other(whole: list[bytes]) -> None:
    whole = [line.replace(b"\n", b"n") for line in whole]
    content = b"".join(line + b"\n" for line in whole)
    kept = [line for line in whole if len(line) <= LIMIT]
    fd = _file(content)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audit_reading, "LINE_LIMIT_BYTES", LIMIT)
            patch.setattr(audit_reading, "BLOCK_BYTES", LIMIT + 1)
            for found in (list(lines(fd, 0, len(content))), list(lines_backwards(fd, len(content)))[::-1]):
                rest = iter(found)
                assert all(line in rest for line in kept)  # each is there, in the same order
                assert max(map(len, found), default=0) <= 2 * LIMIT + 2
    finally:
        os.close(fd)
