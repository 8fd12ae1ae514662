"""Secrets that are told by the name they are given: `DB_PASSWORD=…`, `"apiKey": "…"`, `--token …`, `<secret>…</secret>`.

Always true: only the value is found, never the name. The name decides by its words (`key_names`), the value is then
judged (`placeholders`). One automaton finds the heads (name, sign, opening quote); what a head means is remembered, so
that text full of the same heads costs little. Each candidate costs time bounded by `VALUE_BYTES`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker import key_names, placeholders, randomness
from broker.regex_engine import Expression

Found = tuple[int, int, str]
VALUE_BYTES = 4096
HEAD_BYTES = 256
REMEMBERED_HEADS = 4096
_KEYWORD = "pass|pwd|secret|token|key|cred|auth|psk|session|_pw|bindpw|rootpw|sid"
_NAME = rf"[A-Za-z0-9_.\-]*(?i:{_KEYWORD})[A-Za-z0-9_.\-]*"
_OPEN = r"""(?:\\{0,7}["'`]|&quot;|&#34;|&#39;|%22|%27)?"""
_CLOSE = r"""(?:\\{0,7}["'`]|&quot;|&#34;|%22|\]|\)){0,4}"""
_TYPE = r"(?:[ \t]*:[ \t]*&?(?:'static[ \t]+)?[A-Za-z][A-Za-z0-9_.<>\[\]|&? ]*)?"
_SIGN = rf"(?:{_TYPE}[ \t]*(?:=>|:=|[?+:]?=|%3[Dd]|%253[Dd]|&#61;)|[ \t]*(?::|%3[Aa])|[ \t]*=>)[ \t]*"
_LITERAL = r"(?:(?:[bfruBFRU]|rb|br|fr|rf)(?:[\"']))?"
_ASSIGNED = rf"(NAME){_CLOSE}{_SIGN}{_LITERAL}(OPEN)"
_BLOCK = r"(NAME)[\"']?:[ \t]*[|>][\-+0-9]*[ \t]*\r?\n[ \t]+(MARK)"  # a block of lines, as in YAML
_LINE = r"(?m:^)[ \t]*(NAME)[ \t]+(OPEN)[^\s:=|<>(]"  # two words on a line
_OTHERS = (
    r"<(?:[a-z]+:)?(NAME)(?:[ \t][^<>\n]*)?>(MARK)",  # element
    r"\B--?(NAME)(?:[\"'],)?[ \t]+(OPEN)[^\s\-]",  # option of a command, also as elements of a list
    r"\b(?:SetEnv|ENV|ARG|setx|set(?: -[gUx]+)*|export|setenv)[ \t]+(NAME)[ \t]+(OPEN)",  # directive
    r"[\"':= ](NAME)[\"']?(?:,|:[ \t]*\{)?[ \t\r\n]+(?:[\"']?[A-Za-z]+[\"']?: ?[a-z0-9]+,\s*)?"
    r"[\"']?(?i:value)[\"']?[ \t]*[:=][ \t]*(OPEN)",  # name and value as two fields
    r"(?:\(|buildConfigField[^\n]*,)[ \t]*[\"'](NAME)[\"'][ \t]*,\s*(MARK(?:\\{0,3}[\"'])+)",  # two arguments of a call
    r"\|[ \t]*`?(NAME)`?[ \t]+\|[ \t]+(MARK`?)",  # table row
    r"`(NAME)`[ \t]+(?:to|is|as)[ \t]+(MARK`)",  # prose with code marks
    _BLOCK,
    _LINE,
)
_QUOTED = {
    b'"': Expression(r'(?:[^"\\\n]|\\.)*'),
    b"'": Expression(r"(?:[^'\\\n]|\\.)*"),
    b"`": Expression(r"[^`\n]*"),
}
_NO_VALUE = (b"", b"{", b"(", b"<", b"=", b"\n", b"\r", b",", b";", b")", b"}", b":")
_BARE = Expression(r"[^\s\"'`<>\\]+")
_BLOCK_LINES = Expression(r"\S+(?:[ \t]*\r?\n[ \t]+[A-Za-z0-9+/=_\-]{20,})*")
_CUT = Expression(
    r"(?i)&[a-z_][a-z0-9_.\-]*=|&(?:quot|amp|#34);|%26[a-z_]+%3D|;[a-z_ ]+=|[,;](?:\s|$)|,[a-z_\"'{]+[\"']?[=:]"
)


class _Head(NamedTuple):
    """What a head means: where in it the name begins and the value may begin, what opens the value, how it is written."""

    kind: key_names.KeyKind
    name: int
    value: int
    mark: bytes
    tight: bool
    form: str


class _Forms:
    """Some forms as one automaton without groups, and one by one with groups for a closer look at what it found."""

    __slots__ = ("_known", "_readers", "scan")

    def __init__(self, forms: tuple[str, ...]) -> None:
        self.scan = Expression("|".join(_filled(form, "(?:") for form in forms))
        self._readers = tuple((form, Expression(_filled(form, "("))) for form in forms)
        self._known: dict[bytes, _Head | None] = {}

    def read(self, head: bytes) -> _Head | None:
        """The meaning of a head, or None if its name promises nothing."""
        if head in self._known:
            return self._known[head]
        meaning = self._read(head)
        if len(head) <= HEAD_BYTES:
            if len(self._known) >= REMEMBERED_HEADS:
                self._known.clear()
            self._known[head] = meaning
        return meaning

    def _read(self, head: bytes) -> _Head | None:
        for form, reader in self._readers:
            spans = reader.here(head, 0, len(head))
            if spans is None or spans[0][1] != len(head):
                continue
            name, mark = spans[1], spans[2]
            kind = key_names.kind_of(head[slice(*name)].decode())
            return kind and _Head(kind, name[0], mark[1], head[slice(*mark)], mark[0] - name[1] == 1, form)
        return None


def _filled(form: str, group: str) -> str:
    """The form as an expression; `group` opens what captures, or does not."""
    return form.replace("(NAME", group + _NAME).replace("(OPEN", group + _OPEN).replace("(MARK", group)


_FORMS = (_Forms((_ASSIGNED,)), _Forms(_OTHERS))


def find(data: bytes) -> Iterator[Found]:
    """All values in `data` whose names promise a secret. What was judged before in this text is not judged again."""
    judged: dict[tuple[bytes, bool, bool, key_names.KeyKind], bool] = {}
    for forms in _FORMS:
        for start, end in forms.scan.each_last_of_a_run(data):
            head = forms.read(data[start:end])
            if head is None or data[max(0, start - 3) : start] == b"://":
                continue
            begin = start + head.value
            if data[begin : begin + 1] in _NO_VALUE:
                continue
            stop, quoted = (
                _block_end(data, begin) if head.form is _BLOCK else _value_end(data, begin, head.mark)
            )
            if head.form is _LINE and not _ends_line(data, stop + quoted):
                continue
            value = data[begin:stop] if head.form is not _BLOCK else data[begin:stop].split()[0]
            key = (value, quoted, head.tight, head.kind)
            if key not in judged:
                judged[key] = _is_secret(*key)
            if judged[key]:
                yield begin, stop, head.kind.name


def _is_secret(value: bytes, quoted: bool, tight: bool, kind: key_names.KeyKind) -> bool:  # noqa: FBT001
    text = value.decode(errors="replace")
    if kind.bare and (randomness.is_uuid(text) or randomness.is_hexadecimal(text)):
        return False
    return placeholders.is_secret_value(text, quoted=quoted, certain=kind.certain, tight=tight)


def _ends_line(data: bytes, position: int) -> bool:
    return data[position : position + 3].lstrip(b";\r")[:1] in (b"", b"\n")


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
