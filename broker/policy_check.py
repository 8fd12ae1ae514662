"""What is legal in a policy and still hardly meant: for `check`, never on the way of a call.

Always true: it only warns. Whether an entry is known to run anything that it is given is judged by name and by how much
its rule leaves open; the lists come from GTFOBins and from what gates of this kind have been fooled with.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from broker.options import Option
from broker.policy import Policy
from broker.policy_file import expanded, grants_writes
from broker.rules import Entry
from broker.schema import PolicyFile, Rule


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


RUN_ANYTHING = _names(
    "sh bash dash zsh ksh fish csh tcsh busybox env nohup nice setsid ionice timeout time stdbuf script watch xargs "
    "parallel flock chroot nsenter unshare su sudo doas runuser start-stop-daemon strace ltrace gdb perf valgrind "
    "expect ssh scp sftp rsync socat nc ncat telnet docker podman kubectl systemctl systemd-run crontab at "
    "vi vim nvim nano emacs ed ex less more man lesspipe tmux screen"
)
"""Programs that start another program, a shell, or a command elsewhere by design, whatever their arguments."""

INTERPRETERS = _names(
    "python python2 python3 perl ruby node nodejs deno bun php lua tclsh wish Rscript R julia ghci java jshell "
    "awk gawk mawk nawk sed bc dc m4 psql mysql sqlite3 jq make cmake ninja npm npx yarn pnpm pip pipx uv uvx poetry "
    "cargo go rustc gcc cc g++ c++ clang ld mvn gradle ant bundle gem rake composer"
)
"""Programs whose arguments or project files are programs: only fixed options and operands make them an entry."""

CODE_OPTIONS = {
    "awk gawk mawk nawk": "-e --source",
    "julia R Rscript ruby perl lua": "-e -E",
    "make": "--eval",
    "node nodejs deno bun": "-e -p --eval --print",
    "php": "-r -B -R -E",
    "psql": "-c --command",
    "python python2 python3": "-c",
    "sed": "-e --expression",
    "sqlite3": "-cmd",
}
"""Programs → those of their options whose value is a program."""
CODE_OPERANDS = _names("awk gawk mawk nawk sed")
"""Programs whose first operand is a program."""

OPTIONS_RUN = _names(
    "find fd git hg svn rg sort tar zip unzip cpio split csplit diff tree date file uniq xxd tee dd cp mv install ln "
    "openssl curl wget tcpdump pytest mypy ruff tsc eslint view dmesg journalctl column"
)
"""Programs some of whose options or operands start a program, write a file or set the system: they need a rule."""


_STARTS = "it says which command your client starts, unconfined; keep that in your client's own settings"
UNCONFINED = {
    ".mcp.json": _STARTS,
    ".cursor/mcp.json": _STARTS,
    ".vscode/mcp.json": _STARTS,
    ".git/hooks": "your own git runs what lies there, unconfined",
}
"""Places in a project from which programs are started outside of every jail, and what to know of them."""


class Warned(NamedTuple):
    """One warning: the place in the file, and what is odd about it."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def check(policy: Policy) -> list[Warned]:
    """Return what is odd about `policy`, in the order of the file. Looks programs up, starts none."""
    found = [
        *_lists(policy),
        *_unused_sets(policy),
        *weakened(policy.file),
        *_places(policy.file),
        *exposed(policy.file, policy.jail.real),
        *_unusable(policy),
    ]
    missing: dict[str, list[str]] = {}
    for name in policy.programs:
        entry = policy.entry(name)
        found += [*_openness(entry), *_code(entry), *_rule(entry), *_may_run(policy, entry, missing)]
    return found + [_in_vain(names, places) for names, places in missing.items()]


def weakened(file: PolicyFile) -> list[Warned]:
    """Return a warning of each guard that the policy turns off."""
    told = (
        (file.containment.mode == "off", "[containment] mode", "nothing confines a command but its rules"),
        (
            file.containment.mode == "best-effort",
            "[containment] mode",
            "a server starts without the layers that a kernel lacks; `doctor` shows which",
        ),
        (not file.redaction.enabled, "[redaction] enabled", "secrets in output and trail are not replaced"),
        (
            file.audit.fail_mode == "open",
            "[audit] fail_mode",
            "commands run also where no record can be written",
        ),
        (
            file.output.control_sequences == "keep",
            "[output] control_sequences",
            "output may steer the terminal of whoever reads it",
        ),
    )
    return [Warned(place, text) for holds, place, text in told if holds]


def exposed(file: PolicyFile, jail: str) -> list[Warned]:
    """Return a warning of each file in the jail that starts programs outside it, and that some entry may write."""
    if not grants_writes(file):
        return []
    found = [(name, why) for name, why in UNCONFINED.items() if os.path.lexists(os.path.join(jail, name))]
    return [Warned("[jail]", f"entries with `writes` may change {name}: {why}") for name, why in found]


def _lists(policy: Policy) -> Iterator[Warned]:
    denied = {os.path.basename(name) for name in policy.file.commands.deny}
    if not policy.programs:
        yield Warned("[commands]", "allows no program, so every command is refused")
    for name in policy.file.commands.allow:
        if os.path.basename(name) in denied:
            yield Warned("[commands]", f"{name} is on both lists: it is denied")
    for name in policy.file.rules:
        if os.path.basename(name) in denied:
            yield Warned(f"[rules.{name}]", "never holds: the program is denied")


def _unused_sets(policy: Policy) -> Iterator[Warned]:
    specs = list(_all_options(policy))
    for name in policy.file.options:
        if f"@{name}" not in specs:
            yield Warned(f"[options] {name}", "is used by no rule")


def _all_options(policy: Policy) -> Iterator[str]:
    for specs in policy.file.options.values():
        yield from specs
    rules = list(policy.file.rules.values())
    while rules:
        rule = rules.pop()
        yield from rule.allow_options or ()
        rules += rule.subcommand.values()


def _unusable(policy: Policy) -> Iterator[Warned]:
    """Yield the programs that cannot be started, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for name in policy.programs:
        if problem := policy.lookup.problem(name):
            reasons.setdefault(problem, []).append(name)
    for problem, names in reasons.items():
        is_are = len(names) > 1 and problem.startswith("is ")
        yield Warned("[commands] allow", f"{', '.join(names)}: {'are' + problem[2:] if is_are else problem}")


def _places(file: PolicyFile) -> Iterator[Warned]:
    for place, path in (("[audit] log", file.audit.log), ("[jail] root", file.jail.root)):
        if path and not path.startswith("/"):
            yield Warned(
                place, f"{path} depends on the folder that a server is started in; an absolute path does not"
            )
    for folder in file.environment.path:
        if not os.path.isdir(folder):
            yield Warned("[environment] path", f"{folder} is no folder on this machine")


def _may_run(policy: Policy, entry: Entry, missing: dict[str, list[str]]) -> Iterator[Warned]:
    """Yield what a rule, or one of its subcommands, names although it is denied; add to `missing` what is not there.

    A path beside a name is another place of the same: only where none of them is there, nothing starts.
    """
    denied = {os.path.basename(name) for name in policy.file.commands.deny}
    names = [name for name in entry.rule.may_run if "*" not in name]
    for name in names:
        if os.path.basename(name) in denied:
            yield Warned(entry.place, f"may_run: {name} is denied, so nothing starts it")
    there = {os.path.basename(name) for name in names if policy.lookup.problem(name) is None}
    absent = [name for name in names if not {os.path.basename(name)} & (denied | there)]
    if absent:
        missing.setdefault(" ".join(absent), []).append(entry.place)
    for name in entry.subcommand_names:
        yield from _may_run(policy, entry.subcommand(name), missing)


def _in_vain(names: str, places: list[str]) -> Warned:
    others = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return Warned(
        f"{places[0]}{others}", f"may_run: what is not installed, or unfit, starts nothing: {names}"
    )


def _code(entry: Entry) -> Iterator[Warned]:
    """Yield the options and operands by which an interpreter takes a program from the command line, whatever it does."""
    program = os.path.basename(entry.name)
    codes = {
        code for names, codes in CODE_OPTIONS.items() if program in names.split() for code in codes.split()
    }
    yield from _code_in(entry, program, codes)


def _code_in(entry: Entry, program: str, codes: set[str]) -> Iterator[Warned]:
    table, operands = entry.options(), entry.rule.operands
    if table is not None:
        free = [name for name, option in table.options.items() if _takes_any_text(option)]
        yield from (Warned(entry.place, _RUNS.format(program, name)) for name in free if name in codes)
        if program in CODE_OPERANDS and operands and operands[0] == "text":
            yield Warned(entry.place, _RUNS.format(program, "the first operand"))
    for name in entry.subcommand_names:
        yield from _code_in(entry.subcommand(name), program, codes)


_RUNS = "{0} runs whatever it is given: {1} takes a program; only the rights of this entry confine it"


def _takes_any_text(option: Option) -> bool:
    return any(kind.text == "text" for kind in option.kinds)


def _openness(entry: Entry) -> Iterator[Warned]:
    name, rule = os.path.basename(entry.name), entry.rule
    open_arguments = entry.options() is None
    if name in RUN_ANYTHING and not (entry.options() and rule.operands == ("none",)):
        yield Warned(
            entry.place,
            f"{name} runs any program that it is given; only its profile in the kernel confines it",
        )
    elif name in INTERPRETERS and open_arguments:
        yield Warned(
            entry.place,
            f"{name} runs programs from its arguments; list the options and operands that it may have",
        )
    elif name in OPTIONS_RUN and open_arguments:
        yield Warned(
            entry.place, f"some options of {name} write files or start programs; list those that it may have"
        )
    elif rule == Rule():
        yield Warned(entry.place, f"{name} has no rule: every option passes; list those that it may have")
    if rule.arguments == "any" and (rule.writes or rule.network or rule.may_run or rule.may_run_own):
        yield Warned(entry.place, 'arguments = "any" together with rights to write, run or use the network')
    for name in expanded(rule.may_run):
        if os.path.basename(name) in RUN_ANYTHING and rule.network:
            yield Warned(entry.place, f"may run {name} with the network open")


def _rule(entry: Entry) -> Iterator[Warned]:
    """Yield what can never match in one rule and in those of its subcommands."""
    rule, table = entry.rule, entry.options()
    for key, kinds in (("operands", rule.operands or ()), *rule.operands_with.items()):
        if "none" in kinds[:-1]:
            yield Warned(entry.place, f"{key}: what stands behind 'none' never matches")
    known = table.options if table is not None else {}
    for name in rule.instead:
        if name in known:
            yield Warned(entry.place, f"instead: {name} is allowed, so its advice is never given")
    for name in rule.deny_options:
        if table is not None and name not in known:
            yield Warned(
                entry.place, f"deny_options: {name} is not in allow_options, so it is refused anyway"
            )
    for name in entry.subcommand_names:
        yield from _rule(entry.subcommand(name))
