"""Options are read as the program itself reads them; what the rule does not name exactly is refused."""

import pytest

from broker.options import OptionTable, read, read_leading
from broker.reasons import RuleError
from broker.refusal import PolicyDenied
from broker.schema import Rule


def table(*specs: str, **rule: object) -> OptionTable:
    made = OptionTable(Rule(**rule), "[rules.x]")
    for spec in specs:
        made.add(spec)
    return made


GREP = table(
    "-ivn",
    "-A, --after-context=integer",
    "-e, --regexp=text",
    "--color[=always|never]",
    "-NUM",
    "-w[=integer]",
)


def values(words: str, options: OptionTable = GREP) -> list[tuple[str, str]]:
    return [(word.option, word.text) for word in read(options, words.split()).values]


def operands(words: str, options: OptionTable = GREP) -> list[str]:
    return [word.text for word in read(options, words.split()).operands]


@pytest.mark.parametrize(
    ("words", "expected_values", "expected_operands"),
    [
        ("-A5 x", [("-A", "5")], ["x"]),
        ("-A 5 x", [("-A", "5")], ["x"]),
        ("-inA5 x", [("-A", "5")], ["x"]),
        ("-inA 5 x", [("-A", "5")], ["x"]),
        ("--after-context=5 x", [("-A", "5")], ["x"]),
        ("--after-context 5 x", [("-A", "5")], ["x"]),
        ("x y -A 5", [("-A", "5")], ["x", "y"]),
        ("-e -n x", [("-e", "-n")], ["x"]),
        ("-e -- x", [("-e", "--")], ["x"]),
        ("--regexp= x", [("-e", "")], ["x"]),
        ("--color x", [], ["x"]),
        ("--color=always x", [("--color", "always")], ["x"]),
        ("-w x", [], ["x"]),
        ("-w3 x", [("-w", "3")], ["x"]),
        ("-20 x", [], ["x"]),
        ("-- -A 5", [], ["-A", "5"]),
        ("x -- -n --", [], ["x", "-n", "--"]),
        ("- x", [], ["-", "x"]),
    ],
)
def test_gnu_options_are_read_like_getopt_long(
    words: str, expected_values: list[tuple[str, str]], expected_operands: list[str]
) -> None:
    assert values(words) == expected_values
    assert operands(words) == expected_operands


@pytest.mark.parametrize(
    "words",
    ["-x", "-ix", "--colo", "--colour", "--after", "--color-x", "-5x", "-A", "--regexp", "-iv=1", "--ivn"],
)
def test_what_is_not_named_exactly_or_lacks_its_value_is_refused(words: str) -> None:
    with pytest.raises(PolicyDenied):
        read(GREP, words.split())


def test_a_value_in_a_word_of_its_own_that_may_be_a_long_option_is_refused() -> None:
    assert values("-e --x y", table("-e =text")) == [("-e", "--x")], "here it is always the next word"
    assert values("-e--x y", GREP) == [("-e", "--x")]
    assert values("--regexp=--x y", GREP) == [("-e", "--x")]
    for words in ("-e --x y", "--regexp --x y", "-ie --x y"):
        with pytest.raises(PolicyDenied, match=r"looks like an option.*one word for both: "):
            read(GREP, words.split())


def test_an_abbreviated_name_is_refused_with_the_advice_to_write_it_out() -> None:
    with pytest.raises(PolicyDenied, match="write it out, if that is meant: --color"):
        read(GREP, ["--col"])


def test_a_flag_with_a_value_is_refused() -> None:
    with pytest.raises(PolicyDenied, match="it takes none"):
        read(table("--quiet"), ["--quiet=x"])


def test_options_first_ends_them_at_the_first_operand() -> None:
    posix = table("-a", options_first=True)
    assert operands("-a x -b -a", posix) == ["x", "-b", "-a"]


def test_a_separate_value_is_never_taken_from_the_same_word() -> None:
    tree = table("-aL", "-P =text")
    assert values("-aP x", tree) == [("-P", "x")]
    with pytest.raises(PolicyDenied, match="next word"):
        read(tree, ["-Pa", "x"])
    with pytest.raises(PolicyDenied):
        read(table("--arg =text text"), ["--arg=x", "y"])


def test_an_option_takes_as_many_words_as_it_has_kinds() -> None:
    jq = table("--rawfile =text path")
    assert values("--rawfile a b c", jq) == [("--rawfile", "a"), ("--rawfile", "b")]
    with pytest.raises(PolicyDenied, match="needs a value"):
        read(jq, ["--rawfile", "a"])


def test_a_last_optional_value_may_be_missing_at_the_end_only() -> None:
    branch = table("--merged?=revision", "-a")
    assert values("--merged", branch) == []
    assert values("--merged -a", branch) == [("--merged", "-a")]


def test_negatable_options_are_two() -> None:
    both = table("--[no-]renames")
    assert read(both, ["--renames", "--no-renames"]).given == {"--renames", "--no-renames"}


def test_single_dash_words_are_whole_options() -> None:
    find = table("-name, -iname=text", "-maxdepth=integer", "-print", option_style="single-dash")
    assert values(". -maxdepth 2 -iname -x -print", find) == [("-maxdepth", "2"), ("-name", "-x")]
    for words in (["-pr"], ["-prin"], ["-printf", "x"], ["--print"], ["--"], ["-namex"]):
        with pytest.raises(PolicyDenied):
            read(find, words)


def test_leading_options_stop_at_the_first_operand() -> None:
    reading, taken = read_leading(table("-C =folder", "-P"), ["-C", "x", "-P", "log", "-P"])
    assert taken == 3
    assert [word.text for word in reading.values] == ["x"]


@pytest.mark.parametrize(
    "spec",
    ["x", "-", "--", "-ab=text", "--x=", "--x=pth", "--x[=]", "-a b", "-a  -b", "--x=/(/", "--x=path&/", ""],
)
def test_a_spec_that_cannot_be_meant_is_an_error(spec: str) -> None:
    with pytest.raises(RuleError):
        table(spec)


def test_positions_count_the_words_of_the_command() -> None:
    assert [word.number for word in read(GREP, ["-n", "x", "-A", "5", "y"], 1).operands] == [2, 5]
