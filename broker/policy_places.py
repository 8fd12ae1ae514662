"""On which line of policy.toml a key stands: for the faults of a file that was refused, and for nothing else.

Always true: it is asked about a text that is TOML already, so it need not judge, only count. A key that is not in the
text has the line of the nearest table around it that is.
"""

import re

_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|\n|[\[\]{}=.,]|[^\s\[\]{}=.,#"\']+',
    re.DOTALL,
)


class Lines:
    """Key, its names joined by dots, entries of an array of tables counted from 1 → line, counted from 1."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        self._entries: dict[str, int] = {}
        self._table = ""
        self._read(text)

    def of(self, fault: str) -> int:
        """Return the line of what `fault` speaks of: `a.b: …`, or `[a.b]: c: …`; 1 if nothing of it is there."""
        place, _, rest = fault.partition(": ")
        key = f"{place[1:-1]}.{rest.partition(':')[0]}" if place.startswith("[") else place
        while key and key not in self._lines:
            key = key.rpartition(".")[0]
        return self._lines.get(key, 1)

    def _read(self, text: str) -> None:
        """Go through `text` once: of a value only its brackets are looked at, to know where it ends."""
        line, names, brackets, in_value = 1, list[str](), 0, False
        for piece in _PIECE.findall(text):
            if piece == "\n" and not (in_value and brackets):
                self._end_of_line(line, names, brackets, in_value=in_value)
                names, brackets, in_value = [], 0, False
            elif piece in ("[", "{"):
                brackets += 1
            elif piece in ("]", "}") and in_value:
                brackets -= 1
            elif piece == "=" and not in_value:
                self._note(_join(self._table, names), line)
                in_value = True
            elif not in_value and piece not in (".", "]") and piece[0] != "#":
                names.append(piece.strip("\"'"))
            line += piece.count("\n")
        self._end_of_line(line, names, brackets, in_value=in_value)

    def _end_of_line(self, line: int, names: list[str], brackets: int, *, in_value: bool) -> None:
        """Take the header of a table, `[a.b]` or `[[a.b]]`."""
        if in_value or not names:
            return
        key = ""
        for name in names[:-1]:
            key = _join(key, [name])
            self._note(key, line)
            key = f"{key}.{self._entries[key]}" if key in self._entries else key
        key = _join(key, names[-1:])
        if brackets == 2:
            self._note(key, line)
            self._entries[key] = self._entries.get(key, 0) + 1
            key = f"{key}.{self._entries[key]}"
        self._table = key
        self._note(key, line)

    def _note(self, key: str, line: int) -> None:
        self._lines.setdefault(key, line)
        of_profile = re.fullmatch(r"profile\.[^.]+\.(rules\..+)", key)
        if of_profile:  # what is meant by such a name: it stands in the place of the file's own
            self._lines[of_profile[1]] = line


def _join(key: str, names: list[str]) -> str:
    return ".".join([key, *names] if key else names)


def placed(error: str, text: str) -> str:
    """Return an error of tomllib, which ends in `(at line 3, column 5)` or `(at end of document)`, as a fault of its line."""
    said, _, place = error.rpartition(" (at ")
    numbers = re.findall(r"\d+", place)
    line = int(numbers[0]) if numbers else text.rstrip().count("\n") + 1
    if names := re.search(r"\('.*'\)|\('.*',\)", said):  # a tuple of Python's
        table = ".".join(re.findall(r"'([^']*)'", names[0]))
        first = Lines(text).of(f"{table}: ")
        said = said.replace(names[0], f"[{table}]") + (f" (first in line {first})" if first < line else "")
    return f"{line}: no TOML: {said}, " + (f"column {numbers[1]}" if numbers else "at the end")
