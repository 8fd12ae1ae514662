"""Secrets that are told by the name they are given: `DB_PASSWORD=…`, `"apiKey": "…"`, `--token …`, `<secret>…</secret>`.

Always true: only the value is found, never the name. The name decides by its words (`key_names`), the value is then
judged (`placeholders`). Each candidate costs time bounded by `VALUE_BYTES`.
"""

from collections.abc import Iterator

from broker import key_names, placeholders
from broker.regex_engine import Expression, Spans

Found = tuple[int, int, str]
VALUE_BYTES = 4096
_KEYWORD = "pass|pwd|secret|token|key|cred|auth|psk|sig|session|_pw|bindpw|rootpw|sid"
_NAME = rf"[A-Za-z0-9_.\-]*(?:{_KEYWORD})[A-Za-z0-9_.\-]*"
_OPEN = r"""(?:\\{0,7}["'`]|&quot;|&#34;|&#39;|%22|%27)?"""
_CLOSE = r"""(?:\\{0,7}["'`]|&quot;|&#34;|%22|\]|\)){0,4}"""
_TYPE = r"(?:[ \t]*:[ \t]*&?(?:'static[ \t]+)?[A-Za-z][A-Za-z0-9_.<>\[\]|&? ]*)?"
_SIGN = rf"(?:{_TYPE}[ \t]*(?:=>|:=|[?+:]?=|%3D|%253D|&#61;)|[ \t]*(?::|%3A)|[ \t]*=>)[ \t]*"
_FORMS = (
    # assignment, mapping, query parameter, header, typed declaration
    rf"(?i)({_NAME}){_CLOSE}{_SIGN}(?:(?:[bfru]|rb|br|fr|rf)(?:[\"']))?({_OPEN})",
    # element
    rf"(?i)<(?:[a-z]+:)?({_NAME})(?:[ \t][^<>\n]*)?>()",
    # option of a command, also as elements of a list
    rf"(?i)(?:^|[\s\"'=\[,(])--?({_NAME})(?:[\"'],)?[ \t]+({_OPEN})[^\s\-]",
    # directives that separate by a blank
    rf"\b(?:SetEnv|ENV|ARG|setx|set (?:-[gUx]+ )*|export|setenv)[ \t]+((?i:{_NAME}))[ \t]+((?i:{_OPEN}))",
    # name and value as two fields
    rf"(?i)[\"':= ]({_NAME})[\"']?(?:,|:[ \t]*\{{)?[ \t\r\n]+(?:[\"']?[a-z]+[\"']?: ?[a-z0-9]+,\s*)?"
    rf"[\"']?value[\"']?[ \t]*[:=][ \t]*({_OPEN})",
    # two arguments of a call
    rf"(?i)[\"']({_NAME})[\"'][ \t]*,[ \t]*((?:\\{{0,3}}[\"'])+)",
    # table row
    rf"(?i)\|[ \t]*`?({_NAME})`?[ \t]*\|[ \t]*(`?)",
    # prose with code marks
    rf"(?i)`({_NAME})`[ \t]+(?:to|is|as)[ \t]+(`)",
    # two words on a line
    rf"(?im)^[ \t]*({_NAME})[ \t]+({_OPEN})",
)  # fmt: skip
_LINE_FORM = len(_FORMS) - 1
_BLOCK = Expression(rf"(?i)({_NAME})[\"']?:[ \t]*[|>][-+0-9]*[ \t]*\r?\n[ \t]+((?:\S+\s*\n[ \t]+)*\S+)")
_QUOTED = {
    b'"': Expression(r'(?:[^"\\\n]|\\.)*'),
    b"'": Expression(r"(?:[^'\\\n]|\\.)*"),
    b"`": Expression(r"[^`\n]*"),
}
_BARE = Expression(r"[^\s\"'`<>\\]+")
_CUT = Expression(
    r"(?i)&[a-z_][a-z0-9_.\-]*=|&(?:quot|amp|#34);|%26[a-z_]+%3D|;[a-z_ ]+=|[,;](?:\s|$)|,[a-z_\"'{]+[\"']?[=:]"
)


def find(data: bytes) -> Iterator[Found]:
    """All values in `data` whose names promise a secret."""
    for number, form in enumerate(_EXPRESSIONS):
        for spans in form.each(data, 0, len(data)):
            found = _judge(data, spans, whole_line=number == _LINE_FORM)
            if found is not None:
                yield found
    for spans in _BLOCK.each(data, 0, len(data)):
        kind = key_names.kind_of(data[slice(*spans[1])].decode(errors="replace"))
        value = data[slice(*spans[2])].decode(errors="replace")
        if kind is not None and placeholders.is_secret_value(value.split()[0], quoted=True, certain=kind.certain):
            yield *spans[2], kind.name


_EXPRESSIONS = tuple(Expression(form) for form in _FORMS)


def _judge(data: bytes, spans: Spans, *, whole_line: bool) -> Found | None:
    name, opener = spans[1], spans[2]
    start = opener[1]
    kind = key_names.kind_of(data[slice(*name)].decode(errors="replace"))
    if kind is None or data[max(0, name[0] - 3) : name[0]] == b"://":
        return None
    stop, quoted = _value_end(data, start, data[slice(*opener)])
    if stop <= start or (whole_line and data[stop + quoted : stop + quoted + 2].strip(b";\r")[:1] not in (b"", b"\n")):
        return None
    value = data[start:stop].decode(errors="replace")
    tight = not whole_line and opener[0] - name[1] == 1
    if placeholders.is_secret_value(value, quoted=quoted, certain=kind.certain, tight=tight):
        return start, stop, kind.name
    return None


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
