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


@pytest.mark.parametrize(
    "value",
    [
        "wJ7bXq2kabcdefghvR8sT1yU6cH3dF5gA0eQiOoK",
        "abcdEFGH1234ijklMNOP5678",
        "k2abcdefgh9XvQ01234567zzR",
        "abcdefgh9!",
        "prod-zQ01234567",
        "q9Kf7ZaaaaaaV2mXw83LtRbY5",  # six of a kind, as zeros in base64 give
        "vQ8Zk3xxxxxxTn5Lw2Rb7Ys9Pd",
    ],
)
def test_a_run_within_a_value_makes_no_stand_in_of_it(value: str) -> None:
    for written in (
        "API_SECRET={}\n",
        "DB_PASSWORD='{}'\n",
        '{{"auth_token": "{}"}}\n',
        "AWS_SECRET_ACCESS_KEY={}\n",
    ):
        result = redact(written.format(value))
        assert value not in result
        assert redact(result) == result


@pytest.mark.parametrize(
    "value",
    [
        "abcdefgh12345678",
        "sk-abcdefgh01234567",
        "0123456789abcdef" * 2,
        "01234567-89ab-cdef-0123-456789abcdef",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=",
        "xxxxxxxx-7f3a",
        "AB**********YZ",
    ],
)
def test_what_is_a_run_as_a_whole_stays(value: str) -> None:
    for written in ("ENCRYPTION_KEY={}\n", "API_TOKEN='{}'\n", '{{"password": "{}"}}\n'):
        assert redact(written.format(value)) == written.format(value)


SAID = [
    "my dog Rex 9",
    "my pass 1",
    "it is 4711",
    "blue 42 horse",
    "the blue horse",
    "What is it?",
    "salt water monkey",
]
SETTINGS = {
    "env": "PORT=80\nDB_PASSWORD='{}'\nHOST=db1\n",
    "a secret": 'API_SECRET="{}"\n',
    "a token": "API_TOKEN_2='{}' # of the shop\n",
    "shell": 'export DB_PASSWORD="{}"; run\n',
    "docker": "docker run -e DB_PASSWORD='{}' nginx\n",
    "image": 'ENV DB_PASSWORD="{}"\n',
    "grep": ".env:3:DB_PASSWORD='{}'\n",
    "diff": '@@ -1 +1 @@\n-DB_PASSWORD="{}"\n+DB_PASSWORD="${{NEW}}"\n',
    "rg": '{{"lines":{{"text":"DB_PASSWORD=\\"{}\\"\\n"}}}}\n',
}


@pytest.mark.parametrize("value", SAID)
@pytest.mark.parametrize("written", SETTINGS.values(), ids=SETTINGS)
def test_words_in_quotes_go_where_a_setting_in_capitals_says_that_they_are_a_value(
    written: str, value: str
) -> None:
    before, after = written.format("\0").split("\0")
    result = redact(written.format(value))
    assert result.startswith(before + "[REDACTED:"), result
    assert result.endswith("]" + after), result
    assert redact(result) == result


@pytest.mark.parametrize(
    "text",
    [
        'WRONG_PASSWORD="This is no valid password"\n',  # labels
        "ASK_PASSWORD='neues Passwort eingeben'\n",
        'INVALID_TOKEN="unknown tokens, sorry"\n',
        'DB_PASSWORD="$(pass show db 9)"\n',  # what a shell puts in
        "DB_PASSWORD='`pass show db 9`'\n",
        'DB_PASSWORD="${PREFIX} 9"\n',
        'DB_PASSWORD="not -x $PREFIX 9"\n',
        'DB_PASSWORD="the db --password 9"\n',
        'DB_PASSWORD="<your password 9>"\n',
        'PASSWORD_CMD="pass show db 9"\n',  # about a secret
        'TOKEN_NAME="it is 9"\n',
        'SSH_PUBLIC_KEY="for all of 9"\n',
        'raise Wrong(PASSWORD="it is 9", port=1)\n',  # code
        'PASSWORD = "it is 9"\n',
        '{"password": "Enter your password"}\n',  # in lower case: the document says so
        '{"password": "my pass 1"}\n',
        'password="my pass 1"\n',
    ],
)
def test_words_in_quotes_stay_where_they_are_a_label_or_code(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize(
    "name", ["BASIC_AUTH", "HTTP_AUTH", "CREDENTIALS", "DB_CREDENTIALS", "GIT_CREDS", "HTTP_AUTH_PROD"]
)
@pytest.mark.parametrize(
    "value", ["admin:S3cureX99", "bob:Xk29dkQ1", "user:password1", "ada@example.com:x9Y8z7w6"]
)
def test_a_user_and_a_secret_go_behind_a_name_for_both(name: str, value: str) -> None:
    for written in ("{}={}\n", "export {}='{}'\n", "{}: {}\n", '{{"{}": "{}"}}\n'):
        result = redact(written.format(name, value))
        assert value.partition(":")[2] not in result, result
        assert redact(result) == result


@pytest.mark.parametrize(
    "text",
    [
        "AUTH=host1:8080\n",
        "AUTH=sha256:abc123def4\n",
        "AUTH=http://host1/x9ab\n",
        "AUTH=module::function2\n",
        "AUTH_IMAGE=nginx:abc1def2\n",
        "BASIC_AUTH=admin:${PASSWORD_2}\n",
        "BASIC_AUTH=vault:shop/db2\n",
        "BASIC_AUTH=user:pass\n",
        "BASIC_AUTH=admin:sunshine\n",  # a word: the document says so
        "BASIC_AUTH=admin:changeme123\n",
    ],
)
def test_what_only_looks_like_a_user_and_a_secret_stays(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize(
    "text",
    [
        "ADMIN_PASSWORD=admin\nROOT_PASSWORD=toor\nDB_PASSWORD=ab12\nDB_PASSWORD=4711\n",
        "APP_SALT=9f8a7b6c5d4e\n",
        "AMQP_URL=amqp://guest:guest@rabbit:5672/\n",
        "DB_PASSWORD='my example dog 9'\n",
        'DB_PASSWORD: "my dog Rex 9"\n',
        "api_secret = 'blue 42 horse'\n",
    ],
)
def test_what_the_document_says_passes(text: str) -> None:
    assert redact(text) is text
