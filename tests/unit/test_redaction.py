"""What is redacted: every shipped pattern by its own examples, and every way of writing a secret that the product names."""

import json

import pytest

from broker.redaction import Redactor
from broker.redaction_catalogue import Pattern, catalogue
from tests.support.random_text import filled

PATTERNS = catalogue().patterns
EXAMPLES = [(pattern, example) for pattern in PATTERNS for example in pattern.examples]
VALUE = filled("{base62:20}")
redact = Redactor().redact


def _id(pair: tuple[Pattern, str]) -> str:
    return f"{pair[0].name}-{pair[1][:20]}"


def test_every_pattern_has_an_example_and_a_plain_name() -> None:
    for pattern in PATTERNS:
        assert pattern.examples, pattern
        assert pattern.name.replace("_", "").isalnum(), pattern


@pytest.mark.parametrize(("pattern", "example"), EXAMPLES, ids=map(_id, EXAMPLES))
def test_each_example_of_a_pattern_is_found_under_its_name(pattern: Pattern, example: str) -> None:
    for seed in range(5):
        text = f"{filled(example, seed)}\nand so on\n"
        result = redact(text)
        assert "[REDACTED:" in result, text
        assert result.endswith("and so on\n")
        names = {part.split("]")[0] for part in result.split("[REDACTED:")[1:]}
        assert pattern.name in names or names <= {other.name for other in PATTERNS}, (pattern.name, names)


SENTENCES = [
    ("an OpenAI key", "sk-proj-{base62:48}", "openai_api_key"),
    ("a GitHub token", "ghp_{base62:36}", "github_token"),
    ("a Slack token", "xoxb-{digits:12}-{digits:13}-{base62:24}", "slack_token"),
    ("a LangSmith key", "lsv2_pt_{hex:32}_{hex:10}", "langsmith_api_key"),
    ("an AWS access key", "AKIA{upper36:16}", "aws_access_key_id"),
    ("a JWT", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{base62:40}.{base62:43}", "jwt"),
]


@pytest.mark.parametrize(("what", "example", "name"), SENTENCES)
def test_what_the_contract_names_is_redacted_wherever_it_stands(what: str, example: str, name: str) -> None:
    secret = filled(example)
    marker = f"[REDACTED:{name}]"
    assert redact(secret) == marker
    for text in (
        f"see {secret}, ok",
        f"({secret})",
        f'"{secret}"',
        f"a={secret}\r\nb",
        f"x%3D{secret}%26y",
        f"a\\n{secret}\\nb",
    ):
        assert redact(text) == text.replace(secret, marker), text


WRITTEN = [
    "DB_PASSWORD={}",
    "export API_KEY='{}'",
    'token: "{}"',
    '{{"user": "ada", "clientSecret": "{}"}}',
    "{{'auth_token': '{}'}}",
    "app.smtp.password={}",
    "secret = `{}`",
    'let api_key: &str = "{}";',
    "<dbPassword>{}</dbPassword>",
    '<add key="AuthToken" value="{}" />',
    "tool --password {} --compress",
    "tool --password={}",
    'args: ["--token", "{}", "--json"]',
    "https://api.example.com/v1?api_key={}&page=2",
    "client_secret%3D{}%26grant_type%3Dx",
    'body="{{\\"password\\":\\"{}\\"}}"',
    "password&quot;:&quot;{}&quot;,",
    "set -gx GH_TOKEN {}",
    "- name: DB_PASSWORD\n  value: {}",
    "| DB_PASSWORD | {} | yes |",
    "define('AUTH_TOKEN', '{}');",
    "Set `API_KEY` to `{}` and restart",
    "bindpw {}",
    "signing_secret: |\n  {}\nport: 80",
    "mysql -u root -p{} shop",
    "curl -u ada:{} https://example.com/",
    "postgres://app:{}@db1/shop",
    "machine example.com login ada password {}",
    "db1.internal:5432:shop:app:{}",
    "\x1b[36mAPI_KEY\x1b[0m=\x1b[33m{}\x1b[0m",
    "sshpass -p {} ssh root@10.0.0.5",
    "echo {} | sudo -S id",
    "CREATE USER app IDENTIFIED BY '{}';",
]


GENERATED = [
    "Authorization: Bearer {}",
    "> authorization: ApiKey {}\r\n> accept: */*",
    "curl -H 'Authorization: Token {}' https://example.com/",
    "{{'Authorization': 'Bearer {}', 'Accept': '*/*'}}",
    "Proxy-Authorization: Basic YWRhOmNvcnJlY3Q{}=",
    "Cookie: theme=dark; session={}; lang=en",
    "Set-Cookie: __Host-sid={}; Path=/; HttpOnly",
    "A temporary password is generated for root@localhost: {}",
]
WORDS = ("orchid-granite-velvet-umber", "Kestrel7!meadow", "amberNimbus527")


@pytest.mark.parametrize(
    ("written", "value"), [(w, v) for w in WRITTEN for v in (VALUE, *WORDS)] + [(w, VALUE) for w in GENERATED]
)
def test_the_value_goes_and_everything_around_it_stays(written: str, value: str) -> None:
    text = written.format(value)
    before, after = written.format("\0").split("\0")
    result = redact(text)
    assert value not in result
    assert result.startswith(before.removesuffix("YWRhOmNvcnJlY3Q"))
    assert result.endswith(after.removeprefix("="))


def test_keyed_secrets_say_which_kind_they_were() -> None:
    assert redact(f"DB_PASSWORD={VALUE}") == "DB_PASSWORD=[REDACTED:password]"
    assert (
        redact(f"aws_secret_access_key = {VALUE}{VALUE}")
        == "aws_secret_access_key = [REDACTED:aws_secret_access_key]"
    )
    assert redact(f"MY_API_KEY={VALUE}") == "MY_API_KEY=[REDACTED:api_key]"


def test_a_key_in_base64_that_begins_like_a_path_is_no_path() -> None:
    for seed in range(300):
        value = "/" + filled("{base62:21}+{base62:17}", seed)
        assert (
            redact(f"aws_secret_access_key = {value}\n")
            == "aws_secret_access_key = [REDACTED:aws_secret_access_key]\n"
        )


STAYS = [
    "private_key: /etc/ssl/private/server.key",
    "PASSWORD=/Library/Frameworks/Python3Framework/Versions",
    "TOKEN=/var/run/secrets/kubernetes.io/serviceaccount/token",
    'API_KEY=""',
    "password: null",
    "export OPENAI_API_KEY=<your-key-here>",
    "GITHUB_TOKEN=ghp_" + "x" * 36,
    "token=${TOKEN}",
    "password: $DB_PASSWORD",
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "self.token = token",
    "def login(user: str, password: str) -> Token:",
    "token: Optional[str] = None",
    "private_key: ed25519.Ed25519PrivateKey,",
    '  "token_type": "Bearer",',
    "POSTGRES_PASSWORD_FILE=/run/secrets/pg",
    "secretName: web-tls",
    "  -p, --password <password>    Password to use",
    "docker run -p 8080:80 nginx",
    "ssh://git@git.example.com:22/acme/web.git",
    "WWW-Authenticate: Bearer realm=api",
    "Authorization: Bearer <token>",
    "Enter passphrase for key '/home/ada/.ssh/id_ed25519':",
    "9fceb02d0ae598e95dc970b74767f19372d61af8 fix token parser",
    "uuid=550e8400-e29b-41d4-a716-446655440000",
    'etag="33a64df551425fcc55e4d42a148795d9f25f89d4"',
    "sha512-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC==",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGw8x0mJ1mJbqkzqzq3f0m1x9r3m5c2Q8vY7b4T6pN1d ada@laptop",
    'error: expected "-----BEGIN CERTIFICATE-----", got "-----BEGIN PRIVATE KEY-----"',
    "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ0a8i0Hn5m7nIhTm\n-----END CERTIFICATE-----",
    'max_tokens: 256, eos_token="</s>"',
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf",
    "Token: '#abb2bf',",
    "Authorization: Bearer [REDACTED:bearer_token]",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_only_looks_like_a_secret_comes_back_as_the_same_object(text: str) -> None:
    assert redact(text) is text


def body(lines: int, seed: int = 0) -> list[str]:
    """Lines as in a key or a certificate, the last one shorter."""
    return [filled("{base64:64}", seed + n) for n in range(lines)] + [filled("{base64:30}", seed) + "=="]


def armoured(kind: str, lines: int = 8, seed: int = 0) -> list[str]:
    """The same with first and last line."""
    return ["-----BEGIN " + kind + "-----", *body(lines, seed), "-----END " + kind + "-----"]


KINDS = [f"{whose}PRIVATE KEY" for whose in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")]
KINDS.append("PGP PRIVATE KEY BLOCK")


@pytest.mark.parametrize("kind", KINDS)
def test_a_private_key_of_any_armour_is_one_marker(kind: str) -> None:
    lines = armoured(kind)
    marker = "[REDACTED:private_key]"
    assert redact("\n".join(["a", *lines, "b"])) == f"a\n{marker}\nb"
    assert redact("\r\n".join(["a", *lines, "b"])) == f"a\r\n{marker}\r\nb"
    assert redact('{"key": "' + "\\n".join(lines) + '", "port": 1}') == f'{{"key": "{marker}", "port": 1}}'
    assert redact("\n".join("    " + line for line in lines)).strip() == marker


def test_a_private_key_cut_off_at_either_end_is_redacted_as_far_as_it_is_there() -> None:
    lines = armoured("RSA PRIVATE KEY")
    for part in (lines[:-1], lines[:4], lines[2:], lines[5:]):
        result = redact("\n".join(["$ cat key", *part, "$ whoami", "root"]))
        assert result == "$ cat key\n[REDACTED:private_key]\n$ whoami\nroot", result


@pytest.mark.parametrize("prefix", ["  12\t", "+", "2026-03-01T10:00:00Z web-1 | ", "> "])
def test_a_private_key_with_something_before_each_line_is_redacted(prefix: str) -> None:
    lines = armoured("EC PRIVATE KEY", 3)
    result = redact("\n".join(prefix + line for line in lines) + "\nend\n")
    assert not any(line in result for line in lines)
    assert result.endswith("\nend\n")


def test_a_token_that_was_wrapped_at_the_terminals_width_is_redacted_to_its_end() -> None:
    secret = filled("ghp_{base62:76}")
    text = f"Token: {secret[:50]}\n{secret[50:]}\nnext line\n"
    assert redact(text) == "Token: [REDACTED:github_token]\nnext line\n"


def test_a_token_that_colours_run_through_is_redacted() -> None:
    secret = filled("ghp_{base62:36}")
    result = redact(f"\x1b[01;31mghp_\x1b[m\x1b[K{secret[4:]} end")
    assert secret[4:] not in result
    assert result.endswith(" end")


HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2064\u2066"
    "\u206f\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\ufff8\U0001bca0\U0001d173\U000e0001\U000e0041\U000e007f\U000e0100\U000e01ef"
)


@pytest.mark.parametrize("hidden", [*HIDDEN, "[0m", "[1;31m", "\x1b\x1b[0m[0m"], ids=ascii)
def test_a_token_is_redacted_whatever_shows_nothing_in_it(hidden: str) -> None:
    secret, value = filled("ghp_{base62:36}"), filled("{base62:12}x7Q")
    for text, left in (
        (f"token {hidden.join(secret)} end", "token [REDACTED:github_token] end"),
        (f"{hidden}DB_PASS{hidden}WORD={value[:5]}{hidden * 3}{value[5:]}\n", None),
        (
            f"see {secret[:1]}{hidden}{secret[1:]}{hidden} and more",
            f"see [REDACTED:github_token]{hidden} and more",
        ),
    ):
        result = redact(text)
        assert value[:5] not in result
        assert value[5:] not in result
        assert left is None or result == left


@pytest.mark.parametrize(
    "text", ["a{}b", "{}", "DB_HOST={}db.internal{}\n", "word{} word\n{}\n", "{}# title\n"]
)
@pytest.mark.parametrize("hidden", [*HIDDEN, "[0m"], ids=ascii)
def test_what_shows_nothing_stays_in_text_without_a_secret(hidden: str, text: str) -> None:
    assert redact(text.replace("{}", hidden)) == text.replace("{}", hidden)


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3",
        "می\u200cخواهم کتاب\u200cها",  # noqa: RUF001 - Persian
        "Donau\u00addampf\u00adschiff",
        "葛\U000e0100",
        "token = x[m]",
    ],
)
def test_scripts_and_pictures_that_need_what_shows_nothing_come_back_whole(text: str) -> None:
    assert redact(text) == text


def test_redacting_twice_changes_nothing() -> None:
    for text in [filled(example) for _pattern, example in EXAMPLES] + [w.format(VALUE) for w in WRITTEN]:
        once = redact(text)
        assert redact(once) == once


def test_the_data_file_is_one_pattern_a_line_and_says_what_its_fields_mean() -> None:
    fields = set(Pattern.__struct_fields__)
    assert all(field in catalogue().about for field in fields - {"anycase"})
    assert json.dumps(catalogue().about)
