"""The contract's promises about redaction. Docstrings quote it."""

from collections.abc import Iterator

import pytest

from tests.support.command import assert_refused, run_cli
from tests.support.made_secrets import Made, characters, every_kind, github_token, survives
from tests.support.place import POLICY, Place
from tests.support.sdk_client import SdkClient

STDOUT_BYTES = 20_000
KINDS = every_kind()
NAMED = {
    "github token": "github_token",
    "aws access key id": "aws_access_key_id",
    "jwt": "jwt",
    "private key": "private_key",
}
"""Kinds whose pattern is named after the provider's own word for it."""

OWN_PATTERNS = """
[redaction]
entropy_fallback = true
extra_patterns = [{ name = "internal_id", regex = "INT-[0-9]{8}" }]
"""

every_secret = pytest.mark.parametrize("made", KINDS, ids=[made.kind for made in KINDS])


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """A client on a server with the operator's own patterns and the entropy fallback."""
    with SdkClient(Place(tmp_path_factory.mktemp("own"), POLICY + OWN_PATTERNS)) as connected:
        yield connected


def _in_a_file(client: SdkClient, text: str) -> str:
    name = f"secret_{characters(12)}.txt"
    (client.place.jail / name).write_text(text)
    return name


@every_secret
def test_secrets_are_stripped_from_standard_output(client: SdkClient, made: Made) -> None:
    """Redacted. Secrets (API keys, tokens, private keys, JWTs, auth headers, KEY=value/--password X values) are
    stripped from tool output and from audit command_raw/argv."""
    answer = client.run("cat " + _in_a_file(client, f"before\n{made.text}\nafter\n"))
    assert not survives(made.secret, str(answer))
    assert answer.stdout.startswith("before\n")
    assert answer.stdout.endswith("\nafter\n")


@every_secret
def test_secrets_are_stripped_from_standard_error(client: SdkClient, made: Made) -> None:
    """Redacted. Secrets (API keys, tokens, private keys, JWTs, auth headers, KEY=value/--password X values) are
    stripped from tool output and from audit command_raw/argv."""
    answer = client.run("sh tell_stderr.sh " + _in_a_file(client, made.text))
    assert "[REDACTED:" in answer.stderr
    assert not survives(made.secret, str(answer))


@every_secret
def test_secrets_are_stripped_from_commands_in_the_trail_and_in_reasons(
    client: SdkClient, made: Made
) -> None:
    """Redacted. Secrets (API keys, tokens, private keys, JWTs, auth headers, KEY=value/--password X values) are
    stripped from tool output and from audit command_raw/argv."""
    for command in (f"echo '{made.text}'", f"unlisted '{made.text}'", f"cat '{made.text}'", f"'{made.text}'"):
        answer = client.run(command)
        assert not survives(made.secret, str(answer)), command.split()[0]
    assert not survives(made.secret, client.place.trail.read_text())


def test_secrets_in_words_of_their_own_are_stripped_from_the_trail(client: SdkClient) -> None:
    """Redacted. Secrets (API keys, tokens, private keys, JWTs, auth headers, KEY=value/--password X values) are
    stripped from tool output and from audit command_raw/argv."""
    secret = characters(20)
    for command in (
        f"echo --password {secret}",
        f"echo --token={secret}",
        f"echo Authorization: Bearer {secret}",
    ):
        assert not survives(secret, client.run(command).stdout), command.split()[1]
    assert not survives(secret, client.place.trail.read_text())


@pytest.mark.parametrize("before_the_cap", [0, 1, 4, 10, 20, 39, 40])
def test_no_part_of_a_secret_that_straddles_the_cap_is_left(client: SdkClient, before_the_cap: int) -> None:
    """Output is redacted before truncation, so a secret can never be split across the cap and left half-visible."""
    secret = github_token()
    filler = "x" * (STDOUT_BYTES - before_the_cap - 1)
    answer = client.run("cat " + _in_a_file(client, f"{filler} {secret} {'y' * 100}"))
    assert answer.code == "OUTPUT_TRUNCATED"
    assert not survives(secret[4:], answer.stdout, characters_at_once=4)


def test_a_secret_that_comes_in_pieces_is_stripped(client: SdkClient) -> None:
    """Output is redacted before truncation, so a secret can never be split across the cap and left half-visible."""
    secret = github_token()
    script = _in_a_file(client, f"printf %s {secret[:15]}\nsleep 0.05\nprintf '%s\\n' {secret[15:]}\n")
    answer = client.run(f"sh {script}")
    assert not survives(secret[4:], answer.stdout, characters_at_once=6)
    assert "[REDACTED:github_token]" in answer.stdout


def test_redaction_can_be_switched_off_for_output_and_trail(place: Place) -> None:
    """[redaction] in policy.toml scrubs secrets from tool output and audit records:"""
    secret = github_token()
    place.policy.write_text(POLICY + "[redaction]\nenabled = false\n")
    assert run_cli(place, "run", f"echo {secret}").stdout == f"{secret}\n"
    assert secret in place.trail.read_text()


def test_redaction_is_on_by_default(client: SdkClient) -> None:
    """[redaction] in policy.toml scrubs secrets from tool output and audit records:"""
    assert client.run(f"echo {github_token()}").stdout == "[REDACTED:github_token]\n"


@every_secret
def test_the_built_in_patterns_cover_every_kind(client: SdkClient, made: Made) -> None:
    """Built-in patterns cover OpenAI/GitHub/Slack/LangSmith keys, AWS access and secret keys, private-key blocks, JWTs,
    Authorization: headers, KEY=value assignments, and --password/--token/-p flag values."""
    answer = client.run("cat " + _in_a_file(client, made.text))
    assert f"[REDACTED:{NAMED.get(made.kind, '')}" in answer.stdout


def test_ordinary_text_is_left_alone(client: SdkClient) -> None:
    """Built-in patterns cover OpenAI/GitHub/Slack/LangSmith keys, AWS access and secret keys, private-key blocks, JWTs,
    Authorization: headers, KEY=value assignments, and --password/--token/-p flag values."""
    text = "def token(password: str) -> None:\n    return sign(password)  # see docs/authorization.md\nmkdir -p build\n"
    assert client.run("cat " + _in_a_file(client, text)).stdout == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DB_PASSWORD=", ""),
        ("export API_KEY=", ""),
        ("mysqldump --password ", " shop"),
        ("deploy --token ", " now"),
    ],
)
def test_only_the_value_of_a_keyed_secret_is_replaced(client: SdkClient, before: str, after: str) -> None:
    """Each secret becomes [REDACTED:<pattern_name>]; for keyed secrets only the value is replaced, so an operator still
    sees that a secret appeared and which kind."""
    line = client.run("cat " + _in_a_file(client, f"{before}{characters(24)}{after}\n")).stdout
    assert line.startswith(before + "[REDACTED:")
    assert line.endswith("]" + after + "\n")


def test_the_operators_own_patterns_are_applied(own: SdkClient) -> None:
    """Operator extra_patterns are validated at startup — an invalid regex fails loudly rather than being silently
    skipped."""
    assert own.run("echo see INT-12345678 for more").stdout == "see [REDACTED:internal_id] for more\n"
    own.run("echo INT-87654321")
    assert "INT-87654321" not in own.place.trail.read_text()


@pytest.mark.parametrize(
    "pattern",
    ['name = "x", regex = "("', 'name = "x", regex = "["', 'name = "x y", regex = "a"', 'name = "x"'],
)
def test_an_invalid_pattern_of_the_operator_stops_the_start(place: Place, pattern: str) -> None:
    """Operator extra_patterns are validated at startup — an invalid regex fails loudly rather than being silently
    skipped."""
    place.policy.write_text(POLICY + f"[redaction]\nextra_patterns = [{{ {pattern} }}]\n")
    ended = run_cli(place)
    assert_refused(ended, "extra_patterns")


def test_unrecognised_tokens_of_high_entropy_are_left_by_default(client: SdkClient) -> None:
    """entropy_fallback (off by default) additionally redacts unrecognised high-entropy tokens."""
    token = characters(44)
    assert client.run(f"echo {token}").stdout == f"{token}\n"


def test_unrecognised_tokens_of_high_entropy_are_redacted_when_asked_for(own: SdkClient) -> None:
    """entropy_fallback (off by default) additionally redacts unrecognised high-entropy tokens."""
    token = characters(44)
    answer = own.run(f"echo {token}")
    assert answer.stdout.startswith("[REDACTED:")
    assert not survives(token, own.place.trail.read_text())


@pytest.mark.parametrize(
    "token",
    [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "7d444840-9dc0-11d1-b245-5ffdce74fad2",
        "QmFzZTY0IG9mIGEgaGFybWxlc3Mgc2VudGVuY2UgdGhhdCBuYW1lcyBub2JvZHk",
    ],
    ids=["hash", "uuid", "base64"],
)
def test_the_fallback_is_noisy(client: SdkClient, own: SdkClient, token: str) -> None:
    """It is noisy: it trips on hashes, UUIDs, and base64 data, so enable it only when false positives are
    acceptable."""
    assert client.run(f"echo {token}").stdout == f"{token}\n"
    assert "[REDACTED:" in own.run(f"echo {token}").stdout
