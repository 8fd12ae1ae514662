"""Secrets that are told by the name they are given: `DB_PASSWORD=…`, `"apiKey": "…"`, `--token …`, `<secret>…</secret>`.

Always true: only the value is found, never the name. The name decides by its words (`key_names`), the value is then
judged (`placeholders`). One automaton finds the heads (name, sign, opening quote); what a head means is remembered, so
that text full of the same heads costs little. Each candidate costs time bounded by `VALUE_BYTES`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker import key_names, placeholders, randomness
from broker.regex_engine import Expression
from broker.tables import TYPED, in_columns

Found = tuple[int, int, str]
_Place = tuple[bool, bool, bool, bool]
"""Is the value in quotes, do name and value stand tight, may a variable's name stand there, is it all of a setting's?"""
Judged = dict[tuple[bytes, _Place, key_names.KeyKind], bool]
VALUE_BYTES = 4096
HEAD_BYTES = 256
BLANKS = 64
REMEMBERED_HEADS = 4096
KEYWORD = "pass|pwd|secret|token|key|cred|auth|psk|session|_pw|bindpw|rootpw|sid"
_NAME = rf"[A-Za-z0-9_.\-]*(?i:{KEYWORD})[A-Za-z0-9_.\-]*"
_OPEN = r"""(?:(?:(?:\\*\"){3}|(?:\\*'){3})(?:\\?\r?\n[ \t]*)?|\\*["'`]|\\+u002[27]|&quot;|&#34;|&#39;|%22|%27)?"""
_CLOSE = r"""(?:\\*["'`]|\\+u002[27]|&quot;|&#34;|%22|\]|\)){0,4}"""
_TYPE = r"(?:[ \t]*:[ \t]*&?(?:'static[ \t]+)?[A-Za-z][A-Za-z0-9_.<>\[\]|&? ]*)?"
_EQUALS = r"(?:=>|:=|[?+:]?=|%3[Dd]|%253[Dd]|&#61;|\\+u003[Dd]|\\+x3[Dd])"
_SIGN = rf"(?:{_TYPE}[ \t]*{_EQUALS}|[ \t]*(?::|%3[Aa])|[ \t]*=>)[ \t]*(?:!![a-z]+[ \t]+)?"
_LITERAL = r"(?:(?:[bfruBFRU$@]|rb|br|fr|rf|Some\(|SecretStr\()(?:[\"']))?"
_ASSIGNED = rf"(NAME){_CLOSE}{_SIGN}{_LITERAL}(OPEN)"
_FOREIGN = rf"(FOREIGN){_CLOSE}(?:{_SIGN}|[ \t]*\xef\xbc\x9a[ \t]*)(OPEN)"  # the colon of full width, too
_MARKS = r"\\*[\"']?"
_FIELD = rf"{_MARKS}[A-Za-z_]+{_MARKS}[ \t]*[:=][ \t]*{_MARKS}[A-Za-z0-9_]*{_MARKS},?[ \t\r\n]*"
_VALUE_IS = rf"{_MARKS}(?i:(?:parameter)?value){_MARKS}[ \t]*[:=][ \t]*"
_NAME_IS = rf"(?i:name|key|field|variable){_MARKS}[ \t]*[:=][ \t]*{_MARKS}/?(?:[A-Za-z0-9_.\-]+/)*"
_TEXT = r"[ \t\r\n]*(?:<!\[CDATA\[)?(MARK)"
_BLOCK = r"(NAME)[\"']?:[ \t]*[|>][\-+0-9]*[ \t]*\r?\n[ \t]+(MARK)"  # a block of lines, as in YAML
_LINE = r"(?m:^)[ \t]*(NAME)[ \t]+(OPEN)[^\s:=|<>(]"  # two words on a line
_NEXT = (  # value on a line of its own
    r"(?m:^) *(?:- )?[\"']?(NAME)[\"']?[ \t]*[:=][ \t]*[(\\]?[ \t]*\r?\n(?:[ \t]*\r?\n)? *(OPEN)[^\s\-|>{\[#<(]"
)
_FLIPPED = (  # value and name as two fields
    rf"(?:[{{(\-][ \t\r\n]*|<[A-Za-z:]+[ \t]+){_VALUE_IS}(OPEN)[^\s\"'{{}}<>\\,]+{_MARKS}"
    rf"[ \t]*,?[ \t\r\n]*{_MARKS}{_NAME_IS}(NAME)"
)
_CALL = r"\b(NAME)\([ \t]*(MARK[\"'])"
_COMPARED = r"(NAME)[\"'\])]{0,3}[ \t]*(?:[=!]==?|\|\||\?\?|\bor\b)[ \t]*(MARK[\"'])"
_ELEMENTS = (
    r"(?i:name|key)=[\"'](NAME)[\"'](?:[ \t]+[a-uw-zA-Z][A-Za-z:]*=[\"'][^\"'<>\n]*[\"'])*[ \t]*>[ \t\r\n]*"
    rf"(?:<(?i:value)>)?{_TEXT}",  # element with the name as an attribute
    rf"<(?i:name|key)>[ \t]*(NAME)[ \t]*</(?i:name|key)>[ \t\r\n]*<(?i:value|string)>{_TEXT}",
    rf"<(?:[A-Za-z]+:)?(NAME)(?:[ \t][^<>\n]*)?>{_TEXT}",  # element
)
_FIELDS = (
    rf"{_NAME_IS}(NAME){_MARKS}[,;]?[ \t\r\n]*(?:{_FIELD}){{0,2}}{_VALUE_IS}(OPEN)",  # name and value as two fields
    rf"[\"':= ](NAME){_MARKS}(?:,?[ \t\r\n]+|[:=]?[ \t]*\{{[ \t\r\n]*)(?:{_FIELD}){{0,2}}{_VALUE_IS}(OPEN)",
    r"variable[ \t]+\"(NAME)\"[ \t]*\{[^{}]*default[ \t]*=[ \t]*(MARK\")",
    _FLIPPED,
)
_IN_A_TABLE = r"(?:\||│)[ \t]*`?(NAME)`?[ \t]+(?:\||│)[ \t]+(MARK`?)"  # row of a table
_COLUMN = r"(?i:passw(?:or)?d|passphrase|secret|_token|api_key|access[ _]key)[\"']?[ \t]*[,;|\t\n\r)]"  # head of a column
_OPTION = r"\B--?(NAME)(?:[ \t]*\\\r?\n[ \t]*|[ \t]+)(OPEN)[^\s\-]"  # of a command
_DIRECTIVE = r"\b(?:SetEnv|ENV|ARG|setx|set(?: -[gUx]+)*|export|setenv|config(?: --[a-z]+)*(?: set)?)[ \t]+(NAME)[ \t]+(OPEN)"
_JOINED = (_ASSIGNED, _FOREIGN, _OPTION, _DIRECTIVE)
_OTHERS = (
    _OPTION,
    r"\B--?(NAME)[\"'],[ \t\r\n]*(MARK[\"'])",  # the same as elements of a list
    _DIRECTIVE,
    r"(?m:^)[ \t]*(NAME)[ \t]+REG_SZ[ \t]+(OPEN)",
    r"[\"'](NAME)[\"']\]=>\s*string\([0-9]+\) (MARK\")",
    r"#[ \t]*define[ \t]+(NAME)[ \t]+(MARK[\"'])",
    r"(?:\(|buildConfigField[^\n]*,)[ \t]*[\"'](NAME)[\"'][ \t]*,\s*(MARK(?:\\*[\"'])+)",  # two arguments of a call
    _IN_A_TABLE,
    r"`(NAME)`[ \t]+(?:to|is|as)[ \t]+(MARK`)",  # prose with code marks
    _BLOCK,
    _NEXT,
    _LINE,
    _COLUMN,
)
_QUOTED = {
    b'"': Expression(r'(?:[^"\\\n]|\\.)*'),
    b"'": Expression(r"(?:[^'\\\n]|\\.)*"),
    b"`": Expression(r"[^`\n]*"),
}
_NO_VALUE = (b"", b"{", b"(", b"<", b"=", b"\n", b"\r", b",", b";", b")", b"}", b":")
_BARE = Expression(r"[^\s\"'`<>\\]+")
_BLOCK_LINES = Expression(r"\S+(?:[ \t]*\r?\n[ \t]+[A-Za-z0-9+/=_\-]{20,})*")
_JOINT = Expression(
    r"(?:[A-Za-z0-9][A-Za-z0-9_+/=~!@#%^*.\-]*|\"[A-Za-z0-9][^\"\s,;]*\"|'[A-Za-z0-9][^'\s,;]*')+"
)
_BESIDE = Expression(r"[\"'][,;)}\]]{0,3}[\"']")
_NAMES = Expression(r"[\"'][ \t]*:|\n|$")
_NOT_JOINED = (b"", b"\n", b" ", b",", b";", b")", b"}", b"]", b"\r", b":", b"\\", b">", b"<", b"&")
_CUT = Expression(
    r"(?i)&[a-z_][a-z0-9_.\-]*=|&(?:quot|amp|#34);|%26[a-z_]+%3D|;[a-z_ ]+=|[,;](?:\s|$)|,[a-z_.\"'{]+[\"']?[=:]"
)


class _Head(NamedTuple):
    """What a head means: the name, where in it the value may begin, what opens the value, how it is written."""

    kind: key_names.KeyKind
    name: str
    value: int
    mark: bytes
    tight: bool
    form: str


class _Forms:
    """Some forms as one automaton without groups, and one by one with groups for a closer look at what it found."""

    __slots__ = ("_readers", "known", "scan")

    def __init__(self, forms: tuple[str, ...]) -> None:
        self.scan = Expression("|".join(_filled(form, "(?:") for form in forms))
        self._readers = tuple((form, Expression(_filled(form, "("))) for form in forms if form is not _COLUMN)
        self.known: dict[bytes, _Head | None] = {}

    def read(self, head: bytes) -> _Head | None:
        """The meaning of a head, or None if its name promises nothing."""
        meaning = self._read(head)
        if len(head) <= HEAD_BYTES and (meaning is None or meaning.form is not _FLIPPED):
            if len(self.known) >= REMEMBERED_HEADS:
                self.known.clear()
            self.known[head] = meaning
        return meaning

    def _read(self, head: bytes) -> _Head | None:
        for form, reader in self._readers:
            spans = reader.here(head, 0, len(head))
            if spans is None or spans[0][1] != len(head):
                continue
            name, mark = (spans[2], spans[1]) if form is _FLIPPED else (spans[1], spans[2])
            text = head[slice(*name)].decode(errors="replace")
            kind = _kind(text, head[name[1] : mark[0]], form)
            return kind and _Head(
                kind,
                text.lower(),
                mark[1],
                head[slice(*mark)].rstrip(b" \t\r\n\\"),
                mark[0] - name[1] == 1 and form is not _LINE,
                form,
            )
        return None


def _kind(name: str, between: bytes, form: str) -> key_names.KeyKind | None:
    """What the name promises where it stands so."""
    kind = key_names.kind_of(name)
    if kind is None:
        return None
    if name == "PASS" and b":" in between:  # the verdict of a test
        return None
    if form is _CALL and not name.rpartition(".")[2].lower().startswith(_SETTERS):
        return None
    if form in (_CALL, _COMPARED):
        return kind if kind.name in TYPED else kind._replace(certain=False)
    return kind._replace(certain=False, bare=True) if form is _NEXT and between[-1:] == b"\n" else kind


_NOT_AFTER = (b"://", b"[REDACTED:", b"[REDACTED", b"/etc/")
_AFTER_COLUMN = (b",", b";", b"|", b"\t", b"\n", b"\r", b")")
_SETTERS = ("set", "with", "use", "password", "passphrase", "secret", "apikey", "api_key")
_AFTER_SETTING = (b"\n", b"\r", b"#", b"|\t", b"<\t", b">\t")
_BEHIND_SETTING = (b"", b"\n", b"\r", b" ", b"\t", b";", b"\\", b'"')
_NEXT_ARGUMENT = (b",", b", ", b",\n", b",\r")
_AMID = (b"(", b"{", b"[", b",", b";", b"&", b".", b"=", b"'", b'"')
_ISSUED = ("token", "api_key", "access_key", "key", "session")
_NO_WORDS = (_CALL, _COMPARED, _LINE, _NEXT, _FOREIGN)
_SPOKEN = ("password", "passphrase", "pre_shared_key")


def _filled(form: str, group: str) -> str:
    """The form as an expression; `group` opens what captures, or does not."""
    name = rf"[A-Za-z0-9_.\-\x80-\xff]*(?:{key_names.foreign_words()})[A-Za-z0-9_.\-]*"
    return (
        form.replace("(FOREIGN", group + name)
        .replace("(NAME", group + _NAME)
        .replace("(OPEN", group + _OPEN)
        .replace("(MARK", group)
    )


_FORMS = (_Forms((_COMPARED, _CALL, _ASSIGNED)), _Forms((*_ELEMENTS, *_FIELDS, _FOREIGN)), _Forms(_OTHERS))
"""All forms as one automaton have so many states that it runs ten times slower than the three one after the other."""


def find(data: bytes) -> Iterator[Found]:
    """All values in `data` whose names promise a secret. What was judged before in this text is not judged again."""
    columns: list[int] = []
    judged: Judged = {}
    for forms in _FORMS:
        known, tables = forms.known, forms is _FORMS[2]
        for start, end in forms.scan.each_last_of_a_run(data):
            text = data[start:end]
            head = known[text] if text in known else forms.read(text)
            if tables and (head.form is _IN_A_TABLE if head else text[-1:] in _AFTER_COLUMN):
                columns.append(start)
            if head is not None and not _is_part_of_a_name(data, start):
                yield from _values(data, start, head, judged)
    yield from in_columns(data, columns, _is_secret)


def _values(data: bytes, start: int, head: _Head, judged: Judged) -> Iterator[Found]:
    """The value behind a head, if it is a secret: its parts, and what a diff of words shows beside it."""
    begin = start + head.value
    if data[begin : begin + 1] in _NO_VALUE:
        return
    stop, quoted = _end(data, begin, head)
    if not _stands_as_a_value(data, (begin, stop), quoted, head):
        return
    value = data[begin:stop] if head.form is not _BLOCK else data[begin:stop].split()[0]
    code = not quoted and _may_be_code(data, start, stop, head)
    place = quoted, head.tight, code, quoted and _is_setting(data, (start, begin, stop), head)
    secret = _judged(value, place, head, judged)
    more = _continued(data, stop + len(head.mark) * quoted) if head.form in _JOINED else []
    if more and (not quoted or secret or value.isalnum()):
        value = b"".join((value, *(data[slice(*part)].translate(None, b"\"'") for part in more)))
        secret = _judged(value, place, head, judged) or secret
    names_itself = secret and placeholders.names_itself(value.decode(errors="replace"), head.name)
    if not names_itself and (secret or _is_word(data, (start, begin, stop), quoted, head)):
        yield begin, stop, head.kind.name
        for part in more:
            yield *part, head.kind.name
    if quoted and head.form is _ASSIGNED:
        yield from _beside(data, stop, head)


def _judged(value: bytes, place: _Place, head: _Head, judged: Judged) -> bool:
    key = (value, place, head.kind)
    if key not in judged:
        judged[key] = _is_secret_at(*key) and (head.form is not _FOREIGN or value.isascii())
    return judged[key]


def _stands_as_a_value(data: bytes, place: tuple[int, int], quoted: bool, head: _Head) -> bool:  # noqa: FBT001
    """Do form and end of the value fit each other?"""
    if head.form is _NEXT and head.mark and not quoted:
        return False
    if head.form not in (_LINE, _NEXT):
        return True
    verdict = head.form is _LINE and head.name == "pass" and b"/" in data[slice(*place)]  # of a test
    return not verdict and _ends_line(data, place[1] + quoted, b";\r" if head.form is _LINE else b"\r")


def _continued(data: bytes, position: int) -> list[tuple[int, int]]:
    """What goes on without a blank where a value seemed to end: a shell joins `"one"two'three'`."""
    if data[position : position + 1] in _NOT_JOINED:
        return []
    spans = _JOINT.here(data, position, min(len(data), position + VALUE_BYTES))
    return [spans[0]] if spans is not None else []


def _beside(data: bytes, stop: int, head: _Head) -> Iterator[Found]:
    """`"old","new",`: where only colours tell what was removed from what was added; but `"key","name":` is another key."""
    opened = _BESIDE.here(data, stop, min(len(data), stop + 8)) if head.mark in _QUOTED else None
    if opened is None or data[opened[0][1] - 1 : opened[0][1]] != head.mark:
        return
    spans = _QUOTED[head.mark].here(data, opened[0][1], min(len(data), stop + VALUE_BYTES))
    if spans is None or _NAMES.here(data, spans[0][1], len(data)) is not None:
        return
    if _is_secret(data[slice(*spans[0])], True, head.tight, head.kind):
        yield *spans[0], head.kind.name


def _is_part_of_a_name(data: bytes, start: int) -> bool:
    """A scheme, a marker, `/etc/passwd:`, a resource of a cloud (`arn:aws:secretsmanager:…:secret:db`, `AWS::IAM::AccessKey`)."""
    before = data[max(0, start - 10) : start]
    if before.endswith(_NOT_AFTER):
        return True
    if not before.endswith(b":"):
        return False
    words = data[max(0, start - HEAD_BYTES) : start].split()
    return bool(words) and (b"arn:" in words[-1] or b"AWS::" in words[-1])


def _end(data: bytes, begin: int, head: _Head) -> tuple[int, bool]:
    if head.form is _BLOCK:
        return _block_end(data, begin)
    if head.form in _ELEMENTS:
        stop, closed = _value_end(data, begin, b"<")
        if closed and data[stop : stop + 2] == b"</":
            return (stop - 3 if data[stop - 3 : stop] == b"]]>" else stop), True
    return _value_end(data, begin, head.mark)


def _may_be_code(data: bytes, start: int, stop: int, head: _Head) -> bool:
    """May a bare value be a variable's name: an argument, a part of a statement? What a program set before a line is neither."""
    after = data[stop : stop + 2]
    if head.tight:
        return after[:1] == b")" or after in _NEXT_ARGUMENT
    rest = data[stop : stop + BLANKS].lstrip(b" \t")
    if rest and not rest.startswith(_AFTER_SETTING):
        return True
    before = data[max(0, start - BLANKS) : start].rstrip(b" \t")[-1:]
    return before.isalpha() or before in _AMID


def _is_secret(value: bytes, quoted: bool, tight: bool, kind: key_names.KeyKind) -> bool:  # noqa: FBT001
    return _is_secret_at(value, (quoted, tight, False, False), kind)


def _is_secret_at(value: bytes, place: _Place, kind: key_names.KeyKind) -> bool:
    quoted, tight, code, setting = place
    text = value.decode(errors="replace")
    if kind.bare and (randomness.is_uuid(text) or randomness.is_hexadecimal(text)):
        return False
    if kind.name in _ISSUED and placeholders.is_numbered_token(text):
        return False
    if (setting and placeholders.is_setting_words(text)) or (
        kind.paired and placeholders.is_user_with_secret(text)
    ):
        return True
    spoken = kind.name in _SPOKEN
    return placeholders.is_secret_value(
        text, quoted=quoted, certain=kind.certain, tight=tight, spoken=spoken, code=code
    )


def _is_word(data: bytes, places: tuple[int, int, int], quoted: bool, head: _Head) -> bool:  # noqa: FBT001
    """A plain word may be a password too, where its place says that it is a value and no code or prose."""
    start, begin, stop = places
    if head.kind.name not in _SPOKEN or not head.kind.certain or head.form in _NO_WORDS:
        return False
    loose = not quoted and data[begin - 1 : begin] == b"=" and data[start:begin].isupper()
    if not placeholders.is_plain_word(data[begin:stop].decode(errors="replace"), head.name, loose=loose):
        return False
    after = data[stop : stop + 2]
    if quoted:
        key, sign, _rest = data[start:begin].rpartition(b":")
        return sign == b"" or key.rstrip()[-1:] in (b'"', b"'") or after[1:] in (b"", b"\n", b"\r")
    if head.form is _OPTION:
        return after == b" -" or (after[:1] in (b"", b"\n") and _is_typed(data, begin))
    if data[begin - 1 : begin] != b"=":
        return False
    return after[:1] in (b"", b"\n", b"\r", b" ", b"&", b'"', b"'") or after[:1] == b";" != after


def _is_setting(data: bytes, places: tuple[int, int, int], head: _Head) -> bool:
    """`DB_PASSWORD="…"`, and no code goes on behind it."""
    start, begin, stop = places
    name, sign, mark = data[start:begin].rpartition(b"=")
    if not sign or mark != head.mark or not mark.endswith((b'"', b"'")):
        return False
    behind = data[stop + len(mark) : stop + len(mark) + 1]
    return behind in _BEHIND_SETTING and key_names.is_setting(name.decode(errors="replace"))


def _is_typed(data: bytes, position: int) -> bool:
    """Does the line begin with a prompt?"""
    line = data.rfind(b"\n", max(0, position - HEAD_BYTES), position) + 1
    return data[line : line + 2] in (b"$ ", b"+ ", b"> ")


def _ends_line(data: bytes, position: int, skip: bytes) -> bool:
    return data[position : position + 3].lstrip(skip)[:1] in (b"", b"\n")


def _block_end(data: bytes, start: int) -> tuple[int, bool]:
    spans = _BLOCK_LINES.here(data, start, min(len(data), start + VALUE_BYTES))
    return (spans[0][1] if spans is not None else start + 1), True


def _value_end(data: bytes, start: int, mark: bytes) -> tuple[int, bool]:
    """Where the value ends, and whether a closing quote says so."""
    limit = min(len(data), start + VALUE_BYTES)
    if mark in _QUOTED:
        spans = _QUOTED[mark].here(data, start, limit)
        if spans is not None and data[spans[0][1] : spans[0][1] + 1] == mark:
            return spans[0][1], True
    elif mark:
        stop = data.find(mark, start, limit)
        newline = data.find(b"\n", start, limit)
        if stop >= 0 and not 0 <= newline < stop:
            return stop, True
    return _bare_end(data, start, limit), False


def _bare_end(data: bytes, start: int, limit: int) -> int:
    spans = _BARE.here(data, start, limit)
    if spans is None:
        return start
    stop = spans[0][1]
    cut = _CUT.first(data, start, stop)
    if cut is not None:
        stop = cut[0][0]
    while stop > start and _hangs(data[start:stop]):
        stop -= 1
    return stop


def _hangs(value: bytes) -> bool:
    """Does the value end in punctuation of the text around it: `)`, `]`, `}` that it never opened, or `,` `;` `.`?"""
    last = value[-1:]
    if last in (b",", b";", b".", b":"):
        return True
    pair = {b")": b"(", b"]": b"[", b"}": b"{"}.get(last)
    return pair is not None and value.count(pair) < value.count(last)
