"""What else a text of a call may mean: without its quotes, with its escapes decoded once, as the JSON that it may be.

Always true: any text has its meanings, also one that is cut or that no parser would take; they are few, each about as long as
the text at most, and take linear time. Must not decide what a secret is: a meaning is redacted and compared, never run or shown.
What a program puts together of several words is none of them.
"""

import re

# Expressions are texts, compiled when they are first used: a start that needs none pays for none.
_QUOTING = frozenset("\"'\\")
_WITHOUT_QUOTES = str.maketrans("", "", "\"'\\")
_LINE_ENDS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\n")
_BLANKS = frozenset(" \t\n")

_BYTE = r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3})"
_ESCAPE = rf"((?:{_BYTE})++)|\\(?:u([0-9a-fA-F]{{1,4}})|U([0-9a-fA-F]{{1,8}})|([\s\S]))"
"""1 bytes, some of one character. 2, 3 numbers of characters. 4 any other."""
_OF_ECHO = r"\\0(?=[0-7]{3})"
_NAMED = {"n": "\n", "r": "\n", "t": "\t", "\n": ""}

_OF_SHELL = r"""(?x)
    \$'((?:[^'\\]++|\\[\s\S])*+)'?      # 1
    |'([^']*+)'?                          # 2
    |"((?:[^"\\]++|\\[\s\S])*+)"?         # 3
    |\\([\s\S])                           # 4
    |([;|&<>()\n]++)                      # 5
    |[ \t\r]++                            # ends a word
    """
_IN_DOUBLE_QUOTES = r'\\(?:(["\\$`])|\n)'
_ASSIGNS = r"(?m)^[\w.-]++="
"""What is assigned may have lines, too, as in `x=$'password:\\n  …'`."""
_OF_JSON = r'\s*+"((?:[^"\\]++|\\[\s\S])*+)"?(\s*+:)?|[\[\]{},]++|([^"\[\]{},]++)'


def meanings(raw: str, words: tuple[str, ...] | None) -> list[str]:
    """Return what else a command may mean, mostly nothing. `words`: how the gate read it, None if it could not."""
    unquoted = raw.translate(_WITHOUT_QUOTES)
    if unquoted == raw and raw.isprintable():
        return []
    found = [unquoted]
    if words is not None and not all(map(_is_plain, words)):
        found += _read(words)
    elif words is None:
        found += (decoded(raw), *_read(_split(raw)))
        if raw[:1] in ("{", "["):
            text = _from_json(raw)
            found += (text, text.translate(_WITHOUT_QUOTES), *_read(_split(text)))
    known = ("", raw, " ".join(words or ()))
    return [text for text in dict.fromkeys(found) if text not in known]


def _is_plain(word: str) -> bool:
    return word.isprintable() and _QUOTING.isdisjoint(word)


def _read(words: tuple[str, ...]) -> list[str]:
    texts = [_in_lines(form) for form in dict.fromkeys((words, tuple(map(as_echo, words))))]
    return texts + [re.sub(_ASSIGNS, r"\g<0>\n", text) for text in texts]


def decoded(text: str) -> str:
    """Return the text with its escapes decoded, as `printf`, `echo -e` and JSON do, and line ends for control characters."""
    if "\\" not in text:
        return text
    text = re.sub(_ESCAPE, _character, text).translate(_LINE_ENDS)
    return (
        text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def as_echo(text: str) -> str:
    """Return the text for `decoded` with octal numbers of four digits, which `printf` reads as one of three and a digit."""
    return re.sub(_OF_ECHO, r"\\", text) if "\\0" in text else text


def _in_lines(words: tuple[str, ...]) -> str:
    """The words decoded; one with blanks is on lines of its own, where some secrets are only seen."""
    pieces, is_apart = list[str](), True
    for form in map(decoded, words):
        was_apart, is_apart = is_apart, not _BLANKS.isdisjoint(form)
        pieces += ("\n" if was_apart or is_apart else " ", form)
    return "".join(pieces[1:])


def _character(found: re.Match[str]) -> str:
    numbers, short, long, other = found.groups()
    if other is not None:
        return _NAMED.get(other, other)
    if numbers is None:
        number = int(short or long, 16)
        return chr(number) if number <= 0x10FFFF else found[0]
    data = bytes(map(_byte, numbers[1:].split("\\")))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _byte(number: str) -> int:
    return int(number[1:], 16) if number[0] == "x" else int(number, 8) & 0xFF


def _split(text: str) -> tuple[str, ...]:
    """The words that a shell would see, as far as that can be told; what it would act on is on a line of its own."""
    return tuple(re.sub(_OF_SHELL, _unquoted, text).split("\0"))


def _unquoted(found: re.Match[str]) -> str:
    if found.lastindex is None or found[5]:
        return f"\0\n{found[5].strip()}\n\0" if found[5] else "\0"
    if found[3] is not None:
        return re.sub(_IN_DOUBLE_QUOTES, r"\1", found[3])
    return "" if found[4] == "\n" else found[found.lastindex]


def _from_json(raw: str) -> str:
    """JSON as lines `name=value`, a list as the words of a command, whether it is whole or not."""
    pieces: list[str] = []
    for string, colon, other in re.findall(_OF_JSON, raw):
        pieces.append(other or (f"\n{decoded(string)}=" if colon else f"{decoded(string)} "))
    return "".join(pieces)
