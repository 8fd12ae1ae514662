"""What a refused command's reader is told: the character, its column, why, and what to do instead.

Always true: a reason stays under 300 characters and repeats no more of the input than the one character it is
about, or the operator that this character begins. It must not decide anything: `grammar` has refused already.
"""

import functools
import re

EMPTY = "the command is empty: name a program and its arguments"
PROGRAM_IS_PATTERN = "the program's name holds an unquoted glob: name one program, its patterns may follow"

_LITERALLY = "if it is meant as text, put the word in single quotes"

_INSTEAD = {
    ";": f"no second command in one call: run the commands one after the other; {_LITERALLY}",
    "|": "pipes are not available: run the two commands one after the other, and name the file to the second itself "
    f"(head -50 FILE, grep -c); {_LITERALLY}",
    "||": "no command lists: run the first command, look at its exit code, then run the second",
    "&": f"no background jobs: leave it out, the call waits for the command; {_LITERALLY}",
    "&&": "no command lists: run the two commands one after the other",
    ">": "no redirection: stdout and stderr come back apart, leave `2>…` out; to write a file, use the client's own edit "
    f"tool; {_LITERALLY}",
    ">>": "no redirection: the output comes back in the reply; to append to a file, use the client's own edit tool",
    "<": f"no redirection: name the file as an argument; {_LITERALLY}",
    "<<": "no here-documents: a command has no input",
    "<(": "no process substitution: run the two commands one after the other",
    ">(": "no process substitution: run the two commands one after the other",
    "`": f"no command substitution: run the inner command first and use its output; {_LITERALLY}",
    "$(": f"no command substitution: run the inner command first and use its output; {_LITERALLY}",
    "$": f"no expansion of variables or `$'…'`: write the value itself; {_LITERALLY}",
    "\\": "no backslash outside single quotes: put the whole word in single quotes instead",
    "\\\n": "no second line: write the command in one line",
    "\n": "one command in one call: no newline outside quotes; run the lines one after the other",
}
_BEHIND_CD = "no change of folder: run the second command alone, with this folder as its `cwd`"
_IN_LOOP = (
    "no loops or conditions: name several files in one command, or run it for each, one call after the other"
)
_LOOPS = frozenset(("for", "while", "until", "if", "case", "select"))
_ENDS_A_COMMAND = frozenset((";", "\n", "&&", "||", "|"))
_IN_QUOTES = {
    "substitution": "no command substitution, inside double quotes neither: write the text itself (quotes may hold several "
    "lines; git commit takes a second -m), or run the inner command first and use its output; "
    "only if this very sign is meant, use single quotes",
    "variable": "no variables, inside double quotes neither: write the value itself; only if a `$` is meant as text, "
    "put the word in single quotes",
}
_IN_FIND = {
    "\\(": "write '(' in quotes",
    "\\)": "write ')' in quotes",
    "\\!": "write ! without the backslash",
    "\\;": "write ';' in quotes if this policy lets find have -exec; if not, print the names and run the program on them",
}
_EXPANDED = r"(\$\(|`)|\$[A-Za-z_0-9{?@*#!$]"

_NAMES = {
    "\n": "a newline",
    "\\": "a backslash",
    "\\\n": "a backslash before a newline",
    "`": "a backtick",
}

# Unicode 16: White_Space but blank, tab, newline; Cc beyond ASCII; Cf, Zl, Zp; Default_Ignorable_Code_Point;
# the empty Braille pattern. Listed, not asked from `unicodedata`, whose answer depends on the Python version.
_HIDDEN = (
    "\x80-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u1680\u17b4\u17b5"
    "\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)


@functools.cache
def hidden_characters() -> re.Pattern[str]:
    """Match a character that a reader cannot see, or takes for a blank (UTR 36; CVE-2021-42574).

    The two variation selectors that emoji need are let through behind a symbol, which shows them.
    """
    return re.compile(f"[{_HIDDEN}]|(?<![\u2000-\u2fff\U0001f000-\U0001faff])[\ufe0e\ufe0f]")


def metacharacter(untrusted: str, place: int, *, program: str) -> str:
    """Return the reason for the unquoted metacharacter at `place` of a command that begins with `program`."""
    pair, character = untrusted[place : place + 2], untrusted[place]
    operator = pair if pair in _INSTEAD else character
    instead = _INSTEAD[operator]
    if program in _LOOPS and operator in _ENDS_A_COMMAND:
        instead = _IN_LOOP
    elif program == "cd" and operator in ("&&", ";"):
        instead = _BEHIND_CD
    elif program == "find":
        instead = _IN_FIND.get(pair, instead)
    return f"{_shown(operator)} at column {place + 1}: {instead}"


def anywhere(character: str, column: int) -> str:
    """Return the reason for a metacharacter where the policy refuses them inside quotes too."""
    return f"{_shown(character)} at column {column}: this policy refuses metacharacters inside quotes too"


def in_double_quotes(untrusted: str, place: int) -> str:
    """Return the reason for the character at `place`, live inside double quotes, or taken for it (docs/adr/0005)."""
    character, column = untrusted[place], place + 1
    if character == "\\":
        why = "not accepted in double quotes, where a shell drops some"
        return f"a backslash at column {column}: {why}; put this word in single quotes"
    if expanded := re.compile(_EXPANDED).match(untrusted, place):
        sign, kind = expanded[1] or "$", "substitution" if expanded[1] else "variable"
        return f"{_shown(sign)} at column {column}: {_IN_QUOTES[kind]}"
    return f"{_shown(character)} at column {column}: a shell acts on it inside double quotes too; put this word in single quotes"


def unterminated(quote: str, column: int) -> str:
    """Return the reason for a quote that never ends."""
    return f"the quote {quote} at column {column} never ends; close it, or use the other kind around it"


def control(character: str, column: int) -> str:
    """Return the reason for a control character of ASCII."""
    return f"control character U+{ord(character):04X} at column {column}: not allowed, even in quotes"


def surrogate(column: int) -> str:
    """Return the reason for a lone surrogate."""
    return f"a lone surrogate at column {column}: the command is not valid Unicode text"


def hidden(character: str, column: int) -> str:
    """Return the reason for an invisible character."""
    return (
        f"U+{ord(character):04X} at column {column}: an invisible, direction or blank-like character; "
        "what is read must be what runs: leave it out or use a plain blank"
    )


def globs_off(column: int) -> str:
    """Return the reason for a live glob under a policy that turns them off."""
    return f"the word at column {column} holds `*`, `?` or `[…]`: this policy expands no globs; {_LITERALLY}"


def assignment(column: int) -> str:
    """Return the reason for a leading assignment."""
    return (
        f"NAME=value at column {column}: environment variables cannot be set; begin with the program's name"
    )


def tilde(column: int) -> str:
    """Return the reason for an unquoted tilde that a shell expands."""
    return f"`~` at column {column}: not expanded; name a path inside the jail; {_LITERALLY}"


def comment(column: int) -> str:
    """Return the reason for a comment."""
    return f"`#` at column {column}: no comments; leave the rest of the line out; {_LITERALLY}"


def brace(column: int) -> str:
    """Return the reason for a brace expansion."""
    return (
        f"`{{…}}` in the word at column {column}: braces are not expanded; write the words out; {_LITERALLY}"
    )


def openers(column: int, most: int) -> str:
    """Return the reason for a word with too many braces or brackets to follow."""
    return f"the word at column {column} has more than {most} unquoted `{{` or `[`; {_LITERALLY}"


def negation(column: int) -> str:
    """Return the reason for a lone exclamation mark."""
    return f"`!` at column {column}: a shell's negation is not available; {_LITERALLY}"


def parenthesis(character: str, column: int, *, in_find: bool) -> str:
    """Return the reason for an unquoted parenthesis."""
    instead = "let `(` and `)` stand as words by themselves" if in_find else _LITERALLY
    return f"`{character}` in the word at column {column}: no subshells, functions or groups; {instead}"


def _shown(operator: str) -> str:
    return _NAMES.get(operator, f"`{operator}`")
