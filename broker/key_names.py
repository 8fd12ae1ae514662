"""What the name of a setting says about its value: is it a secret, and of which kind.

Always true: the answer depends on the name alone and is remembered for a bounded number of names. A name that speaks
*about* a secret (`password_file`, `token_type`, `secretName`) is no secret's name.
"""

from functools import lru_cache
from typing import NamedTuple


class KeyKind(NamedTuple):
    """`name` goes into the marker; `certain` is False where the value itself must look random."""

    name: str
    certain: bool


_ABOUT = frozenset(
    """algo algorithm alg age arn attempts attribute attributes auto backend bits bucket budget bytes cache callback
    cert certificate cipher class code column command comment config configmap context cost count counter created
    date dates days default delimiter desc description digest dir directory docs driver duration enabled encoding
    endpoint engine env error errors event exists expiration expired expires expiry extension factory field fields
    file filename files filter fingerprint folder format fn func function group guard handler hash hashed hasher header helper
    hint history host hours icon id ident identifier ids index info input interval issuer iterations kid kind label
    latency leeway len length level lib library lifetime limit limits link list loader location lock log
    manager map max message messages method middleware min minutes mode model module msg mount name names namespace
    needed number num object offset option options order output page param parameter params parser path paths pattern
    per period permission placeholder plugin policy port position prefix present prompt property protocol provider
    ratio read ref reference reg regex region registry required requirements reset resolver resource result retries
    role rotated rotation rounds route rule rules salt schema scheme scope score script seconds selector
    separator server service serializer set settings size sort source spec speed state status step storage store
    strategy strength string style subject suffix support supported table tag template test text time timeout title
    total transport ttl type types unit updated uri url urls usage used user username valid validation validator
    variable variables vault vendor verified version visible warning width window words""".split()
)
_PUBLIC = frozenset(
    "public publishable pub foreign primary partition sort unique composite dedup idempotency".split()
)
_TOKEN_TALK = frozenset(
    """next page continuation pagination start end max min num eos bos pad unk sep cls mask input output prompt
    completion total stop special first last prev previous current cursor sync csrf xsrf csrfmiddleware authenticity
    antiforgery verification resume new this other word sub punctuation type""".split()
)
_WHOLE = {
    "password": "password",
    "passwd": "password",
    "passphrase": "passphrase",
    "passcode": "password",
    "passwort": "password",
    "pwd": "password",
    "pass": "password",
    "pw": "password",
    "secret": "secret",
    "secrets": "secret",
    "token": "token",
    "tokens": "token",
    "apikey": "api_key",
    "credential": "credential",
    "credentials": "credential",
    "creds": "credential",
    "psk": "pre_shared_key",
    "mnemonic": "mnemonic",
    "authkey": "auth_key",
    "connectionstring": "connection_string",
}
_ENDINGS = (
    ("password", "password"),
    ("passwd", "password"),
    ("passphrase", "passphrase"),
    ("pass", "password"),
    ("passwort", "password"),
    ("pwd", "password"),
    ("secret", "secret"),
    ("token", "token"),
    ("apikey", "api_key"),
    ("secretkey", "secret_key"),
    ("accesskey", "access_key"),
    ("privatekey", "private_key"),
    ("authkey", "auth_key"),
    ("bindpw", "password"),
    ("rootpw", "password"),
    ("userpw", "password"),
)
_NOT_ENDINGS = frozenset(
    "bypass compass overpass trespass surpass underpass multipass onepass firstpass lastpass render nonsecret".split()
)
_KEY_QUALIFIERS = frozenset(
    """api access secret private signing encryption encrypt decryption master storage account license auth app
    application service deploy admin shared client session server root jwt hmac cipher aes crypto crypt webhook
    subscription function host user global sdk integration rest live prod production test sandbox personal license
    licence ingest write send sending sendgrid openai anthropic azure google gcp aws stripe twilio mailgun
    mailchimp datadog dd cf cloudflare pagerduty ts tailscale sa internal partner merchant consumer developer dev
    vapid stream bot recovery backup activation instrumentation maps gemini""".split()
)
_PROVIDER = {
    "awssecretaccesskey": "aws_secret_access_key",
    "secretaccesskey": "aws_secret_access_key",
    "awssecretkey": "aws_secret_access_key",
    "awssecret": "aws_secret_access_key",
    "awsaccesskeyid": "aws_access_key_id",
    "awssessiontoken": "aws_session_token",
    "awssecuritytoken": "aws_session_token",
    "openaiapikey": "openai_api_key",
    "openaikey": "openai_api_key",
    "githubtoken": "github_token",
    "ghtoken": "github_token",
    "gitlabtoken": "gitlab_token",
    "slacktoken": "slack_token",
    "slackbottoken": "slack_token",
    "langsmithapikey": "langsmith_api_key",
    "langchainapikey": "langsmith_api_key",
    "npmtoken": "npm_token",
}
_UNSURE = frozenset(
    "key auth sig signature session sid sessionid jsessionid phpsessid cookie salt pin otp nonce assertion sas".split()
)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> KeyKind | None:
    """The kind of secret that a setting of this name holds, or None."""
    words = _words(name)
    if not words:
        return None
    joined = "".join(words)
    if joined in _PROVIDER:
        return KeyKind(_PROVIDER[joined], certain=True)
    if not _PUBLIC.isdisjoint(words):
        return None
    while len(words) > 1 and (words[-1] in _TRAILERS or words[-1].isdigit()):
        words = words[:-1]
    if words[-1] in _ABOUT and not (len(words) > 2 and words[-1] == "id" and words[-2] == "key"):
        return None
    return _by_words(words)


_TRAILERS = frozenset(
    "prod production dev development staging stage test base hex b64 base64 old new current value raw plain plaintext text data primary secondary v1 v2 live".split()
)


def _by_words(words: list[str]) -> KeyKind | None:
    """Looks at the words from the end: the last one that names a secret decides."""
    for position in range(len(words) - 1, -1, -1):
        word = words[position]
        before = words[position - 1] if position else ""
        if word == "key" or word == "keys":
            found = _key(words, position, before)
        elif word in ("token", "tokens") and (before in _TOKEN_TALK or word == "tokens"):
            return None
        elif word in _WHOLE:
            found = KeyKind(_WHOLE[word], certain=True)
        elif word in _UNSURE:
            found = KeyKind(
                "session" if word.startswith(("sess", "sid", "jsess", "phpsess")) else word, certain=False
            )
        else:
            found = _ending(word)
        if found is not None:
            return found if position >= len(words) - 2 else KeyKind(found.name, certain=False)
    return None


def _key(words: list[str], position: int, before: str) -> KeyKind | None:
    if before in _KEY_QUALIFIERS or (position > 1 and words[position - 2] in ("api", "secret", "private")):
        return KeyKind(
            f"{before}_key"
            if before in ("api", "access", "secret", "private", "signing", "encryption")
            else "key",
            certain=before in _CERTAIN_KEYS,
        )
    return KeyKind("key", certain=False)


_CERTAIN_KEYS = frozenset(
    """api secret private signing encryption master storage account auth admin shared jwt hmac access deploy service
    session webhook license""".split()
)


def _ending(word: str) -> KeyKind | None:
    if word in _NOT_ENDINGS:
        return None
    for ending, kind in _ENDINGS:
        if word.endswith(ending):
            return KeyKind(kind, certain=True)
    return None


def _words(name: str) -> list[str]:
    """`dbPassword`, `DB_PASSWORD`, `db.password` → db, password. Digits stay with the letters before them."""
    words: list[str] = []
    start = 0
    for index, character in enumerate(name):
        if character in "_-. []":
            words.append(name[start:index])
            start = index + 1
        elif character.isupper() and index > start and _turns(name, index):
            words.append(name[start:index])
            start = index
    words.append(name[start:])
    return [word.lower() for word in words if word]


def _turns(name: str, index: int) -> bool:
    """Does a new word begin at this capital: after a small letter, or before one (`APIKey`)?"""
    return not name[index - 1].isupper() or (index + 1 < len(name) and name[index + 1].islower())
