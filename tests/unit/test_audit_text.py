"""The texts of a call in the trail: redacted as a whole, cut afterwards, and one line whatever stands in them."""

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from broker.audit_record import Call
from broker.audit_text import redacted_words, show_call, show_reason
from broker.redaction import Redactor
from tests.support.made_secrets import characters, every_kind, github_token, survives
from tests.support.opened_trail import a_call, open_trail

REDACT = Redactor().redact


@pytest.mark.parametrize("made", every_kind(), ids=lambda made: made.kind)
def test_no_part_of_a_secret_is_in_the_words_where_the_command_hides_it(made) -> None:  # type: ignore[no-untyped-def]
    for argv in (("echo", made.text), ("echo", *made.text.split())):
        command = "echo '" + made.text + "'"
        call = Call(tool="run_command", command_raw=command, policy_sha256="", argv=argv, cwd="")
        shown = show_call(call, REDACT)
        if not survives(made.secret, shown.command_raw):
            assert not survives(made.secret, json.dumps(shown.argv))


def test_a_secret_in_a_word_of_its_own_leaves_the_other_words_as_they_were() -> None:
    token = github_token()
    shown = redacted_words(("curl", "-H", "X-Token: a b", "https://example.org", "--token", token), REDACT)
    assert shown[:2] == ("curl", "-H")
    assert shown[3:5] == ("https://example.org", "--token")
    assert len(shown) == 6
    assert token not in " ".join(shown)


def test_a_secret_that_is_only_seen_with_the_words_before_it() -> None:
    secret = characters(20)
    for argv in (
        ("mysql", "--password", secret, "--verbose"),
        ("curl", "-H", "Authorization:", "Bearer", secret),
    ):
        assert secret not in " ".join(redacted_words(argv, REDACT))


def test_a_value_with_spaces_is_redacted_to_its_end() -> None:
    def redact(text: str) -> str:
        return re.sub(r'(PASSWORD=|--password )("[^"]*"|\S+)', r"\1[REDACTED:x]", text)

    assert redacted_words(("env", "PASSWORD=one two", "ls"), redact) == ("env", "PASSWORD=[REDACTED:x]", "ls")
    assert redacted_words(("login", "--password", "one two"), redact) == (
        "login",
        "--password",
        "[REDACTED:x]",
    )


def _redact_quoted(text: str) -> str:
    return re.sub(r"'[^']+'", "'[REDACTED:x]'", text)


def test_what_is_only_seen_with_its_quotes_is_hidden_in_the_words_too() -> None:
    call = Call(
        tool="run_command",
        command_raw="put 'one two' --key='three' 'a'",
        policy_sha256="",
        argv=("put", "one two", "--key=three", "a", "banana"),
    )
    assert show_call(call, _redact_quoted).argv == (
        "put",
        "[REDACTED:x]",
        "--key=[REDACTED:x]",
        "[REDACTED:x]",
        "banana",
    )


def test_secrets_that_are_parts_of_the_marker_do_not_make_the_words_grow() -> None:
    parts = ("REDACTED", "EDAC", "ACTE", "DACT") * 8
    command = " ".join(f"'{part}'" for part in parts)
    call = Call(
        tool="run_command", command_raw=command, policy_sha256="", argv=("x", " ".join(parts), *parts)
    )
    shown = show_call(call, _redact_quoted)
    assert len(" ".join(shown.argv or ())) < 2_000


def test_more_secrets_than_are_worth_placing_give_up_the_words() -> None:
    command = " ".join(f"'secret{number}'" for number in range(100))
    call = Call(tool="run_command", command_raw=command, policy_sha256="", argv=("x", "secret7"))
    assert show_call(call, _redact_quoted).argv == ("x", "[REDACTED:secret]")


def test_a_secret_that_is_cut_by_the_bound_is_redacted_whole() -> None:
    token = github_token()
    call = a_call("echo " + "x" * (8_192 - 5 - 10) + " " + token)
    shown = show_call(call, REDACT)
    assert shown.cut.keys() == {"command_raw", "argv"}
    assert not survives(token, shown.command_raw + " ".join(shown.argv or ()))


def test_words_without_a_secret_are_kept_exactly() -> None:
    argv = ("printf", "a b", "", "  ", "c=d e", '"quoted"', "[REDACTED:x]", "é")
    assert redacted_words(argv, REDACT) == argv


def test_hostile_numbers_of_words_are_redacted_in_bounded_time() -> None:
    token = github_token()
    argv = ("--password", "x") * 16_000 + (token,)
    shown = show_call(Call(tool="run_command", command_raw="x", policy_sha256="", argv=argv), REDACT)
    assert token not in " ".join(shown.argv or ())


def test_a_record_is_one_printable_line_whatever_stands_in_it(tmp_path: Path) -> None:
    hostile = "echo \u2028 \u2029 \x85 \u202e \u200b \U000e0041 \x1c \r\n é 漢 \U0001f600"
    trail = open_trail(tmp_path / "audit.jsonl")
    trail.attempt(a_call(hostile))
    trail.close()
    text = (tmp_path / "audit.jsonl").read_text()
    (line,) = text.splitlines()
    assert line.isprintable()
    assert json.loads(line)["command_raw"] == hostile
    assert "漢" in line


def test_what_the_command_hides_the_folder_and_the_reason_hide_too() -> None:
    secret = characters(12)
    call = Call(
        tool="run_command",
        command_raw=f'tool --pass"word" {secret}',
        policy_sha256="",
        argv=("tool", "--password", secret),
        cwd=f"src/{secret}/lib",
    )
    shown = show_call(call, REDACT)
    assert shown.command_raw == "tool --password [REDACTED:password]"
    assert shown.cwd == "src/[REDACTED:secret]/lib"
    assert (
        show_reason(f"no rule lets {secret} through", shown, REDACT)
        == "no rule lets [REDACTED:secret] through"
    )


def test_a_reason_that_quotes_a_short_password_hides_it_as_the_command_does() -> None:
    words = ("git", "config", "--get", "smtp.pass", "Ab1!x")
    call = Call(tool="run_command", command_raw=" ".join(words), policy_sha256="", argv=words)
    shown = show_call(call, REDACT)
    assert "Ab1!x" not in f"{shown.command_raw} {shown.argv}"
    reason = show_reason("operand 'Ab1!x' (word 4) is not allowed here", shown, REDACT)
    assert reason == "operand '[REDACTED:password]' (word 4) is not allowed here"


def test_a_command_whose_secrets_are_too_many_to_be_placed_is_given_up_word_by_word() -> None:
    def redact(text: str) -> str:
        return re.sub(r"'[^']+'|XTOKEN\w+", "[REDACTED:x]", text)

    command = " ".join(f"'secret{number}'" for number in range(100)) + ' XTO"KEN"abcdef'
    call = Call(tool="run_command", command_raw=command, policy_sha256="", argv=None)
    shown = show_call(call, redact).command_raw
    assert shown == "[REDACTED:x] " * 100 + "[REDACTED:secret]"


TOKEN = github_token()
IN_ESCAPES = "".join(f"\\x{ord(character):02x}" for character in TOKEN)
OF_LINES = r"""
printf 'password:\n  @\n'
printf 'DB_PASSWORD\t@\n'
printf 'user,password\nbob,@\n'
printf 'pass\167ord=@'
echo -e 'password:\n  @'
echo -e 'contrase\u00f1a=@'
""".strip().splitlines()
REFUSED = r"""
echo | pass'word: "@"' a=b
echo; secret_ke'y "@"'
echo $'password:\n  @'
""".strip().splitlines()
REFUSED += ["echo $(x) \"password:\"'\n  @'", "cat > 'f' && echo pass\"word,user\n@,bob\""]
REFUSED += [f"{command} | tee f" for command in OF_LINES]
REFUSED += [json.dumps({"command": command})[:-1] for command in OF_LINES]


@pytest.mark.parametrize("command", OF_LINES)
def test_what_redaction_would_hide_of_the_output_the_command_does_not_show(command: str) -> None:
    secret = characters(20)
    words = tuple(shlex.split(command.replace("@", secret)))
    call = Call(tool="run_command", command_raw=command.replace("@", secret), policy_sha256="", argv=words)
    shown = show_call(call, REDACT)
    assert shown.argv is not None
    assert not survives(secret, " ".join((shown.command_raw, *shown.argv)))
    assert shown.argv[:1] == words[:1]


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_command_means_that_cannot_be_read_is_hidden_in_it(command: str) -> None:
    secret = characters(20)
    call = Call(tool="run_command", command_raw=command.replace("@", secret), policy_sha256="")
    shown = show_call(call, REDACT)
    assert not survives(secret, shown.command_raw)
    assert "[REDACTED:" in shown.command_raw


@pytest.mark.parametrize("command", [f"printf '{IN_ESCAPES} x'", f"printf 'gh\\160{TOKEN[3:]} x'"])
@pytest.mark.parametrize("more", ["", " | tee f"])
def test_a_secret_in_escapes_is_shown_neither_in_escapes_nor_plain(command: str, more: str) -> None:
    argv = None if more else tuple(shlex.split(command))
    call = Call(tool="run_command", command_raw=command + more, policy_sha256="", argv=argv)
    shown = show_call(call, REDACT)
    assert "[REDACTED:" in shown.command_raw
    record = " ".join((shown.command_raw, *(shown.argv or ())))
    assert not survives(TOKEN, record)
    assert IN_ESCAPES[20:40].replace("\\", "") not in record.replace("\\", "")


ESCAPED_KEY = r"'pass\x77ord=@'"
HARMLESS = [
    r"touch hidden printf '%s: %s\n' pass missing",
    r"touch hidden printf '%s: %s\n' password: missing",
    r"find . -name hidden -o -name printf -o -name '%s: %s\n' -o -name pass -o -name missing",
    r"touch hidden sh -c 'printf pass:%s\ missing'",
]


def shown_of(command: str) -> tuple[str, tuple[str, ...]]:
    """What the trail shows of a command that the gate can read."""
    words = tuple(shlex.split(command))
    shown = show_call(Call(tool="run_command", command_raw=command, policy_sha256="", argv=words), REDACT)
    assert shown.argv is not None
    return shown.command_raw, shown.argv


@pytest.mark.parametrize("command", HARMLESS)
def test_words_that_a_program_could_put_together_hide_nothing_else(command: str) -> None:
    raw, argv = shown_of(command)
    assert "hidden" in raw
    assert "hidden" in argv
    assert argv[0] == raw.split()[0] == command.split(maxsplit=1)[0]


@pytest.mark.parametrize(
    "word",
    [
        ESCAPED_KEY.replace("@", r"ab\x63def\x67hi12345"),
        f"'{IN_ESCAPES}'",
        rf"gh\\x70{TOKEN[3:]}",
        json.dumps(json.dumps({"token": TOKEN})).replace("ghp", r"\\u0067hp"),
    ],
)
def test_only_the_words_that_show_what_was_taken_are_given_up(word: str) -> None:
    raw, argv = shown_of(f"touch hidden {word} more")
    assert argv[:2] == ("touch", "hidden")
    assert argv[-1] == "more"
    assert "[REDACTED:" in argv[2]
    assert raw.startswith("touch hidden ")
    assert raw.endswith(" more")
    assert not survives(TOKEN, raw + " ".join(argv))
    assert IN_ESCAPES[20:40] not in raw + " ".join(argv)


def test_no_words_beside_a_secret_make_the_rest_of_the_command_vanish() -> None:
    for command in (
        "[ -f hunt,er2hunter2 -o password=hunter2hunter2 ]",
        "touch 'hunt;er2hunter2' password=hunter2hunter2 x",
        rf"touch hidden 'pass\'\''word:' {TOKEN}'\x77' '\u0067hp_{TOKEN}\u0067hp_['",
    ):
        raw, argv = shown_of(command)
        assert "[REDACTED:command]" not in raw
        assert not survives("hunter2hunter2", argv[-2])
        assert raw.split()[1].strip("'") == argv[1] == shlex.split(command)[1]


@pytest.mark.parametrize(
    "command",
    [
        "python3 x.py password=python3",
        r"python3 x.py 'pass\x77ord=python3'",
        "python3 --password 'python3 x'",
        'python3 pass"word"=python3',
    ],
)
def test_no_other_word_hides_the_name_of_the_program(command: str) -> None:
    raw, argv = shown_of(command)
    assert argv[0] == "python3"
    assert raw.startswith("python3 ")
    assert "python3" not in argv[-1]


def test_a_secret_in_place_of_a_program_is_hidden() -> None:
    for word in (TOKEN, f"'{IN_ESCAPES}'", f"PASSWORD='one two {TOKEN}'", rf"'pass\x77ord: {TOKEN}'"):
        raw, argv = shown_of(f"{word} x")
        assert not survives(TOKEN, raw + " ".join(argv))
        assert IN_ESCAPES[20:40] not in raw + " ".join(argv)


def test_a_command_whose_secrets_cannot_be_told_from_the_rest_begins_with_its_program() -> None:
    secret = characters(20)
    words = ("tool", "--password", secret, "x" * 300_000, "--password", secret)
    call = Call(tool="run_command", command_raw=" ".join(words), policy_sha256="", argv=words)
    shown = show_call(call, REDACT)
    assert shown.command_raw == "tool [REDACTED:command]"
    assert shown.argv == ("tool",) + ("[REDACTED:secret]",) * 5


@pytest.mark.parametrize(
    "command", ["ls \0 password=abcDEF12345\0x", '{"command":"\0", "password": "\0abcDEF12345"']
)
def test_a_character_that_no_word_can_have_is_no_fault(command: str) -> None:
    for argv in (None, tuple(command.split())):
        call = Call(tool="run_command", command_raw=command, policy_sha256="", argv=argv)
        assert "DEF123" not in json.dumps(show_call(call, REDACT)[:2])


MANY_WORDS = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvAIBADANBgkq\n" * 3_000


MANY_ESCAPES = " ".join(rf"pass\x77ord=abcDEF{number:05}" for number in range(2_500))
FORMS = "%" + "0" * 32_000 + "s" + " ''" * 10_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("{+[-x-]" * 9_000, 3.0),
        ("[-{+x+}" * 9_000, 3.0),
        (MANY_WORDS, 3.0),
        (MANY_ESCAPES, 1.0),
        (f"printf {FORMS}", 1.0),
    ],
)
def test_a_hostile_command_costs_the_trail_bounded_time(text: str, seconds: float) -> None:
    argv = ("ls", *text.split(), "a", "--password", "Zq8Lm3Xw7Yt")[:40_000]
    redact = Redactor().redact
    started = time.process_time()
    shown = show_call(
        Call(tool="run_command", command_raw=" ".join(argv), policy_sha256="0" * 64, argv=argv), redact
    )
    assert time.process_time() - started < seconds
    assert "Zq8Lm3Xw7Yt" not in shown.command_raw


def test_many_pieces_of_secrets_among_many_words_take_linear_time() -> None:
    secrets = [" ".join(f"{a:02}q{b:02}" for b in range(30)) for a in range(30)]
    words = (*secrets, *"a" * 25_000)
    command = " ".join(f"'{secret}'" for secret in secrets) + " a" * 25_000
    started = time.process_time()
    shown = show_call(
        Call(tool="run_command", command_raw=command, policy_sha256="", argv=words), _redact_quoted
    )
    assert time.process_time() - started < 2.0
    assert "29q29" not in shown.command_raw + " ".join((shown.argv or ())[1:])
