"""What a shell would act upon is refused with a reason; the rest is passed on as a shell passes it on."""

import contextlib
import time

import pytest

from broker.grammar import WORD_BYTES, WORDS, parse
from broker.refusal import REASON_CHARACTERS, ParseError, PolicyDenied, Refusal
from protocol.messages import COMMAND_CHARACTERS


def reason_of(command: str, kind: type[Refusal] = PolicyDenied, **options: str) -> str:
    with pytest.raises(Refusal) as caught:
        parse(command, **options)  # type: ignore[arg-type]
    assert type(caught.value) is kind, caught.value.reason
    assert len(caught.value.reason) < REASON_CHARACTERS
    return caught.value.reason


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls -la", ("ls", "-la")),
        ("  ls\t-la  ", ("ls", "-la")),
        ("echo ''", ("echo", "")),
        ("echo 'a'\"b\"c", ("echo", "abc")),
        ("echo 'a\nb' \"c\td\"", ("echo", "a\nb", "c\td")),
        ("grep -n 'a|b;c&d<e>f`g\\h$i' x", ("grep", "-n", "a|b;c&d<e>f`g\\h$i", "x")),
        ('grep "a|b;c&d<e>f" x', ("grep", "a|b;c&d<e>f", "x")),
        (
            "git show HEAD~1 HEAD@{1} HEAD^{commit} a#b",
            ("git", "show", "HEAD~1", "HEAD@{1}", "HEAD^{commit}", "a#b"),
        ),
        ("find . -name x {} +", ("find", ".", "-name", "x", "{}", "+")),
        (
            "echo {a} {} a{b c} ,{ }, {1..x} {..}",
            ("echo", "{a}", "{}", "a{b", "c}", ",{", "},", "{1..x}", "{..}"),
        ),
        ("echo '~' \"#\" '{a,b}' '(' ')' \"!\"", ("echo", "~", "#", "{a,b}", "(", ")", "!")),
        ("echo [ ] [] [!] [a ]b a]", ("echo", "[", "]", "[]", "[!]", "[a", "]b", "a]")),
        (
            "echo [a/b] 'x'=1 a=b =c x!y !! %1 -",
            ("echo", "[a/b]", "x=1", "a=b", "=c", "x!y", "!!", "%1", "-"),
        ),
        ("'X'=1 ls", ("X=1", "ls")),
        (
            "echo \u201ca\u201d caf\u00e9 \U0001f600 \u26a0\ufe0f",
            ("echo", "\u201ca\u201d", "caf\u00e9", "\U0001f600", "\u26a0\ufe0f"),
        ),
        ("find . ( -name a -o ! -name b )", ("find", ".", "(", "-name", "a", "-o", "!", "-name", "b", ")")),
        ("/usr/bin/find . ! -name b", ("/usr/bin/find", ".", "!", "-name", "b")),
    ],
)
def test_what_a_shell_passes_on_is_passed_on(command: str, words: tuple[str, ...]) -> None:
    argv = parse(command)
    assert argv.texts == words
    assert not argv.has_globs


@pytest.mark.parametrize(
    ("command", "shown", "column", "instead"),
    [
        ("ls | wc", "`|`", 4, "one after the other"),
        ("ls|wc", "`|`", 3, "pipes are not available"),
        ("ls || id", "`||`", 4, "exit code"),
        ("ls && id", "`&&`", 4, "one after the other"),
        ("cd src && ls", "`&&`", 8, "with this folder as its `cwd`"),
        ("cd src; ls", "`;`", 7, "with this folder as its `cwd`"),
        ("for f in *.py; do cat $f; done", "`;`", 14, "no loops or conditions"),
        ("while true\ndo ls", "a newline", 11, "no loops or conditions"),
        ("if test -f x; then ls; fi", "`;`", 13, "no loops or conditions"),
        ("ls ; id", "`;`", 4, "one after the other"),
        ("sleep 1 &", "`&`", 9, "background"),
        ("ls > x", "`>`", 4, "redirection"),
        ("ls 2>&1", "`>`", 5, "redirection"),
        ("ls >> x", "`>>`", 4, "redirection"),
        ("wc < x", "`<`", 4, "argument"),
        ("cat << EOF", "`<<`", 5, "here-documents"),
        ("diff <(ls) x", "`<(`", 6, "process substitution"),
        ("echo `id`", "a backtick", 6, "substitution"),
        ("echo $(id)", "`$(`", 6, "substitution"),
        ("echo $HOME", "`$`", 6, "variables"),
        ("ls a\\ b", "a backslash", 5, "single quotes"),
        ("find . \\( -name a \\)", "a backslash", 8, "'('"),
        ("ls\nid", "a newline", 3, "one command"),
        ("ls\n", "a newline", 3, "one command"),
        ("ls\\\n-la", "a backslash before a newline", 3, "write the command in one line"),
        ("ls > x", "`>`", 4, "to write a file, use the client's own edit tool"),
        ("ls >> x", "`>>`", 4, "use the client's own edit tool"),
        ("find . -exec rm {} \\;", "a backslash", 20, "if not, print the names and run the program on them"),
    ],
)
def test_a_metacharacter_is_refused_with_its_place_and_a_way_out(
    command: str, shown: str, column: int, instead: str
) -> None:
    reason = reason_of(command)
    assert reason.startswith(shown) or shown in reason
    assert f"column {column}" in reason
    assert instead in reason


@pytest.mark.parametrize(
    ("command", "column"), [('echo "$HOME"', 7), ('echo "a`id`"', 8), ('grep "a\\|b" f', 8)]
)
def test_what_is_live_in_double_quotes_is_refused_there(command: str, column: int) -> None:
    reason = reason_of(command)
    assert f"column {column}" in reason
    assert "single quotes" in reason


def test_of_a_backslash_in_double_quotes_nothing_false_is_said() -> None:
    assert reason_of(r'grep "\bfoo\b" f') == (
        "a backslash at column 7: not accepted in double quotes, where a shell drops some; put this word in single quotes"
    )
    assert "a shell acts on it" in reason_of('grep "x$" f')


NO_SUBSTITUTION = "no command substitution, inside double quotes neither: write the text itself (quotes may hold several lines;"
NO_VARIABLES = (
    "no variables, inside double quotes neither: write the value itself; only if a `$` is meant as text, put"
)


@pytest.mark.parametrize(
    ("command", "about", "said"),
    [
        ("git commit -m \"$(cat <<'EOF'\nSay why\nEOF\n)\"", "`$(` at column 16: ", NO_SUBSTITUTION),
        ('git commit -m "`date`"', "a backtick at column 16: ", NO_SUBSTITUTION),
        ('echo "$PATH"', "`$` at column 7: ", NO_VARIABLES),
        ('echo "a${b}"', "`$` at column 8: ", NO_VARIABLES),
        ('echo "$1"', "`$` at column 7: ", NO_VARIABLES),
        ('echo "$?"', "`$` at column 7: ", NO_VARIABLES),
    ],
)
def test_quotes_are_not_the_first_advice_where_a_shell_would_put_something_in_place(
    command: str, about: str, said: str
) -> None:
    """Who only changed the quotes would commit, or print, the text that was to be replaced."""
    assert reason_of(command).startswith(about + said)


@pytest.mark.parametrize("command", ["ls && id", "test -f x && echo y", "true; false"])
def test_a_folder_is_spoken_of_only_behind_cd(command: str) -> None:
    assert "cwd" not in reason_of(command)


@pytest.mark.parametrize("character", list(";|&<>`\\$\n"))
def test_a_policy_can_refuse_metacharacters_inside_quotes_too(character: str) -> None:
    parse(f"echo 'a{character}b'")
    assert "column 8" in reason_of(f"echo 'a{character}b'", metacharacters="anywhere")


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ("ls ~", "`~` at column 4"),
        ("ls ~root/x", "`~` at column 4"),
        ("dd if=~/x", "`~` at column 7"),
        ("x a=b:~/x", "`~` at column 7"),
        ("ls {a,b}", "word at column 4"),
        ("ls {a},b}", "word at column 4"),
        ("ls {1..3}", "word at column 4"),
        ("ls {','..x}", "word at column 4"),
        ("ls {..},a}", "word at column 4"),
        ("ls x{a..c}y", "word at column 4"),
        ("ls -exec{,}", "word at column 4"),
        ("ls " + "{" * 1000, "word at column 4"),
        ("X=1 ls", "NAME=value at column 1"),
        ("X+=1 ls", "NAME=value"),
        ("X= ls", "NAME=value"),
        ("X='a b' ls", "NAME=value"),
        ("a[0]=1 ls", "NAME=value"),
        ("ls # all", "`#` at column 4"),
        ("# ls", "`#` at column 1"),
        ("(ls)", "`(` in the word at column 1"),
        ("ls a(b", "`(` in the word at column 4"),
        ("ls )", "`)` in the word at column 4"),
        ("! ls", "`!` at column 1"),
        ("test ! -f x", "`!` at column 6"),
        ("find . (-name a)", "words by themselves"),
        ("l* -la", "program's name"),
    ],
)
def test_what_a_shell_would_expand_or_take_as_syntax_is_refused(command: str, about: str) -> None:
    assert about in reason_of(command)


@pytest.mark.parametrize("command", ["", " ", "\t \t"])
def test_an_empty_command_is_denied(command: str) -> None:
    assert "empty" in reason_of(command)


@pytest.mark.parametrize(
    "command",
    [
        "cat 'a",
        'cat "a',
        "echo 'a\\'b'",
        "cat a\0b",
        "cat 'a\0'",
        "cat \ud800",
        "cat '\udfff'",
        "a" * (COMMAND_CHARACTERS + 1),
        "a" * 5_000,
        "x " + "a " * WORDS,
        "x " + "\U0001f600" * (WORD_BYTES // 4 + 1),
    ],
    ids=range(11),
)
def test_what_is_no_command_text_is_a_parse_error(command: str) -> None:
    reason_of(command, ParseError)


def test_the_bounds_themselves_are_allowed() -> None:
    assert len(parse("x " + "a " * (WORDS - 1)).words) == WORDS
    assert parse("x " + "a" * (COMMAND_CHARACTERS - 2)).texts[1]


HIDDEN = (
    "\x01\x07\x08\r\x0b\x0c\x1b\x7f\x80\x85\xa0\xad\u061c\u115f\u180e\u2003\u200b\u200d\u200e\u202e\u2028\u2060"
    "\u2066\u3000\u3164\ufeff\U000e0041\U000e0100"
)


@pytest.mark.parametrize("quote", ["", "'", '"'])
@pytest.mark.parametrize("character", [*HIDDEN, "a\ufe0f"], ids=ascii)
def test_a_character_that_nobody_sees_is_refused_quoted_or_not(character: str, quote: str) -> None:
    assert f"U+{ord(character[-1]):04X} at column" in reason_of(f"cat {quote}a{character}b{quote}")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("ls *.py", "*.py"),
        ("ls 'a*'*", "a\\**"),
        ('ls "?"?[', "\\??\\["),
        ("ls [ab] ", "[ab]"),
        ("ls []a]", "[]a]"),
        ("ls [!a]", "[!a]"),
        ("ls [[:alpha:]]x", "[[:alpha:]]x"),
        ("ls [a'-'z]", "[a\\-z]"),
        ("ls '\\'*", "\\\\*"),
        ("ls [a/b]*", "\\[a/b]*"),
    ],
)
def test_live_globs_are_told_from_literal_ones(command: str, pattern: str) -> None:
    word = parse(command).words[1]
    assert word.pattern == pattern
    assert "live glob" not in word.text


def test_a_policy_can_turn_globs_off() -> None:
    assert "column 4" in reason_of("ls *.py", globs="refuse")
    assert parse("ls '*.py' [", globs="refuse").texts == ("ls", "*.py", "[")


def test_a_word_knows_its_column() -> None:
    assert [word.column for word in parse(" ls  'a b'c\t-x").words] == [2, 6, 13]


@pytest.mark.parametrize(
    "command",
    [
        "echo {s} | x",
        "X={s} ls",
        "echo '{s}",
        "{s} > x",
        "ls ~{s}",
        "ls {{{s},b}}",
        "ls #{s}",
        "ls ({s})",
        'ls "{s}$"',
        "{s}* x",
    ],
)
def test_no_reason_repeats_a_word_of_the_command(command: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(command.format(s="hunter2"))
    assert "hunter2" not in caught.value.reason


@pytest.mark.parametrize(
    "command",
    [
        "x " + "{" * 65_000,
        "x " + "[" * 65_000,
        "x " + "[a" * 32_000,
        "x " + "'" * 65_000,
        "x " + "[[:a" * 16_000,
        "x " + "a=:" * 20_000 + "~",
    ],
    ids=range(6),
)
def test_no_command_takes_long(command: str) -> None:
    before = time.process_time()
    with contextlib.suppress(Refusal):
        parse(command)
    assert time.process_time() - before < 2
