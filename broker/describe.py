"""The policy as text for a language model: what may be called, with which arguments, within which limits.

Always true: shorter than `DESCRIPTION_BYTES`, whatever the policy; what does not fit is left out and said to be. It names
no path outside the jail, no fixed variable and no test.
"""

from typing import TYPE_CHECKING

from broker.reasons import shortened

if TYPE_CHECKING:
    from broker.policy import Policy
    from broker.rules import Entry

DESCRIPTION_BYTES = 8 * 1024
_WIDTHS = (600, 300, 200, 150, 120, 100, 80, 70, 60, 50, 40, 30, 20, 0)
"""Characters for the options of one program: the widest that fits is taken."""

_ONE_LINE_WIDTH = 30
"""Below this, a program's subcommands share one line."""

_NEVER = (
    "Never available: a shell, pipes, redirection, several commands in one, variables, ~, network and writing unless "
    "noted below, and paths outside the jail. Quoting works as in a POSIX shell; * ? [ ] expand beneath the jail. "
    "Long options are written out in full."
)


def describe(policy: "Policy") -> str:
    """Return the policy in force as text of less than `DESCRIPTION_BYTES` bytes of UTF-8."""
    limits = policy.file.limits
    head = [
        "Policy of this terminal. One call runs one program, in one folder beneath the jail.",
        _NEVER,
        f"Limits: {limits.timeout_s:g} s, {limits.stdout_bytes} bytes of output, {limits.stderr_bytes} of errors, "
        f"{limits.concurrent} calls at once.",
        "",
        "Programs:",
    ]
    entries = [policy.entry(name) for name in policy.programs]
    for width in _WIDTHS:
        text = "\n".join(head + _lines(entries, width))
        if len(text.encode()) < DESCRIPTION_BYTES:
            return text
    return _names_only("\n".join(head), policy.programs)


def _names_only(head: str, names: tuple[str, ...]) -> str:
    room = DESCRIPTION_BYTES - len(head.encode()) - 64
    names_text = " ".join(names).encode()
    if len(names_text) <= room:
        return f"{head}\n{names_text.decode()}"
    shown = names_text[:room].decode(errors="ignore").rpartition(" ")[0]
    return f"{head}\n{shown} … and {len(names) - len(shown.split())} more"


def _lines(entries: "list[Entry]", width: int, indent: str = "") -> list[str]:
    """Return a line for each entry; those that allow the same share one."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        names.setdefault(_allowed(entry, width), []).append(entry.name.rpartition(" ")[2])
    lines = []
    for allowed, group in names.items():
        lines.append(f"{indent}{', '.join(group)}{allowed}")
        for entry in entries if width >= _ONE_LINE_WIDTH else ():
            if entry.has_subcommands and _allowed(entry, width) == allowed:
                inner = [entry.subcommand(name) for name in entry.subcommand_names]
                lines += _lines(inner, width, f"{indent}  {entry.name.rpartition(' ')[2]} ")
    return lines


def _allowed(entry: "Entry", width: int) -> str:
    notes = "".join(f" [{note}]" for note in _rights(entry))
    if width == 0:
        return notes
    if entry.rule.arguments == "any":
        return f"{notes}: any arguments"
    table = entry.options()
    options = "any options" if table is None else " ".join(table.names()) or "no options"
    if not entry.has_subcommands:
        return f"{notes}: {shortened(options, width)}; {entry.operands_in_short()}"
    then = (
        "; then a subcommand" if width >= _ONE_LINE_WIDTH else "; then " + ", ".join(entry.subcommand_names)
    )
    return f"{notes}: {shortened(options, width)}{then}"


def _rights(entry: "Entry") -> list[str]:
    rule = entry.rule
    rights = (("writes", rule.writes), ("network", rule.network), ("temporary folder", rule.temporary))
    return [name for name, granted in rights if granted]
