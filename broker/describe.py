"""The policy as text for a language model: what may be called, with which arguments, within which limits.

Always true: shorter than `DESCRIPTION_BYTES`, whatever the policy; what does not fit is left out and said to be. It names
no path outside the jail, no fixed variable and no test.
"""

from typing import TYPE_CHECKING

from broker.reasons import shortened

if TYPE_CHECKING:
    from broker.options import Option, OptionTable
    from broker.policy import Policy
    from broker.rules import Entry

DESCRIPTION_BYTES = 8 * 1024
_WIDEST = 600
"""The most characters for the options of one program; as many are taken as fit for all."""

_MISSING = 200
"""The most characters for the names of programs that are not there."""

_NARROWEST = 20
"""Below this, a program's subcommands share its line."""

_NEVER = (
    "Never available: a shell, pipes, redirection, several commands in one, variables, ~, network and writing unless "
    "noted below, and paths outside the jail. Quoting works as in a POSIX shell; * ? [ ] expand beneath the jail. "
    "Long options are written out in full."
)

_SHORTENED = (
    "This is shortened: of an option's names the letter stands for all, letters together behind one - are flags, … stands "
    "for more than fits, and operands are paths beneath the jail unless noted. explain_command knows the rest: it says "
    "exactly whether a command is allowed, and what would be instead."
)

_USUAL_OPERANDS = ("operands: path …", "operands: any, paths beneath the jail")
_LAST = ("--help", "--version")


def describe(policy: "Policy") -> str:
    """Return the policy in force as text of less than `DESCRIPTION_BYTES` bytes of UTF-8."""
    limits = policy.file.limits
    head = [
        "Policy of this terminal. One call runs one program, in one folder beneath the jail.",
        _NEVER,
        _SHORTENED,
        f"Limits: {limits.timeout_s:g} s, {limits.stdout_bytes} bytes of output, {limits.stderr_bytes} of errors, "
        f"{limits.concurrent} calls at once.",
        *_missing(policy),
        "",
        "Programs:",
    ]
    rows = [_Row(policy.entry(name)) for name in policy.programs]
    for narrowest, fold in ((_NARROWEST, False), (0, True)):
        if text := _widest_that_fits(head, rows, narrowest, fold=fold):
            return text
    return _names_only("\n".join(head), policy.programs)


def _missing(policy: "Policy") -> list[str]:
    there = set(policy.callable)
    missing = ", ".join(name for name in policy.programs if name not in there)
    return [f"Allowed, but not installed here: {shortened(missing, _MISSING)}."] if missing else []


def _widest_that_fits(head: list[str], rows: "list[_Row]", low: int, *, fold: bool) -> str:
    """Return the text with as many characters of options for each program as fit, "" if `low` are too many."""
    fitting, high = "", _WIDEST + 1
    while low < high:
        width = (low + high) // 2
        text = "\n".join(head + _lines(rows, width, fold=fold))
        if len(text.encode()) < DESCRIPTION_BYTES:
            fitting, low = text, width + 1
        else:
            high = width
    return fitting


def _names_only(head: str, names: tuple[str, ...]) -> str:
    room = DESCRIPTION_BYTES - len(head.encode()) - 64
    names_text = " ".join(names).encode()
    if len(names_text) <= room:
        return f"{head}\n{names_text.decode()}"
    shown = names_text[:room].decode(errors="ignore").rpartition(" ")[0]
    return f"{head}\n{shown} … and {len(names) - len(shown.split())} more"


class _Row:
    """What there is to say of one entry, found out once for all widths."""

    def __init__(self, entry: "Entry") -> None:
        self.name = entry.name.rpartition(" ")[2]
        self.notes = "".join(f" [{note}]" for note in _rights(entry))
        self.any = entry.rule.arguments == "any"
        table = entry.options()
        self.options = "any options" if table is None else " ".join(_in_short(table)) or "no options"
        self.operands = "" if entry.has_subcommands else _operands(entry)
        self.inner = [_Row(entry.subcommand(name)) for name in entry.subcommand_names]
        self.then = "; then " + ", ".join(entry.subcommand_names) if self.inner else ""

    def allowed(self, width: int, *, fold: bool) -> str:
        """Return what may stand behind the name, the options in at most `width` characters."""
        if width == 0:
            return self.notes
        if self.any:
            return f"{self.notes}: any arguments"
        then = self.then if fold else "; then a subcommand" if self.inner else ""
        return f"{self.notes}: {_cut(self.options, width)}{self.operands}{then}"


def _cut(options: str, width: int) -> str:
    """Return `options`, cut at a word's end, or between the letters that come first."""
    flags = options.partition(" ")[0]
    if len(flags) > width - 2 and len(options) > width:
        return flags[: width - 1] + "…"
    return shortened(options, width)


def _lines(rows: list[_Row], width: int, *, fold: bool) -> list[str]:
    """Return a line for each row; those that allow the same share one. `fold`: subcommands have no lines."""
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.allowed(width, fold=fold), []).append(row)
    lines = []
    for allowed, group in groups.items():
        lines.append(", ".join(row.name for row in group) + allowed)
        inner: dict[tuple[str, ...], list[str]] = {}
        for row in () if fold else group:
            inner.setdefault(tuple(_lines(row.inner, width, fold=fold)), []).append(row.name)
        lines += [f"  {'|'.join(names)} {line}" for each, names in inner.items() for line in each]
    return lines


def _in_short(table: "OptionTable") -> list[str]:
    """Return the options, the shortest name of each, those first that say most in few characters."""
    shortest: dict[int, tuple[str, Option]] = {}
    for name, option in table.options.items():
        known = shortest.get(id(option))
        if known is None or len(name) == 2 < len(known[0]):
            shortest[id(option)] = name, option
    flags, words, longs = "", [], []
    for name, option in shortest.values():
        if len(name) == 2 and not option.kinds and not table.single_dash:
            flags += "" if table.numeric and name[1].isdigit() else name[1]
        elif option.kinds:
            words.append(name)
        else:
            longs.append(name)
    words.sort(key=lambda name: len(name) > 2)
    longs = [_with_negation(name, longs) for name in longs if not _is_negation_of(name, longs)]
    longs.sort(key=_LAST.__contains__)
    first = [word for word, given in (("-" + flags, flags), ("-NUM", table.numeric)) if given]
    return [*first, *words, *longs]


def _operands(entry: "Entry") -> str:
    said = entry.operands_in_short()
    return "" if said in _USUAL_OPERANDS else f"; {said}"


def _with_negation(name: str, names: list[str]) -> str:
    return f"--[no-]{name[2:]}" if f"--no-{name[2:]}" in names else name


def _is_negation_of(name: str, names: list[str]) -> bool:
    return name.startswith("--no-") and f"--{name[5:]}" in names


def _rights(entry: "Entry") -> list[str]:
    rule = entry.rule
    rights = (("writes", rule.writes), ("network", rule.network), ("temporary folder", rule.temporary))
    return [name for name, granted in rights if granted]
