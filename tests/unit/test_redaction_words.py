"""Passwords with words in them: what a person or a program has chosen goes, what only stands in for a secret stays."""

import pytest

from broker.redaction import Redactor
from tests.support.random_text import filled

redact = Redactor().redact
RANDOM = filled("{lower36:10}", 4)
CHOSEN = [
    "xK9secretQ2",
    "prodTokenA7f3Q9",
    "zQ7KeyW8vB3nLx",
    "MySecretPass123",
    "supersecret123",
    "hunter2secret",
    "monkey99",
    "dragon_key_77",
    "HunterPass9",
    "winter.pass2021",
    "devPassw0rd",
    "Secret!42",
    "admin123",
    "Welcome1",
    "qwerty123",
    "test1234",
    "zQyour7B3x",
    "junityour5",
    "sopsFan88",
    "@dmin2024",
    "lambda7Xq!",
    "jwt_secret_for_prod_2024",
    "my_secret_4f81",
    f"my_secret_{RANDOM}",
    f"prod_api_key_{RANDOM}",
]
FILES = {
    "env": "PORT=80\n{key}={}\nHOST=db1\n",
    "shell": "export {key}='{}'\n",
    "docker": "docker run -e {key}={} -p 80:80 nginx\n",
    "image": "ENV {key} {}\n",
    "compose": "    environment:\n      - {key}={}\n",
    "yaml": "db:\n  {low}: {}\n  port: 5432\n",
    "yaml, quoted": 'db:\n  {low}: "{}"\n',
    "manifest": "        - name: {key}\n          value: {}\n",
    "json": '{{"user": "ada", "{low}": "{}", "port": 1}}\n',
    "properties": "spring.datasource.{low}={}\n",
    "ini": "[db]\n{low} = {}\nport = 5\n",
    "xml": "<db><{low}>{}</{low}></db>\n",
    "toml": '[db]\n{low} = "{}"\n',
    "option": "tool --{opt} {} --verbose\n",
    "query": "https://db1.example.com/?user=ada&{low}={}&page=2\n",
    "list": "user=ada,{low}={},port=5\n",
    "source": "connect(user='ada', {low}='{}')\n",
}
KEYS = (("DB_PASSWORD", "password", "password"), ("API_TOKEN", "auth_token", "auth-token"))


@pytest.mark.parametrize("value", CHOSEN)
@pytest.mark.parametrize("written", FILES.values(), ids=FILES)
def test_a_value_goes_whatever_words_are_in_it(written: str, value: str) -> None:
    for key, low, opt in KEYS:
        before, after = written.format("\0", key=key, low=low, opt=opt).split("\0")
        result = redact(written.format(value, key=key, low=low, opt=opt))
        assert value not in result, result
        assert result.startswith(before + "[REDACTED:"), result
        assert result.endswith("]" + after), result
        assert redact(result) == result


@pytest.mark.parametrize("value", CHOSEN)
@pytest.mark.parametrize(
    "written",
    [
        "postgres://app:{}@db1/shop\n",
        "machine example.com login ada password {}\n",
        "mysql -u root -p{} shop\n",
        "user,password\nada,{}\n",
    ],
)
def test_it_goes_too_where_a_program_takes_a_password(written: str, value: str) -> None:
    assert value not in redact(written.format(value))


@pytest.mark.parametrize("word", ["monkey", "swordfish", "keyboard", "authority", "sunshine!"])
def test_a_word_is_a_password_although_a_shorter_word_is_in_it(word: str) -> None:
    for written in ("DB_PASSWORD={}\n", '{{"password": "{}"}}\n', "spring.datasource.password={}\n"):
        assert word not in redact(written.format(word))


@pytest.mark.parametrize("word", ["Sunshine", "CorrectHorse", "HunterSecret", "sunshine_rain", "sun-shine"])
def test_behind_a_name_in_capitals_a_word_may_have_capitals_and_joints(word: str) -> None:
    for written in ("DB_PASSWORD={}\n", "export DB_PASSWORD={}\n", "docker run -e DB_PASSWORD={} nginx\n"):
        assert word not in redact(written.format(word))
    for written in ("db.password={}\n", "password: {}\n", 'LOGIN_PASSWORD="{}"\n'):  # a constant, a label
        assert redact(written.format(word)) == written.format(word)
    assert redact("DB_PASSWORD=REDIRECT\n") == "DB_PASSWORD=REDIRECT\n"


STAND_INS = [
    *(
        "changeme123",
        "your-token-123",
        "yourSecretKey1",
        "example1",
        "my-example-key-7f3a",
        "xxxx1234",
        "dummy-pass-1",
    ),
    *(
        "${DB_PASSWORD_2}",
        "$DB_PASSWORD2",
        "<token1>",
        "{{ secret_2 }}",
        "vault:db/pass2",
        "sops",
        "%(pass2)s",
    ),
    *("Ed25519PrivateKey", "sha256_key", "oauth2Token", "pkcs12_key", "base64Secret"),
    *("password", "mypassword", "mysecretpassword", "secret_key", "test-password"),
    *("$ecret99", "/run/x7", "myExample77", "postgres"),  # these may be passwords: the document says so
    filled("{upper36:9}") + "EXAMPLE",
]


@pytest.mark.parametrize("value", STAND_INS)
def test_what_stands_in_for_a_secret_stays(value: str) -> None:
    for written in ("DB_PASSWORD={}\n", '{{"password": "{}"}}\n', "API_TOKEN={}\n", "  token: '{}'\n"):
        text = written.format(value)
        assert redact(text) is text


CODE = """\
headers={'X-Subject-Token': token2}
login(token=token1, password=pass2)
connect(password=newpassword2)
{ password: pass1, token: token2, port: 5 }
const req = { password: password1, token: accessToken2 };
headers["X-Session-Token"] = imdsv2_session_token
const secret = secret2
    token: OAuth2Token
setSecret(secret: Uint8Array): void
password: X509Store
self.password = config2.password10, 1
credentials._private_key_pkcs12 = pkcs12_val
self.assertEqual({"X-Auth-Token": "token1"}, headers)
api1: { auth: { token: "my_key_12", apiKey: "key2" } }
(key = 'ExistingLabelKey1', value = 'ExistingLabelValue1')
aws_secret_access_key=layer1.aws_secret_access_key,
""".splitlines(keepends=True)


@pytest.mark.parametrize("text", CODE)
def test_names_in_programs_stay_although_they_are_numbered(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize("value", [*CHOSEN[:4], CHOSEN[-1], "monkey99", "Word" * 30 + "Key1"])
def test_the_same_value_goes_as_a_bare_word_where_code_may_stand(value: str) -> None:
    for written in ("connect(password={}, port=5)", "  password: {},\n", "x = 1; password = {}; y = 2"):
        assert value not in redact(written.format(value))


PRINTED = {
    "diff": "@@ -1,2 +1,2 @@\n db:\n-  password: {}\n+  password: monkey_key_78\n",
    "diff, a line": "+  password: {}\n",
    "diff -y": "password: {}          |\tpassword: monkey_key_78\n",
    "grep -n": "app.yml:12:  password: {}\n",
    "grep -A": "app.yml-12-  password: {}\n",
    "cat -n": "     2\t  password: {}\n",
    "uniq -c": "      3   password: {}\n",
    "blame": "1234abcd (Ada 2026-01-01 10:00:00 +0000 2)   password: {}\n",
    "rg": '{{"type":"match","data":{{"path":{{"text":"a.yml"}},"lines":{{"text":"  password: {}\\n"}},"line_number":1,'
    '"absolute_offset":0,"submatches":[]}}}}\n',
    "cat": "password: {} # of the database\n",
    "tac": "password = {}  \n",
    "curl": "password: {}\r\n",
}


@pytest.mark.parametrize("written", PRINTED.values(), ids=PRINTED)
def test_a_line_of_a_file_is_one_whatever_a_program_set_around_it(written: str) -> None:
    result = redact(written.format("dragon_key_77"))
    assert "_key_7" not in result
    assert redact(result) == result
