"""What the name of a setting says about its value: is it a secret, and of which kind.

Always true: the answer depends on the name alone and is remembered for a bounded number of names. A name that speaks
*about* a secret (`password_file`, `token_type`, `secretName`) is no secret's name.
"""

from functools import lru_cache
from typing import NamedTuple

from broker.randomness import has_digit
from broker.redaction_catalogue import words
from broker.regex_engine import Expression

LONGEST_TERM = 96
"""Characters of the longest value with a digit that may be a name."""
_SPOKEN_OF = Expression(
    r"(?i)[A-Za-z_][A-Za-z0-9_.]*(?:key|token|secret|passw|_pass|credential|encryption|signature|auth|type|error)[A-Za-z0-9_.]*$"
)
_IDENTIFIER = Expression(r"(?i)(?:[a-z_][a-z0-9_.]*)?(?:key|token|secret|pass|pwd|cred|auth|psk)[a-z0-9_.]*$")
_TECHNICAL = Expression(
    r"(?i)(?:ed|curve|secp|rsa|des|aes|pbkdf|argon|[hrep]s|u?int|float|win|ipv?|http|tls|v)[0-9]{1,5}(?:[a-z][0-9])?$|x(?:448|25519)$"
    r"|p(?:192|224|256|384|521)$|(?:b64|b58|u8|u16|u32|u64|s3|k8s|i18n|ec2|h2)$|(?:x509|pkcs[0-9]{1,2}|sha[0-9]{1,3}|md[45]|base[0-9]{2}|oauth[12]|utf[0-9]{1,2})[a-z]*$"
)


class KeyKind(NamedTuple):
    """`name` goes into the marker; `certain` is False where the value itself must look random.

    `bare`: the name is just `key`, `session`, …, which as often names an identifier: a hash or a UUID says nothing.
    `paired`: it ends in `auth` or `credentials`, so that a user's name may stand before the secret: `ada:…`.
    """

    name: str
    certain: bool
    bare: bool = False
    paired: bool = False


_WHOLE = {
    "password": "password",
    "passwd": "password",
    "passphrase": "passphrase",
    "passcode": "password",
    "pwd": "password",
    "pass": "password",
    "pw": "password",
    "secret": "secret",
    "token": "token",
    "apikey": "api_key",
    "credential": "credential",
    "psk": "pre_shared_key",
    "masterauth": "password",
}
_ENDINGS = {
    "password": "password",
    "passwd": "password",
    "passphrase": "passphrase",
    "pass": "password",
    "passwort": "password",
    "pwd": "password",
    "secret": "secret",
    "token": "token",
    "apikey": "api_key",
    "secretkey": "secret_key",
    "accesskey": "access_key",
    "privatekey": "private_key",
    "presharedkey": "pre_shared_key",
    "accountkey": "account_key",
    "authkey": "auth_key",
    "bindpw": "password",
    "rootpw": "password",
    "userpw": "password",
}
_PROVIDERS = {
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
_FOREIGN = {
    "password": "contraseña contrasena mot_de_passe mdp kennwort senha parola parolă wachtwoord lösenord losenord"
    " passord adgangskode kodeord salasana hasło haslo heslo jelszó jelszo şifre sifre lozinka лозинка geslo slaptažodis"
    " пароль 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 κωδικός كلمة_المرور كلمة_السر رمز_عبور סיסמה पासवर्ड รหัสผ่าน mật_khẩu"
    " mat_khau kata_sandi",
    "secret": "secreto segredo segreto geheimnis geheim секрет 密钥 密鑰 秘密鍵 비밀키",
    "token": "токен 令牌 トークン 토큰",
    "key": "clave clé chave chiave schlüssel schluessel sleutel ключ",
}
"""What the settings of other languages are called; `_` for a blank, a joint or nothing."""
_SHORT_WORD = 6
_FOREIGN_KINDS = {word.replace("_", ""): kind for kind, listed in _FOREIGN.items() for word in listed.split()}
_WORDS_FOR_ONE = frozenset({"key", *_WHOLE, *_ENDINGS, *_FOREIGN_KINDS})
_NAMED_KEYS = frozenset({"api", "access", "secret", "private", "signing", "encryption"})
_PLURALS = {
    "tokens": "token",
    "secrets": "secret",
    "credentials": "credential",
    "creds": "credential",
    "keys": "key",
}
_PAIRED = frozenset({"auth", "credentials", "creds"})
_FINGERPRINTS = (["gpg", "key"], ["pgp", "key"], ["user", "signingkey"])
_SENT_ONCE = (["client", "token"], ["client", "request", "token"])
"""`clientToken`: sent so that a call is carried out once. But `client_token` opens a vault."""


@lru_cache(maxsize=4096)
def kind_of(name: str) -> KeyKind | None:
    """The kind of secret that a setting of this name holds, or None."""
    parts = split(name)
    joined = "".join(parts)
    for ending, kind in _PROVIDERS.items():
        if joined.endswith(ending):
            return KeyKind(kind, certain=True)
    if (
        not parts or name == "Sid" or not words("public").isdisjoint(parts)
    ):  # a Sid is a statement of a policy
        return None
    parts = _without_trailers(parts)
    if parts[-2:] == ["secret", "string"]:
        return KeyKind("secret", certain=True)
    about = parts[-1] in words("about_a_secret") and parts[-3:] != ["access", "key", "id"]
    if about or parts[-2:] in _FINGERPRINTS or ("_" not in name and parts in _SENT_ONCE):
        return None
    foreign = _foreign_kind(parts, joined)
    if foreign is not None:
        return foreign
    found = _last_telling_part(parts)
    if found is not None and not found.certain:
        found = found._replace(bare=len(parts) == 1, paired=parts[-1] in _PAIRED)
    return found


def _without_trailers(parts: list[str]) -> list[str]:
    while len(parts) > 1 and (parts[-1] in words("trailers") or parts[-1].isdigit()):
        parts = parts[:-1]
    return parts


@lru_cache(maxsize=1024)
def is_setting(name: str) -> bool:
    """`DB_PASSWORD`, `API_TOKEN_2`: in capitals, and its last word says that a secret is the value."""
    kind = kind_of(name) if name.isupper() else None
    return kind is not None and kind.certain and kind_of(_without_trailers(split(name))[-1]) is not None


def is_word_for_one(word: str) -> bool:
    """`password`, `Tokens`, `clave`: do people call secrets so?"""
    low = word.lower()
    return not {low, low.removesuffix("s")}.isdisjoint(_WORDS_FOR_ONE)


def _foreign_kind(parts: list[str], joined: str) -> KeyKind | None:
    """`contraseña`, `mot_de_passe`, `数据库密码`: a part, or the end of the name where the word is no part of others."""
    kind = _FOREIGN_KINDS.get(parts[-1])
    if kind is None:
        kind = next(
            (kind for word, kind in _FOREIGN_KINDS.items() if _is_distinct(word) and joined.endswith(word)),
            None,
        )
    return KeyKind(kind, certain=kind != "key") if kind is not None else None


def _is_distinct(word: str) -> bool:
    return len(word) > _SHORT_WORD or not word.isascii()


def foreign_words() -> str:
    """An expression of all words of other languages, in small letters, capitals, and with a first capital."""
    words = [word.replace("_", "[ _.-]?") for listed in _FOREIGN.values() for word in listed.split()]
    small = [word for word in words if word.isascii()]
    other = {form for word in words if not word.isascii() for form in (word, word.capitalize(), word.upper())}
    return f"(?i:{'|'.join(small)})|{'|'.join(sorted(other))}"


def _last_telling_part(parts: list[str]) -> KeyKind | None:
    """The last part that names a secret decides; far from the end it only hints."""
    for position in range(len(parts) - 1, -1, -1):
        before = parts[position - 1] if position else ""
        if parts[position] in ("token", "tokens") and before in words("token_talk"):
            return None
        kind = _kind_of_part(parts[position], before, parts[position - 2] if position > 1 else "")
        if kind is not None:
            return kind if position >= len(parts) - 2 else KeyKind(kind.name, certain=False)
    return None


def _kind_of_part(part: str, before: str, earlier: str) -> KeyKind | None:
    if part == "key":
        name = f"{before}_key" if before in _NAMED_KEYS else "key"
        return KeyKind(name, certain=before in words("certain_keys") or earlier in _NAMED_KEYS)
    if part in _WHOLE:
        return KeyKind(_WHOLE[part], certain=True)
    if part in _PLURALS:
        return KeyKind(_PLURALS[part], certain=False)
    if part in words("unsure"):
        return KeyKind("session" if "sess" in part or "sid" in part else part, certain=False)
    return None if part in words("not_endings") else _kind_of_ending(part)


def _kind_of_ending(part: str) -> KeyKind | None:
    """`dbpass`, `authtoken`, `samplekey`: words written as one."""
    for ending, kind in _ENDINGS.items():
        if part.endswith(ending):
            return KeyKind(kind, certain=True)
    return KeyKind("key", certain=False) if part.endswith("key") else None


def split(name: str) -> list[str]:
    """`dbPassword`, `DB_PASSWORD`, `db.password` → db, password."""
    parts: list[str] = []
    start = 0
    for index, character in enumerate(name):
        if character in "_-. ":
            parts.append(name[start:index])
            start = index + 1
        elif character.isupper() and index > start and _turns(name, index):
            parts.append(name[start:index])
            start = index
    parts.append(name[start:])
    return [part.lower() for part in parts if part]


def _turns(name: str, index: int) -> bool:
    """Does a new part begin at this capital: after a small letter, or before one (`APIKey`)?"""
    return not name[index - 1].isupper() or (index + 1 < len(name) and name[index + 1].islower())


def speaks_of_secrets(value: str, *, numbered: bool) -> bool:
    """Is a value itself a name that speaks of secrets, of nothing but words and names of algorithms, or also `numbered` words?

    What a person or a program has chosen holds other digits, whatever words are in it: `hunter2secret`, `xK9secretQ2`.
    """
    if not has_digit(value):
        return _is_all(_SPOKEN_OF, value)
    if len(value) > LONGEST_TERM or not _is_all(_IDENTIFIER, value):
        return False
    parts = _parts(value)
    cores = [part.rstrip("0123456789") for part in parts]
    spare = 2 if numbered else 0
    for part, core in zip(parts, cores, strict=True):
        if not (core.isalpha() and len(part) - len(core) <= spare) and not _is_all(_TECHNICAL, part):
            return False
    return any(kind_of(core) for core in cores)


def is_technical(value: str) -> bool:
    """`Uint8Array`, `X509Store`, `OAuth2Client`: one word or more in one, with what is known to have a number."""
    if len(value) > LONGEST_TERM or not value.isalnum():
        return False
    numbered = [part for part in _parts(value) if not part.isalpha()]
    return bool(numbered) and all(_is_all(_TECHNICAL, part) for part in numbered)


def _parts(value: str) -> list[str]:
    return split(value.replace("OAuth", "Oauth"))


def _is_all(expression: Expression, value: str) -> bool:
    data = value.encode(errors="replace")
    return expression.here(data, 0, len(data)) is not None
