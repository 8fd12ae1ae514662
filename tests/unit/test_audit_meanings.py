"""What a text may mean beside what it says: escapes, quotes and JSON are read, cut or not, in linear time."""

import time

import pytest

from broker.audit_meanings import as_echo, decoded, meanings


@pytest.mark.parametrize(
    "command", ["ls", "ls -la src", "git log -5", "find . -name a.py", "é 漢", "echo hi"]
)
def test_a_plain_command_means_nothing_else(command: str) -> None:
    assert meanings(command, tuple(command.split())) == []
    assert decoded(command) == command


def test_an_ordinary_command_with_quotes_means_only_its_words_or_itself_without_them() -> None:
    assert meanings("grep -n 'a b' x", ("grep", "-n", "a b", "x")) == []
    assert meanings("awk '/\"x\"/'", ("awk", '/"x"/')) == ["awk /x/"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a\\nb\\tc\\r", "a\nb\tc\n"),
        ("\\x41\\102\\u0043\\U00000044\\x5", "ABCD\n"),
        ("\\\\\\\\x41", "\\\\x41"),
        ("contrase\\xc3\\xb1a \\303\\261 \\xf1 \\u00f1", "contraseña ñ ñ ñ"),
        ("\\ud83d\\ude00\\ud83d", "😀\ufffd"),
        ("\\w\\.\\\"\\'", "w.\"'"),
        ("a\\\nb", "ab"),
        ("a\\033[0m\\b\\0b\x07\\", "a\n[0m" + "b\nb\n\\"),
        ("\\UFFFFFFFF", "\\UFFFFFFFF"),
        ("\\", "\\"),
    ],
)
def test_escapes_are_decoded_once_and_control_characters_end_a_line(text: str, meant: str) -> None:
    assert decoded(text) == meant


def test_an_octal_escape_is_read_as_printf_and_as_echo_do() -> None:
    assert decoded("\\0122") == "\n2"
    assert decoded(as_echo("\\0122")) == "R"
    assert {"x\n\n2", "x R"} <= set(meanings("x '\\0122'", ("x", "\\0122")))


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("echo | pass'word: \"x\"' y", '\npassword: "x"\n'),
        ("echo $'a\\'b\\nc'", "a'b\nc"),
        ('echo "a\\\\"b" > f', "a"),
        ("cat 'a b", "a b"),
        ("echo it's; printf 'a\\nb'", "a\nb"),
        ("x=a\\\n'b' &", "ab"),
        ("x='a\\nb' &", "x=\na\nb\n"),
        ("echo '\\x4''1'|b", "echo A\n\n|\n\nb"),
        ('{"command":"printf \'a\\\\nb\'","x":NaN}', "a\nb"),
        ('{"command":"\\u0061\\/b","command":"c', "a/b"),
        ('["mysql","--password","a b', "mysql --password a b"),
        ('{"env":{"a\\u0062":7,"c":[true,"d"]}}', "ab=7"),
        ('{ printf $\'"a", "b"\'; }', '"a", "b"'),
    ],
)
def test_a_command_that_cannot_be_read_is_read_all_the_same(raw: str, meant: str) -> None:
    assert any(meant in text for text in meanings(raw, None))


def test_a_word_with_blanks_or_quotes_within_is_on_a_line_of_its_own_too() -> None:
    assert "x\n'a' b\nc" in meanings("x \"'a' b\" c", ("x", "'a' b", "c"))
    assert "tool\nk=\na\tb\nc" in meanings("tool k='a\\tb' c", ("tool", "k=a\\tb", "c"))


@pytest.mark.parametrize(
    "piece",
    [
        "\\",
        "\\\\n",
        "\\x4",
        "'",
        '"',
        '"\\',
        "$'",
        "{",
        '{"a":',
        "echo ",
        "a=",
        "\\0101",
        "\\ud800",
        "\x1b[",
        "\t",
        " '",
    ],
)
def test_meanings_are_few_and_take_linear_time(piece: str) -> None:
    raw = piece * (65_536 // len(piece))
    started = time.process_time()
    for words in (None, (raw,), tuple(raw.split(" ")[:4_096]), ("printf", f"%s{raw}", *"x" * 4_000)):
        found = meanings(raw, words)
        assert len(found) < 9
        assert max(map(len, found), default=0) < 3 * len(raw)
    assert time.process_time() - started < 3.0
