"""Ways of writing a secret beside its name, each with what looks like it and is none: source, prose, lock files, interfaces."""

import base64

import pytest

from broker.redaction import Redactor
from tests.support.random_text import filled
from tests.unit.test_redaction import armoured, body

redact = Redactor().redact
STRONG = [filled("{base62:20}"), filled("{base62:12}", 3), filled("{lower36:12}", 2)]
LETTERS = [
    filled("{base52:14}", seed).lower() for seed in (3, 5, 8)
]  # no digit: only the order of the letters tells

PAIRS = [
    '{{"name":"DB_PASSWORD","value":"{}"}}',
    '{{"value":"{}","name":"DB_PASSWORD"}}',
    '[{{"Name": "DbPassword", "Type": "SecureString", "Value": "{}"}}]',
    '{{\n  "Value": "{}",\n  "Name": "DbPassword"\n}}',
    '{{\\"name\\":\\"DB_PASSWORD\\",\\"value\\":\\"{}\\"}}',
    "        env:\n        - name: DB_PASSWORD\n          value: {}\n        - name: PORT\n          value: 80\n",
    '        - value: "{}"\n          name: DB_PASSWORD\n',
    "ParameterKey=DBPassword,ParameterValue={}\n",
    '<property name="connection.password">{}</property>',
    '<setting name="Password" serializeAs="String">\n  <value>{}</value>\n</setting>',
    "<property>\n  <name>db.password</name>\n  <value>{}</value>\n</property>",
    '<add value="{}" key="DbPassword"/>',
    "<key>apiToken</key>\n<string>{}</string>",
    "<secret><![CDATA[{}]]></secret>",
    "<password>\n  {}\n</password>",
]
NEXT_LINE = [
    "password:\n  {}\nport: 80\n",
    'password:\n  "{}"\n',
    'PASSWORD = (\n    "{}"\n)\n',
    "tool --password \\\n  {} \\\n  --verbose\n",
    'args: [\n  "--token",\n  "{}"\n]\n',
]
ESCAPED = [
    "password\\u003d{}\\u0026x\\u003d1",
    "{{\\u0022password\\u0022:\\u0022{}\\u0022}}",
    "DB_PASSWORD=$'{}'\n",
    "password: !!str {}\n",
]
CODE = [
    'client.setPassword("{}");',
    'builder.password("{}").build()',
    '#define API_SECRET "{}"',
    'if password == "{}":',
    "git config user.password {}",
    "│ password │ {} │",
    "masterauth {}\n",
    "    Password    REG_SZ    {}\r\n",
    '  ["password"]=>\n  string(12) "{}"\n',
    'password=Some("{}")',
    'variable "db_password" {{\n  type    = string\n  default = "{}"\n}}\n',
    '"Parameter": {{"Name": "/prod/db/password", "Type": "SecureString", "Value": "{}"}}',
    "requests.get(url, auth=('ada', '{}'))",
    'ConvertTo-SecureString "{}" -AsPlainText -Force\n',
    'user "ada" with password "{}"\n',
    "snmp-server community {} RO\n",
    '"secret_string": "{}",',
]
COMMANDS = [
    "sqlplus app/{}@orcl\n",
    "kubectl create secret generic db --from-literal=dsn={}\n",
    "gh secret set DSN --body {}\n",
    "lftp -u ada,{} files.example.com\n",
    "nmcli dev wifi connect home password {}\n",
    "net user ada {} /add\n",
    "wpa_passphrase home {}\n",
    "openssl enc -aes-256-cbc -k {} -in a\n",
    "machine example.com password {} login ada\n",
]


def _only_the_value_goes(written: str, value: str) -> None:
    before, after = written.format("\0").split("\0")
    result = redact(written.format(value))
    assert value not in result, result
    assert result.startswith(before + "[REDACTED:"), result
    assert result.endswith("]" + after), result
    assert redact(result) == result


@pytest.mark.parametrize("value", STRONG)
@pytest.mark.parametrize("written", PAIRS + NEXT_LINE + ESCAPED + CODE + COMMANDS)
def test_the_value_goes_wherever_its_name_stands(written: str, value: str) -> None:
    _only_the_value_goes(written, value)


@pytest.mark.parametrize("value", LETTERS)
@pytest.mark.parametrize(
    "written", ["DB_PASSWORD={}\n", "tool --token {} --json", *PAIRS[:3], 'password: "{}"']
)
def test_letters_that_make_no_word_are_a_secret_without_a_digit(written: str, value: str) -> None:
    _only_the_value_goes(written, value)


PHRASES = ["correct horse battery", "velvet umber", "four small words more", "Tr0ub4dor 3 mills"]


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize(
    "written",
    [
        'password: "{}"\n',
        "DB_PASSWORD='{}'\n",
        '{{"passphrase": "{}", "port": 1}}',
        "<password>{}</password>",
        "tool --password '{}' --all",
    ],
)
def test_a_quoted_password_may_be_several_words(written: str, phrase: str) -> None:
    _only_the_value_goes(written, phrase)


@pytest.mark.parametrize(
    "written",
    [
        "DB_PASSWORD={}\n",
        "tool --password={} --all",
        "?user=ada&password={}&x=1",
        'password = "{}"',
        "$ tool --password {}",
    ],
)
def test_a_plain_word_is_a_password_where_a_value_must_stand(written: str) -> None:
    _only_the_value_goes(written, "kestrel")


def test_a_token_in_the_place_of_a_user_is_redacted() -> None:
    for token in (filled("{base62:24}"), filled("{hex:40}")):
        for written in (
            "https://{}@github.com/acme/web.git",
            "https://{}:x-oauth-basic@github.com/acme/web.git",
        ):
            assert redact(written.format(token)) == written.format("[REDACTED:url_token]")


def test_all_data_of_a_kubernetes_secret_is_redacted() -> None:
    value = filled("{base62:22}") + "=="
    for text in (
        f"apiVersion: v1\ndata:\n  dsn: {value}\nkind: Secret\nmetadata:\n  name: web\n",
        f"kind: Secret\nmetadata:\n  name: web\ntype: Opaque\ndata:\n  dsn: {value}\n",
        f'{{"apiVersion":"v1","data":{{"dsn":"{value}"}},"kind":"Secret"}}',
    ):
        assert redact(text) == text.replace(value, "[REDACTED:kubernetes_secret]")


STAYS = [
    # source code
    "authorization = base64.decodebytes(authorization)",
    "RegOpenKeyEx = win32api.RegOpenKeyEx",
    "\tpass          *analysis.Pass",
    "\tSetsecret_cnt              uint64",
    "\tPPPIOCSPASS = 0x40107447",
    "const errors = {hexKey: hexPKCS1TestPKCS8Key}",
    'token_range = "%d,%d-%d,%d:" % (a + b)',
    "netrc = f'machine {host} login {self.username} password {self.password}'",
    'TOKEN_STRINGS = "[A-Za-z0-9._~+/-]+=*"',
    "credentials._private_key_pkcs12 = pkcs12_val",
    "P.Minipass=P.isWritable=P.isStream=void 0;",
    'const secret = await user.password("New password: ")',
    "parser.add_argument('--private-key', help=help_text, required=True)",
    'MovedAttribute("HTTPPasswordMgr", "urllib2", "urllib.request")',
    'if (token === "identifier1") return;',
    'get_password("db1.example.com")',
    "def get_token(self) -> Token:\n    return self.token\n",
    "connect(user=user, password=passwd)",
    'VERIFY_PASSWORD = "verify"',
    '"Sid": "AllowReadOfQueue1",',
    "token = 1*tchar",
    # tests and their names
    "    --- PASS: TestVet/5 (0.07s)",
    "PASS: TestRotation/sub2",
    "PASS src/components/Password2.test.tsx",
    # lock files and manifests
    '    "minipass": "^7.0.3",',
    '    "@octokit/auth-token": "^6.0.0",',
    "js-tokens@^4.0.0:",
    # prose and interfaces
    'password: "Please choose a new one."',
    '"password": "Your new password"',
    'password: "must not be empty"',
    "The password: correct horse battery",
    "use --username and --password options\nof the program",
    'problem identified by "jamesh"',
    "The login and password portion of the URL is not allowed.",
    "the token CancellationTokenSource is disposed",
    '"login.password": "Wachtwoord",',
    '"password": "contraseña"',
    '"password": "пароль"',
    '"password": "mot de passe"',
    '"password": "nueva contrasena"',
    '"password": "vergeten wachtwoord"',
    '"confirm_password": "bekräfta lösenord"',
    # resources of clouds, digests, tokens that only mark a place or a call
    "arn:aws:secretsmanager:us-west-2:123456789012:secret:MySecret1-a1b2c3",
    '"AWS::IAM::AccessKey": "62d91b17309e76c8",',
    '"LockToken": "0bc01e21-03c9-4b98-9433-6229cbf1ef1c"',
    '"ClientToken": "5236cffc-ee13-4a32-bb5b-388d9da09d96"',
    "--starting-token abCDeFGhiJKlmnOPqrSTuvwxYZ1aBCdEFghijK7LM51nOpqRST",
    "PubkeyAcceptedAlgorithms sk-ssh-ed25519-cert-v01@openssh.com,sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
    '"key": "sha512-oqVuAfXRKap7fdgcCY5uykM6R9GqQ8Kuxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"',
    "/etc/passwd:ada:x:1001:1001:Ada",
    "GPG_KEY=E3FF2839C048B25C084DEBE9B26995E310250568",
    "user.signingkey=3AA5C34371567BD2",
    '"token": "0xdAC17F958D2ee523a2206206994597C13D831ec7"',
    '#define SN_kx_ecdhe_psk         "KxECDHE-PSK"',
    '      "result_key": "Ipv6CidrAssociations"',
    "token: `cc-token-${Date.now()}`",
    "    set token  $newToken",
    "OBJ_X9_62_id_ecPublicKey  OBJ_X9_62_id_publicKeyType",
    # names and values that are no secrets
    '{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}',
    "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: web-db\n",
    '{"name":"token_type","value":"Bearer"}',
    "password:\n  description: the password to use\n",
    "tokens:\n  - first\n  - second\n",
    "generate-key:\n\tpython3\n",
    "https://ada@bitbucket.org/acme/web.git",
    "https://0123456789abcdef0123456789abcdef@o1.ingest.example.com/42",
    "kubectl create configmap web --from-literal=LOG_LEVEL=debug1",
    "kind: ConfigMap\ndata:\n  dsn: cG9zdGdyZXM6Ly9kYjEvc2hvcA==\n",
    "kpasswd\t\t464/tcp",
    "pwd pwdmodule.c",
    "<pwd.h>\n#include <grp.h>\n",
    "--key='AAAAB3NzaC1yc2EAAAADAQABAAABgQC7' # public",
]


NO_TABLES = [
    "token,count,pos\nabc123def,2,NN\n",  # words of a text
    "password, secret and key\nuser1, user2 and user3\n",
    "key,size\n9fceb02d0ae598e95dc970b74767f19372d61af8,12\n",
    "name,password_hash_rounds\nweb1,bcrypt12\n",
    "    r'getpassword|'\n    r'setpassword2|'\n",
    "| Parameter | Password | Required |\n|---|---|---|\n| user | letters and digits | yes |\n",
    "\tpassword issue\n\t* src/passwd.c: Likewise when password is checked.\n",
    "INSERT INTO settings (name, password_policy) VALUES ('web', 'strict12');\n",
    "def f(user, password):\n    return user, password1\n",
]

TABLES = [
    "user,password\nada,{}\nbob,changeme\n",
    '"name","url","username","password"\n"a","https://a.example","ada","{}"\n',
    "User name,Password,Access key ID\nada,{},none\n",
    "id\tpassword\n1\t{}\n",
    " id | password | age \n----+----------+-----\n  1 | {} | 3\n(1 row)\n",
    "| User | Password |\n|------|----------|\n| ada  | {} |\n",
    "INSERT INTO users (name, password) VALUES ('ada', '{}');\n",
    "COPY public.users (id, password, age) FROM stdin;\n1\t{}\t3\n\\.\n",
]


@pytest.mark.parametrize("value", STRONG)
@pytest.mark.parametrize("written", TABLES)
def test_values_below_the_head_of_their_column_go(written: str, value: str) -> None:
    _only_the_value_goes(written, value)


@pytest.mark.parametrize("prefix", ["", "    ", "12:"])
@pytest.mark.parametrize("shown", [slice(0, 2), slice(3, 7), slice(0, 9), slice(6, 9)])
def test_lines_of_a_key_are_redacted_without_their_armour(prefix: str, shown: slice) -> None:
    lines = [prefix + line for line in body(8)[shown]]
    result = redact("\n".join(["$ sed -n 2,3p key.pem", *lines, "$ whoami", "root"]))
    assert result == "$ sed -n 2,3p key.pem\n[REDACTED:private_key_lines]\n$ whoami\nroot"


def test_a_key_whose_lines_were_sorted_or_turned_round_is_redacted() -> None:
    key = armoured("RSA PRIVATE KEY")
    for lines in (sorted(key), key[::-1]):
        result = redact("\n".join(["$ sort key.pem", *lines, "$ whoami"]))
        assert not any(line in result for line in key[1:-1])
        assert result.endswith("\n$ whoami")


def test_lines_are_told_by_their_width_as_two_programs_write_them() -> None:
    for width in (64, 70):
        for seed in range(60):
            lines = [filled(f"{{base64:{width}}}", seed * 50 + n) for n in range(26)]
            assert redact("\n".join(lines) + "\n") == "[REDACTED:private_key_lines]\n"
        key = ["-----BEGIN OPENSSH " + "PRIVATE KEY-----", *lines, "-----END OPENSSH " + "PRIVATE KEY-----"]
        assert not any(line in redact("\n".join(sorted(key))) for line in lines)


@pytest.mark.parametrize(
    "first", ["MIIEpAIBAAKCAQEA", "MIIEvQIBADANBgkqhkiG", "MHcCAQEEI", "b3BlbnNzaC1rZXktdjEAAAAA"]
)
def test_the_first_line_of_a_key_tells_the_rest(first: str) -> None:
    lines = [first + filled("{base62:60}")[len(first) :], *body(2)]
    for text in ("\n".join(lines), '"' + "\\n".join(lines) + '"'):
        assert not any(line in redact(text) for line in lines)


PUBLIC = ["CERTIFICATE", "PUBLIC KEY", "CERTIFICATE REQUEST", "PGP SIGNATURE", "PGP PUBLIC KEY BLOCK"]


@pytest.mark.parametrize("kind", PUBLIC)
def test_public_blocks_come_back_whole_also_if_cut_off_at_either_end(kind: str) -> None:
    lines = armoured(kind, 30)
    for part in (lines, lines[:-1], lines[:5], lines[20:]):
        text = "\n".join(part) + "\n"
        assert redact(text) is text


@pytest.mark.parametrize(
    "before",
    [
        "Content-Transfer-Encoding: base64\n\n",
        "data: base64,\n",
        "$ openssl x509 -in a -outform der | base64 -w 64\n",
    ],
)
def test_other_base64_comes_back_whole(before: str) -> None:
    text = before + "\n".join(body(6)) + "\n"
    assert redact(text) is text


@pytest.mark.parametrize(
    "first", ["MIIDATCCAekCAQAwgZkx", "iVBORw0KGgoAAAANSUhEUg", "mQINBFYCQjIxYJKwYBBAH", "UEsDBBQAAAAI"]
)
def test_lines_that_begin_as_something_public_come_back_whole(first: str) -> None:
    text = "\n".join([first + filled("{base64:64}")[len(first) :], *body(6)]) + "\n"
    assert redact(text) is text


def test_a_public_block_longer_than_any_window_comes_back_whole() -> None:
    text = "\n".join(armoured("PGP MESSAGE", 6000)) + "\n"
    assert redact(text) is text


def test_lists_of_digests_and_encoded_text_are_no_key() -> None:
    digests = "\n".join(filled("{hex:64}", seed) for seed in range(6)) + "\n"
    encoded = base64.b64encode(b"The quick brown fox jumps over the lazy dog and runs away. " * 9).decode()
    text = digests + "\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64)) + "\n"
    assert redact(text) is text


def test_a_long_bundle_of_certificates_comes_back_whole_wherever_a_window_ends() -> None:
    blocks = ["\n".join(armoured("CERTIFICATE", 40, seed * 50)) for seed in range(180)]
    text = "x\n" * 7 + "\n\n".join(blocks) + "\n"
    assert redact(text) is text


@pytest.mark.parametrize("text", [*STAYS, *NO_TABLES])
def test_what_only_looks_like_one_comes_back_as_the_same_object(text: str) -> None:
    assert redact(text) is text
