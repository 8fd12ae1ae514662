"""What a text may mean beside what it says: escapes, quotes and JSON are read, cut or not, in linear time."""

import time

import pytest

from broker.audit_meanings import decoded, decoded_across_quotes, meanings


def texts(raw: str, words: tuple[str, ...] | None) -> list[str]:
    return [meaning.text for meaning in meanings(raw, words)]


@pytest.mark.parametrize(
    "command", ["ls", "ls -la src", "git log -5", "find . -name a.py", "é 漢", "echo hi"]
)
def test_a_plain_command_means_nothing_else(command: str) -> None:
    assert meanings(command, tuple(command.split())) == []
    assert decoded(command) == decoded_across_quotes(command) == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a\\nb\\tc\\r", "a\nb\tc\n"),
        ("\\x41\\102\\u0043\\U00000044\\x5", "ABCD"),
        ("\\\\\\\\x41", "A"),
        ("contrase\\xc3\\xb1a \\303\\261 \\xf1 \\u00f1", "contraseña ñ ñ ñ"),
        ("\\ud83d\\ude00\\ud83d", "😀\ufffd"),
        ("\\w\\.\\\"\\'", "w.\"'"),
        ("a\\\nb", "ab"),
        ("gh\\e[0mp\\b\\bhp", "ghp"),
        ("\\UFFFFFFFF", "\\UFFFFFFFF"),
        ("\\", "\\"),
    ],
)
def test_escapes_are_decoded_as_a_terminal_shows_them(text: str, meant: str) -> None:
    assert meant in decoded(text)


def test_an_octal_escape_is_read_as_printf_and_as_echo_do() -> None:
    assert {"R", "\n2"} <= set(decoded("\\0122"))


def test_a_backslash_that_is_meant_is_kept_too() -> None:
    assert decoded("\\\\\\\\nas\\\\x41") == ["\nasA", "\\\\nas\\x41"]


def test_an_escape_that_quotes_split_is_decoded() -> None:
    assert decoded_across_quotes("'\\x4''1' \\10\"2\" \\\"c") == ["A B c"]


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("echo | pass'word: \"x\"' y", 'password: "x"'),
        ("echo $'a\\'b\\nc'", "a'b\nc"),
        ('echo "a\\"b" > f', 'a"b'),
        ("cat 'a b", "a b"),
        ("sh -c \"printf 'a\\\\nb' | tee f\" | x", "a\nb"),
        ("echo it's; printf 'a\\nb'", "a\nb"),
        ("x=a\\\n'b' &", "ab"),
        ('{"command":"printf \'a\\\\nb\'","x":NaN}', "a\nb"),
        ('{"command":"\\u0061\\/b","command":"c', "a/b"),
        ('["mysql","--password","a b', "mysql --password a b"),
        ('{"env":{"a\\u0062":7,"c":[true,"d"]}}', "ab=7"),
        ('{ printf $\'"a", "b"\'; }', '"a", "b"'),
        ("echo a b | tee f", "echo \na b"),
    ],
)
def test_a_command_that_cannot_be_read_is_read_all_the_same(raw: str, meant: str) -> None:
    assert any(meant in text for text in texts(raw, None))


def test_what_is_in_quotes_or_printed_stands_on_a_line_of_its_own_too() -> None:
    assert any("\na b\n" in text for text in texts("x 'a b' c", ("x", "a b", "c")))
    assert "echo \na b" in texts("echo a b", ("echo", "a", "b"))
    assert "echo \n1234567890abcdef" in texts("echo 1234567890abcdef", ("echo", "1234567890abcdef"))
    assert "echo -e \na b" in texts("echo -e a b", ("echo", "-e", "a", "b"))
    assert any("\na\tb\n" in text for text in texts("tool k='a\\tb' c", ("tool", "k=a\\tb", "c")))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("printf", "a%s-%5d%%\\n", "\\x41", "7"), "aA-7%\n"),
        (("printf", "%s\\n", "a:", "  b"), "a:\n  b\n"),
        (("env", "printf", "%s%s%s", "a", "b"), "ab"),
        (("printf", "%%", "a"), "%"),
    ],
)
def test_what_printf_puts_together_is_read_together(words: tuple[str, ...], printed: str) -> None:
    before = " ".join(words[: words.index("printf") + 1])
    assert f"{before} \n{printed}" in texts(" ".join(words), words)


def test_what_has_lost_its_backslashes_is_not_for_reading() -> None:
    legible = [meaning.text for meaning in meanings("| printf \\x41 '\\x42'", None) if meaning.is_legible]
    assert legible
    assert not any("x41" in text and "\\x41" not in text for text in legible)


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
        assert len(found) < 60
        assert sum(len(meaning.text) for meaning in found) < 3 * 60 * len(raw)
    assert time.process_time() - started < 3.0
