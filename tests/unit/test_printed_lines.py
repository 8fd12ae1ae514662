"""What programs print about a file that holds secrets: each form, made by the program itself where it is at hand."""

# ruff: noqa: RUF001 - names in other scripts are what this is about

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from broker.output import OutputFilter
from broker.redaction import Redactor
from tests.support.random_text import filled
from tests.unit.test_redaction import armoured

REDACTOR = Redactor()
redact = REDACTOR.redact
BOUND_S = 30.0
OLD, NEW, OTHER = (filled("{base62:16}", seed) for seed in (11, 12, 13))
BLOCK = armoured("RSA PRIVATE KEY", 24)
KEY = BLOCK[1:-1]
FILES = {
    "app.env": '# settings\nAPP=demo\nDB_PASSWORD={0}\nAPI_TOKEN="{1}"\n',
    "c.yml": "db:\n  host: h\n  password: {0}\n  api_key: '{1}'\n",
    "next.yml": "db:\n  password:\n    {0}\nvars:\n- name: DB_PASSWORD\n  value: {1}\n",
    "c.json": '{{\n  "password": "{0}",\n  "client_secret": "{1}"\n}}\n',
    ".pgpass": "db1:5432:d:me:{0}\n10.0.0.9:*:d:me:{1}\n",
    ".netrc": "machine h.example.com\nlogin me\npassword {0}\n\nmachine g login me password {1}\n",
    "redis.conf": "port 6379\nrequirepass {0}\nmasterauth {1}\n",
    "users.csv": "user,password,age\nada,{0},3\nbob,{1},4\n",
    "main.go": '\tsql.Open("mysql", "me:{0}@tcp(db:3306)/x")\n\tpassword := "{1}"\n',
    "p.py": 'password = """{0}"""\nlogin(user="x", password=\'{1}\')\n',
    "i.yml": 'contraseña: {0}\nпароль: "{1}"\n',
    "k.pem": "\n".join(BLOCK) + "\n",
}
LINES = [
    "cat -n",
    "nl -ba",
    "uniq -c",
    'grep -n ""',
    'grep -Hnb ""',
    'grep -T -n ""',
    "git blame",
    "git blame -s",
    "git blame -c",
]
LINES += [
    "git blame -f -n -e",
    "git blame --line-porcelain",
    'git grep -n ""',
    'git grep -n "" HEAD --',
    "git log -p --graph --",
]
LINES += ["git log -p --line-prefix='> ' --", "git log -p --"]
DIFFS = [
    "git diff",
    "git diff -R",
    "git diff --line-prefix='| '",
    "git diff --word-diff-regex=.",
    "git diff --word-diff",
]
RECORDS = ['rg --json ""', "rg --json .", 'rg --json "[A-Za-z0-9]+"', 'rg --json ".{9}$"', 'rg -n ""']


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose files held the old secret when they were committed and hold the new one now."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path_factory.mktemp("repository")
    for name, text in FILES.items():
        (folder / name).write_text(text.format(OLD, OTHER), encoding="utf-8")
    who = "-c user.name='A B' -c user.email=a@example.com"
    _print(folder, f"git init -q && git add -A && git {who} commit -qm first")
    for name, text in FILES.items():
        if name != "k.pem":
            (folder / name).write_text(text.format(NEW, OTHER), encoding="utf-8")
    return folder


def _print(folder: Path, command: str) -> str:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }
    ended = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, timeout=BOUND_S, check=False
    )
    assert not ended.stderr, ended.stderr
    output = OutputFilter(REDACTOR, 1 << 20)
    output.feed(ended.stdout)
    return output.close()


def _shows_any(text: str) -> list[str]:
    secrets = [OLD, NEW, OTHER, *(line for line in KEY if len(line) > 40)]
    return [secret for secret in secrets if any(secret[at : at + 8] in text for at in range(len(secret) - 7))]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", LINES)
def test_what_stands_before_lines_hides_no_secret(folder: Path, command: str, name: str) -> None:
    assert not _shows_any(_print(folder, f"{command} {name}"))


@pytest.mark.parametrize("name", [name for name in FILES if name != "k.pem"])
@pytest.mark.parametrize("command", DIFFS)
def test_neither_side_of_a_change_is_shown(folder: Path, command: str, name: str) -> None:
    if "word-diff" in command and name == "i.yml":
        pytest.skip("git takes one line's value for the next line's name")
    shown = _print(folder, f"{command} {name}")
    assert shown
    assert not _shows_any(shown)


@pytest.mark.skipif(shutil.which("rg") is None, reason="needs rg")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", RECORDS)
def test_records_of_rg_show_no_secret_nor_repeat_it(folder: Path, command: str, name: str) -> None:
    shown = _print(folder, f"{command} {name}")
    assert not _shows_any(shown)
    for line in shown.splitlines() if "--json" in command else ():
        json.loads(line)


def _record(line: str, matches: list[tuple[str, int, int]]) -> str:
    submatches = [{"match": {"text": text}, "start": start, "end": end} for text, start, end in matches]
    data = {
        "path": {"text": "a/b"},
        "lines": {"text": line},
        "line_number": 3,
        "absolute_offset": 9,
        "submatches": submatches,
    }
    return json.dumps({"type": "match", "data": data}, separators=(",", ":"), ensure_ascii=False) + "\n"


def test_a_record_without_rg_at_hand() -> None:
    before = 'é"\t DB_PASSWORD='
    start = len(before.encode())
    shown = redact(
        _record(
            f"{before}{OLD}\n", [("é", 0, 2), (OLD[:7], start, start + 7), (OLD[9:], start + 9, start + 16)]
        )
    )
    assert OLD[:6] not in shown
    assert OLD[10:] not in shown
    assert json.loads(shown)["data"]["submatches"][0]["match"]["text"] == "é"


def test_a_key_in_records_goes_whole_and_the_records_are_still_json() -> None:
    shown = redact("".join(_record(line + "\n", [("", 0, 0)] * 70) for line in BLOCK))
    assert not _shows_any(shown)
    assert [json.loads(line)["type"] for line in shown.splitlines()] == ["match"]


@pytest.mark.parametrize("mark", ["[-{}-]{{+{}+}}", "[-{}-] {{+{}+}}", "{{+{1}+}}[-{0}-]"])
def test_both_sides_of_a_diff_of_words_go(mark: str) -> None:
    assert redact("password: " + mark.format(OLD, NEW)) == "password: " + mark.format(
        *["[REDACTED:password]"] * 2
    )


def test_parts_of_a_value_that_a_diff_of_words_splits_go() -> None:
    shown = redact(f"DB_PASSWORD={OLD[:8]}[-{OLD[8:10]}-]{{+{NEW[8:10]}+}}{OLD[10:]}\n")
    assert not _shows_any(shown)
    assert OLD[:8] not in shown


def test_a_diff_of_words_that_only_colours_told_apart() -> None:
    shown = redact(f'{{"db": {{"password": "{OLD}","{NEW}", "n": 1}}}}\n')
    assert not _shows_any(shown)
    compact = f'{{"password":"{OLD}","{NEW}":"x"}}'
    assert redact(compact) == f'{{"password":"[REDACTED:password]","{NEW}":"x"}}'


@pytest.mark.parametrize(
    "written",
    ['password = "{}"{}', "password='{}'{}", "password={}'{}'", 'password={}"{}"', "--password '{}'{}"],
)
def test_what_a_shell_would_join_to_a_value_goes_with_it(written: str) -> None:
    shown = redact(written.format(OLD[:6], OLD[6:]) + "\n")
    assert OLD[:6] not in shown
    assert OLD[6:12] not in shown


@pytest.mark.parametrize(
    "name",
    [
        "contraseña",
        "Contraseña",
        "db_senha",
        "mot de passe",
        "motDePasse",
        "Kennwort",
        "Wachtwoord",
        "lösenord",
        "hasło",
        "şifre",
        *("пароль", "ПАРОЛЬ", "密码", "数据库密码", "パスワード", "비밀번호", "DB_CONTRASENA", "секрет"),
    ],
)
@pytest.mark.parametrize("sign", [": ", "=", "：", ' : "'])
def test_a_name_in_another_language_promises_a_secret(name: str, sign: str) -> None:
    assert OLD not in redact(f"{name}{sign}{OLD}\n")


@pytest.mark.parametrize(
    "text",
    [
        "密码：请输入6位以上，包含字母\n",
        "contraseña: Introduzca su contraseña\n",
        '"пароль": "Неверный пароль",\n',
        "enclave: 8f3kq0zzW1\nclave: valor\n",
        "desenhar = umaFuncao1\n",
        '"a","b1","c"\n"d","e2","f"\n',
        "src/a.py:12:    return first[-1:-2]\nsrc/a.py:13:    x = {+1}\n",
        "12:30:05 started 4711:5432:a:b: ok\n",
        "| name | value |\n| - | - |\n| key | +1 |\n",
        "- one\n- two: 3\n~\n",
        'echo "password: "$2 "and"x\n',
        '{"type":"match","data":{"path":{"text":"a"},"lines":{"text":"x = 1\\n"},"line_number":1,"absolute_offset":0,'
        '"submatches":[{"match":{"text":"x"},"start":0,"end":1}]}}\n',
    ],
)
def test_what_only_looks_like_a_print_of_a_secret_is_the_same_object(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize(
    "unit",
    [
        *("1:", "[-a-]", "{+a+}[-b-]", "+", "a\n~\n", " |\t", '"a"\n', "1-", "+a\n", "@@ -1 +1 @@\n-a\n"),
        *("{+[-x-]", "[-{+x+}", "[-", "{+", "[-[x-]", "pass x[-", "+password=Zq8Lm3Xw7Yt", "user,password,"),
    ],
)
def test_what_stands_before_lines_is_found_in_linear_time(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        redact(text)
        return time.process_time() - start

    eighth, window = min(seconds(1 << 14) for _ in range(3)), seconds(1 << 17)
    assert window < 24 * eighth + 0.1


def test_a_stream_of_prints_gives_what_the_whole_gives() -> None:
    lines = "".join(
        "@@ -1 +1 @@\n" * (n % 100 == 0)
        + f"src/f.env:{n}:DB_PASSWORD={filled('{base62:16}', n)}\n+password {NEW}\n"
        for n in range(4000)
    )
    text = lines + "".join(_record(f"API_TOKEN={OLD}\n", [(OLD, 10, 26)]) for _ in range(400))
    stream = REDACTOR.stream()
    given = [stream.feed(text[at : at + 3001]) for at in range(0, len(text), 3001)]
    whole = redact(text)
    assert "".join(given) + stream.close() == whole
    assert not _shows_any(whole)


@pytest.mark.parametrize("cut", [3, 5])
def test_a_key_whose_lines_have_lost_their_beginning_goes(cut: int) -> None:
    shown = redact("".join(f"{line[cut:]}\n" for line in BLOCK))
    assert not [line for line in KEY if line[cut:40] in shown]


def test_data_source_names_near_each_other_all_go() -> None:
    lines = [
        f'"me:{secret[:6]}@{secret[6:]}@{net}(db:3306)/x",\n'
        for secret, net in zip((OLD, NEW, OTHER), ("tcp", "unix", "udp"), strict=True)
    ]
    shown = redact("".join(lines))
    assert not [secret for secret in (OLD, NEW, OTHER) if secret[6:] in shown or secret[:6] in shown]
