"""Secrets that are told by the name they are given: `DB_PASSWORD=…`, `"apiKey": "…"`, `--token …`, `<secret>…</secret>`.

Always true: only the value is found, never the name. The name decides by its words (`key_names`), the value is then
judged (`placeholders`). Each candidate costs time bounded by `VALUE_BYTES`.
"""

from collections.abc import Iterator

from broker import key_names, placeholders
from broker.regex_engine import Expression

Found = tuple[int, int, str]
VALUE_BYTES = 4096
_KEYWORD = "passw|passphrase|passcode|pwd|pass|secret|token|api[_.-]?key|key|cred|auth|psk|sig|session|_pw|bindpw|rootpw|sid"
_NAME = rf"[A-Za-z0-9_.\-]*(?:{_KEYWORD})[A-Za-z0-9_.\-]*"
_OPEN = r"""(?:\\{0,7}["'`]|&quot;|&#34;|&#39;|%22|%27)?"""
_CLOSE = r"""(?:\\{0,7}["'`]|&quot;|&#34;|%22|\]|\)){0,4}"""
_TYPE = r"(?:[ \t]*:[ \t]*&?(?:'static[ \t]+)?[A-Za-z][A-Za-z0-9_.<>\[\]|&? ]*)?"
_SIGN = rf"(?:{_TYPE}[ \t]*(?:=>|:=|[?+:]?=|%3D|%253D|&#61;)|[ \t]*(?::|%3A)|[ \t]*=>)[ \t]*"
_FORMS = (
    # assignment, mapping, query parameter, header, typed declaration
    rf"(?i)({_NAME}){_CLOSE}{_SIGN}(?:[bfru]{{1,2}}(?:[\"']))?({_OPEN})",
    # element
    rf"(?i)<(?:[a-z]+:)?({_NAME})(?:[ \t][^<>\n]*)?>()",
    # option of a command, also as elements of a list
    rf"(?i)(?:^|[\s\"'=\[,(])--?({_NAME})(?:[\"'],)?[ \t]+({_OPEN})",
    # directives that separate by a blank
    rf"\b(?:SetEnv|ENV|ARG|setx|set (?:-[gUx]+ )*|export|setenv|SecretKey)[ \t]+((?i:{_NAME}))[ \t]+((?i:{_OPEN}))",
    # name and value as two fields
    rf"(?i)[\"':= ]({_NAME})[\"']?,?[ \t\r\n]+(?:[\"']?[a-z]+[\"']?: ?[a-z0-9]+,\s*)?[\"']?value[\"']?[ \t]*[:=][ \t]*({_OPEN})",
    # two arguments of a call
    rf"(?i)[\"']({_NAME})[\"'][ \t]*,[ \t]*((?:\\{{0,3}}[\"'])+)",
    # table row
    rf"(?i)\|[ \t]*`?({_NAME})`?[ \t]*\|[ \t]*(`?)",
    # prose with code marks
    rf"(?i)`({_NAME})`[ \t]+(?:to|is|as)[ \t]+(`)",
)  # fmt: skip
_ESCAPED_QUOTED = {b'"': r'(?:[^"\\\n]|\\.)*', b"'": r"(?:[^'\\\n]|\\.)*", b"`": r"[^`\n]*"}
_CUTS = Expression(
    r"(?i)&[A-Za-z_][A-Za-z0-9_.\-]*=|&(?:quot|amp|#34);|%26|;[A-Za-z_ ]+=|[,;](?:\s|$)|,[A-Za-z_\"'{]+[\"']?[=:]|;$"
)
_UNQUOTED = Expression(r"[^\s\"'`<>\\]+")


class KeyedValues:
    """The forms, ready to run."""

    __slots__ = ("_forms", "_quoted")

    def __init__(self) -> None:
        self._forms = tuple(Expression(form) for form in _FORMS)
        self._quoted = {quote: Expression("(?s)" + source) for quote, source in _ESCAPED_QUOTED.items()}

    def find(self, data: bytes) -> Iterator[Found]:
        """All values in `data` whose names promise a secret."""
        for form in self._forms:
            for spans in form.each(data, 0, len(data)):
                found = self._judge(data, spans[1], spans[2], spans[0][1])
                if found is not None:
                    yield found

    def _judge(self, data: bytes, name: tuple[int, int], opener: tuple[int, int], start: int) -> Found | None:
        kind = key_names.kind_of(data[name[0] : name[1]].decode(errors="replace"))
        if kind is None:
            return None
        mark = data[opener[0] : opener[1]]
        stop, quoted = self._value_end(data, start, mark)
        if stop <= start:
            return None
        value = data[start:stop].decode(errors="replace")
        if placeholders.is_secret_value(value, quoted=quoted, certain=kind.certain):
            return start, stop, kind.name
        return None

    def _value_end(self, data: bytes, start: int, mark: bytes) -> tuple[int, bool]:
        limit = min(len(data), start + VALUE_BYTES)
        if mark in self._quoted:
            spans = self._quoted[mark].here(data, start, limit)
            if spans is not None and data[spans[0][1] : spans[0][1] + 1] == mark:
                return spans[0][1], True
        elif mark:
            stop = data.find(mark, start, limit)
            newline = data.find(b"\n", start, limit)
            if stop >= 0 and not 0 <= newline < stop:
                return stop, True
        return self._bare_end(data, start, limit), False

    def _bare_end(self, data: bytes, start: int, limit: int) -> int:
        spans = _UNQUOTED.here(data, start, limit)
        if spans is None:
            return start
        stop = spans[0][1]
        cut = _CUTS.first(data, start, stop)
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
