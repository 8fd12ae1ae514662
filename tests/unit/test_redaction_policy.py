"""What an operator can say: own patterns, off, the entropy fallback; and what start-up refuses."""

import pytest

from broker.redaction import Redactor
from broker.refusal import StartupError
from broker.schema import ExtraPattern, Redaction
from tests.support.random_text import filled


def _with(*patterns: ExtraPattern) -> Redactor:
    return Redactor(Redaction(extra_patterns=patterns))


def test_an_operators_pattern_is_redacted_under_its_name() -> None:
    redactor = _with(ExtraPattern(name="internal_id", regex="INT-[0-9]{8}"))
    assert redactor.redact("see INT-12345678.") == "see [REDACTED:internal_id]."


def test_the_group_named_value_or_the_first_one_is_the_secret() -> None:
    assert (
        _with(ExtraPattern(name="pin", regex="(?P<key>pin)=(?P<value>[0-9]+)")).redact("pin=99")
        == "pin=[REDACTED:pin]"
    )
    assert _with(ExtraPattern(name="pin", regex="pin=([0-9]+)")).redact("pin=99") == "pin=[REDACTED:pin]"


def test_an_operators_pattern_sees_characters_and_not_bytes() -> None:
    assert _with(ExtraPattern(name="x", regex="^.é.$")).redact("ñéü") == "[REDACTED:x]"


@pytest.mark.parametrize("regex", ["(", r"(a)\1", "a(?=b)", "(?<!x)y", "a{2000}", "[[:nope:]]"])
def test_a_pattern_that_is_invalid_or_not_linear_is_refused_at_start(regex: str) -> None:
    with pytest.raises(StartupError, match=r"redaction\.extra_patterns: bad: "):
        _with(ExtraPattern(name="bad", regex=regex))


def test_a_pattern_that_matches_nothing_at_all_is_refused_at_start() -> None:
    with pytest.raises(StartupError, match="everywhere"):
        _with(ExtraPattern(name="bad", regex="[0-9]*"))


def test_a_pattern_that_does_not_match_its_own_example_is_refused_at_start() -> None:
    with pytest.raises(StartupError, match="its own example"):
        _with(ExtraPattern(name="internal_id", regex="INT-[0-9]{8}", example="INT-1234567"))
    _with(ExtraPattern(name="internal_id", regex="INT-[0-9]{8}", example="as in INT-12345678"))


def test_two_patterns_of_one_name_are_refused_at_start() -> None:
    with pytest.raises(StartupError, match="more than one pattern is named twice"):
        _with(ExtraPattern(name="twice", regex="aaaa"), ExtraPattern(name="twice", regex="bbbb"))


@pytest.mark.parametrize("name", ["", "a b", "x]", "n" * 65, "é"])
def test_a_name_that_could_not_stand_in_a_marker_is_refused_at_start(name: str) -> None:
    with pytest.raises(StartupError, match="is no name"):
        _with(ExtraPattern(name=name, regex="aaaa"))


def test_redaction_that_is_off_changes_nothing() -> None:
    text = filled("GITHUB_TOKEN=ghp_{base62:36}")
    assert Redactor(Redaction(enabled=False)).redact(text) is text


def test_the_entropy_fallback_is_off_by_default_and_redacts_what_nobody_knows() -> None:
    text = filled("build {base62:32} done")
    assert Redactor().redact(text) is text
    assert Redactor(Redaction(entropy_fallback=True)).redact(text) == "build [REDACTED:high_entropy] done"


def test_the_entropy_fallback_trips_on_hashes_as_the_contract_says() -> None:
    text = filled("commit {hex:40}")
    assert Redactor(Redaction(entropy_fallback=True)).redact(text) == "commit [REDACTED:high_entropy]"
