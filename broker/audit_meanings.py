"""What else a text of a call may mean: to a shell, as JSON, to a program that decodes escapes.

Always true: any text has its meanings, also one that is cut or that no parser would take; they are few, each about as long as
the text at most, and take linear time. Must not decide what a secret is: a meaning is redacted and compared, never run.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from broker.terminal import Terminal

SHELLS = 3
"""How many shells a command may pass, each in the words of the one before: `ssh host "sh -c 'printf …'"`."""

# Expressions are texts, compiled when they are first used: a start that needs none pays for none.
_QUOTING = frozenset("\"'\\")
_WITHOUT_MARKS = str.maketrans("", "", "\"'")
_WITHOUT_QUOTES = str.maketrans("", "", "\"'\\")
_QUOTES = r"""(?<!\\)\\*+['"]+|['"]+"""
_CONTROLS = str.maketrans("\b\r\v\f", "\n" * 4)
_CONTROLS_AND_QUOTES = _CONTROLS | str.maketrans("'\"", "\n" * 2)
_ASSIGNS = r"\A[\w.-]++="
_PRINTS = r"\b(?:echo|printf)(?: -[neE]+)*[ \n]++(?=\S+\s+\S|\S{16})"
"""What such a program prints begins a line."""
_CONVERSION = r"%(?:%|[-+ #0-9.*']*+[A-Za-z])"

_ESCAPE = r"""(?x){slashes}(?:
    ((?:x[0-9a-fA-F]{{1,2}}|{octal})(?:{slashes}(?:x[0-9a-fA-F]{{1,2}}|{octal}))*+)  # 1 bytes, some of one character
    |u([0-9a-fA-F]{{1,4}})|U([0-9a-fA-F]{{1,8}})                                     # 2, 3
    |([\s\S])                                                                        # 4
    )"""
# A run of backslashes is looked at once, from its beginning, or a long one would take squared time.
_SLASHES = r"(?<!\\)\\++"
_ONCE = _ESCAPE.format(slashes=r"\\", octal="[0-7]{1,3}")
_OF_PRINTF = _ESCAPE.format(slashes=_SLASHES, octal="[0-7]{1,3}")
_OF_ECHO = _ESCAPE.format(slashes=_SLASHES, octal="(?:0[0-7]{1,3}|[0-7]{1,3})")
_ECHO_DIFFERS = r"\\0[0-7]{3}"
_BYTE = r"x([0-9a-fA-F]+)|([0-7]+)"
_CHARACTERS = dict(
    zip("abeEfnrtv\n", ("\a", "\b", "\x1b", "\x1b", "\f", "\n", "\r", "\t", "\v", ""), strict=True)
)

_OF_SHELL = r"""(?x)
    \$?'((?<=\$')(?:[^'\\]++|\\[\s\S])*+|[^']*+)'?  # 1
    |"((?:[^"\\]++|\\[\s\S])*+)"?                       # 2
    |\\([\s\S])                                         # 3
    |([\s;|&<>()]++)                                    # 4 ends a word
    """
_IN_DOUBLE_QUOTES = r'\\(?:(["\\$`])|\n)'
_OF_JSON = r'\s*+"((?:[^"\\]++|\\[\s\S])*+)"?(\s*+:)?|[\[\]{},]++|([^"\[\]{},]++)'


class Meaning(NamedTuple):
    """`is_legible`: no backslash was lost, so that an escape in it is still seen for one."""

    text: str
    is_legible: bool


def meanings(raw: str, words: tuple[str, ...] | None) -> list[Meaning]:
    """Return what else a command may mean, mostly nothing. `words`: how the gate read it, None if it could not."""
    unquoted = raw.translate(_WITHOUT_QUOTES)
    known = " ".join(words or ())
    if known == unquoted == raw and raw.isprintable() and not _may_print(raw):
        return []  # nearly always
    found = [Meaning(unquoted, "\\" not in raw)]
    if words is not None:
        found += _read(words, 1)
    else:
        found += _read((raw,), 0)
        if raw[:1] in ("{", "["):
            found += _read((_from_json(raw),), 0)
    different = {meaning.text: meaning for meaning in reversed(found) if meaning.text not in ("", raw, known)}
    return list(reversed(different.values()))


def _may_print(raw: str) -> bool:
    """False where `_PRINTS` cannot match, which asks for two words or a long one behind the program's name."""
    return ("echo" in raw or "printf" in raw) and (raw.count(" ") > 1 or len(raw) > 16)


def decoded(text: str) -> list[str]:
    """Return the text as a terminal shows it once its escapes are decoded, each however often it was escaped."""
    return [] if _is_plain(text) else [_shown(form) for form in _unescaped(text)]


def decoded_across_quotes(text: str) -> list[str]:
    """Return the same of the text without quotes, in which an escape may be split: `\\x4''1`."""
    if "\\" not in text:
        return []
    joined = (text.translate(_WITHOUT_MARKS), re.sub(_QUOTES, "", text))
    return list(dict.fromkeys(form for other in joined if other != text for form in decoded(other)))


def _read(words: tuple[str, ...], passed: int) -> Iterable[Meaning]:
    """The words in a line, and each on a line, where some secrets are only seen; so after each shell that is not `passed` yet."""
    is_legible = True
    for shells in range(passed, SHELLS + 1):
        plain = " ".join(words).replace("\n ", "\n").replace(" \n", "\n")
        forms = decoded(plain) or [plain]
        found = [re.sub(_PRINTS, r"\g<0>\n", form) for form in forms]
        found += _printed(words)
        if passed < shells or found[: len(forms)] != forms or any(_has_lines(form, words) for form in forms):
            found += _by_lines(words)
        is_clear = is_legible and "\\'" not in plain and '\\"' not in plain
        yield from (Meaning(text, is_clear) for text in found)
        if shells == passed:
            yield from (Meaning(form.translate(_WITHOUT_QUOTES), "\\" not in plain) for form in forms)
        if shells and _QUOTING.isdisjoint(plain):
            return
        inner = tuple(inner for word in words for inner in _split(word))
        if inner == words:
            return
        is_legible &= plain.count("\\") == sum(word.count("\\") for word in inner)
        words = inner


def _printed(words: tuple[str, ...]) -> list[str]:
    """What `printf` would make of its format and the words behind it, once it has decoded both."""
    at = words.index("printf") + 1 if "printf" in words else len(words)
    if len(words) < at + 2 or "%" not in words[at]:
        return []
    values = list(reversed(words[at + 1 :]))
    form, printed, room = words[at], "", sum(map(len, words))
    while values and len(printed) <= room:
        left = len(values)
        printed += re.sub(
            _CONVERSION, lambda found: "%" if found[0] == "%%" else values.pop() if values else "", form
        )
        if len(values) == left:
            break
    text = " ".join(words[:at]) + " \n" + printed
    return decoded(text) or [text]


def _has_lines(form: str, words: tuple[str, ...]) -> bool:
    return len(form.split()) != len(words) or not form.isprintable()


def _by_lines(words: tuple[str, ...]) -> Iterable[str]:
    for form in _unescaped("\n".join(re.sub(_ASSIGNS, "\\g<0>\n", word) for word in words)):
        yield _shown(form.translate(_CONTROLS))
        yield _shown(form.translate(_CONTROLS_AND_QUOTES))


def _is_plain(text: str) -> bool:
    return "\\" not in text and text.isprintable()


def _unescaped(text: str) -> list[str]:
    if "\\" not in text:
        return [text]
    patterns = [_OF_PRINTF]
    if re.search(_ECHO_DIFFERS, text):
        patterns.append(_OF_ECHO)
    if "\\\\" in text:  # a backslash that is meant: `\\\\nas` is a computer
        patterns.append(_ONCE)
    return [re.sub(pattern, _character, text) for pattern in patterns]


def _character(found: re.Match[str]) -> str:
    numbers, short, long, other = found.groups()
    if other is not None:
        return _CHARACTERS.get(other, other)
    if numbers is None:
        number = int(short or long, 16)
        return chr(number) if number <= 0x10FFFF else found[0]
    data = bytes(
        int(sixteen, 16) if sixteen else int(eight, 8) & 0xFF for sixteen, eight in re.findall(_BYTE, numbers)
    )
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _shown(text: str) -> str:
    """Return the text without what steers a terminal; pairs of surrogates become the characters that they stand for."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    whole = text.replace("\r", "\n").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    terminal = Terminal()
    return (terminal.feed(whole.encode()) + terminal.close()).decode()


def _from_json(raw: str) -> str:
    """Return JSON as lines `name=value`, a list as the words of a command, whether it is whole or not."""
    pieces: list[str] = []
    for string, colon, other in re.findall(_OF_JSON, raw):
        text = re.sub(_ONCE, _character, string)
        pieces.append(other or (f"\n{text}=" if colon else f"{text} "))
    return "".join(pieces)


def _split(text: str) -> list[str]:
    """Return the words that a shell would see; what it would act on is a line of its own."""
    return re.sub(_OF_SHELL, _unquoted, text).split("\0")


def _unquoted(found: re.Match[str]) -> str:
    if found[4]:
        mark = found[4].strip()
        return f"\0\n{mark}\n\0" if mark or "\n" in found[4] else "\0"
    if found[3]:
        return found[3].replace("\n", "")
    return found[1] or re.sub(_IN_DOUBLE_QUOTES, r"\1", found[2] or "")
