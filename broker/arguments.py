"""The command lines of the two console commands: what may be written, and the help that is shown.

Always true: every command's help ends with examples and its exit statuses. A call that needs no parser does not pay for
one: `main` imports this only for what it does not know at sight.
"""

import argparse
from typing import NoReturn

from broker.cells import folded

EXIT_STATUSES = """exit status of run: the command's own; 124 timeout, 125 another failure of ours, 126 refused,
128+N killed by signal N, 130 interrupted. Of everything: 2 wrong usage, 70 internal error, 74 its output cannot be
written, 76 a frontend broke the protocol, 78 configuration."""

EXAMPLES = f"""examples:
  hardened-terminal-mcp run "git log --oneline -5"   run one command through broker and frontend
  hardened-terminal-mcp explain "rm -rf build"       say whether it would be allowed, and why
  hardened-terminal-mcp init                         write a policy of your own
  hardened-terminal-mcp init --client claude         print what to paste into a client's configuration
  hardened-terminal-mcp doctor                       say whether it can start here, and what to do next
  hardened-terminal-mcp audit show                   the newest calls
  hardened-terminal-mcp                              serve MCP over stdin and stdout, as clients start it

{EXIT_STATUSES}
`hardened-terminal-mcp COMMAND --help` says more."""

SERVE_EXAMPLES = """examples:
  hardened-terminal-mcp serve
  HTMCP_JAIL_ROOT=/srv/project hardened-terminal-mcp
  HTMCP_BROKER="ssh build-host hardened-terminal-broker --stdio" hardened-terminal-mcp

exit status: the frontend's, 0 when the client closed stdin; 76 a frontend broke the protocol; 78 configuration"""

RUN_EXAMPLES = f"""examples:
  hardened-terminal-mcp run "ls -l"
  hardened-terminal-mcp run --cwd src 'grep -rn "def main" .'
  hardened-terminal-mcp run --json "git status --short"

What the command prints is shown when it has ended, not as it comes: until then nothing is seen.

{EXIT_STATUSES}"""

EXPLAIN_EXAMPLES = """examples:
  hardened-terminal-mcp explain "git push"
  hardened-terminal-mcp explain --json "find . -name '*.py'"

exit status: 0 allowed, 126 refused, 125 another failure of ours, 78 configuration"""

BROKER_EXAMPLES = """examples:
  hardened-terminal-broker -- node frontend.js
  ssh build-host hardened-terminal-broker --stdio

exit status: the frontend's with -- PROGRAM, else 0; 76 a frontend broke the protocol, 78 configuration"""


def read(arguments: list[str], others: dict[str, str]) -> argparse.Namespace:
    """Return what the command line says. Ends the process with status 2 if it cannot be read."""
    top = parser(others)
    if arguments and not arguments[0].startswith("-"):
        _check_name(top, arguments[0], ["serve", "run", "explain", *others])
    options, unknown = top.parse_known_args(arguments)
    if unknown and options.name in ("run", "explain"):
        options.parser.error(_meant(options, arguments, unknown))
    if unknown:
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _check_name(top: argparse.ArgumentParser, name: str, known: list[str]) -> None:
    if name in known:
        return
    from broker.nearest import nearest

    near = nearest(name, known)
    meant = near[0] if near else f"run {quoted([name])}" if " " in name else ""
    hint = f"meant, perhaps: {meant}" if meant else f"one of {', '.join(known)} is expected"
    top.error(f"no command {name!r}; {hint}")


def _meant(options: argparse.Namespace, arguments: list[str], unknown: list[str]) -> str:
    """Return what to write instead of a command that is not one word, or of an option that we do not have."""
    name, command, first = options.name, options.command, unknown[0]
    if arguments.index(first) < arguments.index(name):
        return f"{first} stands behind the name: {name} {first} …"
    if arguments.index(first) > arguments.index(command):
        return f"the command is one word, in quotes: {name} {quoted([command, *unknown])}"
    if first.partition("=")[0] in _VARIABLES:
        return f"{name} has no option {first}"
    own = ["--json", "--help", *(["--cwd"] if name == "run" else [])]
    from broker.nearest import nearest

    if near := nearest(first, own):
        return f"{name} has no option {first}; meant, perhaps: {near[0]}"
    own_option = quoted([command, *unknown] if len(unknown) == 1 else ["ls -l"])
    return f"{name} has no option {first}; one of the command's own stands within its quotes: {name} {own_option}"


def quoted(words: list[str]) -> str:
    """Return `words` as one word of a shell, in double quotes where that changes nothing."""
    import shlex

    text = words[0] if len(words) == 1 else f"{words[0]} {shlex.join(words[1:])}"
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


def parser(others: dict[str, str]) -> argparse.ArgumentParser:
    """Return the parser of `hardened-terminal-mcp`. `others`: commands that read their own options, and what they do."""
    top = _new("hardened-terminal-mcp", TOP, EXAMPLES)
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = top.add_subparsers(dest="name", metavar="COMMAND")
    _add(commands, "serve", "serve MCP over stdin and stdout (the default)", SERVE_EXAMPLES)
    run = _add(commands, "run", "run one command and exit with its status", RUN_EXAMPLES)
    run.add_argument("--cwd", metavar="DIR", help="working directory, inside the jail")
    explain_text = "say whether a command is allowed, and why; never runs it"
    for command in (run, _add(commands, "explain", explain_text, EXPLAIN_EXAMPLES)):
        command.set_defaults(parser=command)
        command.add_argument("--json", action="store_true", help="print the whole envelope as JSON")
        command.add_argument("command", metavar="COMMAND", help='the command as one word, such as "ls -l"')
    for name, text in others.items():
        commands.add_parser(name, help=text, add_help=False)
    return top


TOP = "A policy-gated terminal for MCP clients: allow-listed commands, no shell, one jail, redacted and audited."


def operator_parser(
    name: str, description: str, examples: tuple[str, ...], exit_status: str
) -> argparse.ArgumentParser:
    """Return a parser for `hardened-terminal-mcp NAME`, whose help ends with examples and the exit statuses."""
    return _new(f"hardened-terminal-mcp {name}", description, _epilog(examples, exit_status))


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    examples: tuple[str, ...],
    exit_status: str,
) -> argparse.ArgumentParser:
    """Return a parser for one of an operator command's own commands, whose help ends as that of the others does."""
    return _add(commands, name, text, _epilog(examples, exit_status))


def _epilog(examples: tuple[str, ...], exit_status: str) -> str:
    shown = "".join(f"  {example}\n" for example in examples)
    return f"examples:\n{shown}\nexit status: {exit_status}"


class _Help(argparse.HelpFormatter):
    """Paragraphs are folded to the width that there is, examples so that they can still be copied into a shell."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [_filled(block.splitlines(), width) for block in text.split("\n\n")]
        return "\n".join(indent + line if line else "" for line in "\n\n".join(blocks).splitlines())


def _filled(lines: list[str], width: int) -> str:
    if any(line.startswith(" ") for line in lines):
        fit = all(len(line) <= width for line in lines)
        return "\n".join(lines if fit else (shown for line in lines for shown in _example(line, width)))
    return folded(" ".join(lines), width, 0)


def _example(line: str, width: int) -> list[str]:
    """Return an example in its narrow form: what is said of it, and words that are too many, on lines of their own."""
    if not line.startswith(" "):
        return [line]
    import re

    command, _, said = line.strip().partition("   ")
    lines = [""]
    for word in re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", command):
        if lines[-1] and len(lines[-1]) + len(word) + 5 > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else f"  {word}" if len(lines) == 1 else f"      {word}"
    explained = [folded(f"      {said.strip()}", width, 6)] if said else []
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1], *explained]


_VARIABLES = {
    "--policy": "HTMCP_POLICY_FILE names another policy",
    "--jail": "HTMCP_JAIL_ROOT names another jail",
}
"""Options that only some commands have, and the settings in their place."""


class _Parser(argparse.ArgumentParser):
    """Says of an option that there is not which setting there is."""

    def error(self, message: str) -> NoReturn:
        for word in message.split():
            if said := _VARIABLES.get(word.partition("=")[0]):
                super().error(f"{message}; {said}")
        super().error(message)


def _new(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return _Parser(prog=prog, description=description, epilog=epilog, formatter_class=_Help)


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, epilog: str
) -> argparse.ArgumentParser:
    described = f"{text[0].upper()}{text[1:]}."
    return commands.add_parser(name, help=text, description=described, epilog=epilog, formatter_class=_Help)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('hardened-terminal-mcp')}")
        parser.exit()


def broker_parser() -> argparse.ArgumentParser:
    """Return the parser of `hardened-terminal-broker`."""
    text = "The broker alone, for other frontends. The protocol is written up in docs/protocol.md."
    top = _new("hardened-terminal-broker", text, BROKER_EXAMPLES)
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    way = top.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--stdio",
        action="store_true",
        help="serve standard input and output, so that ssh or kubectl exec can carry it",
    )
    way.add_argument("--fd", type=int, metavar="N", help="serve the inherited stream socket N")
    way.add_argument(
        "program",
        nargs="?",
        metavar="-- PROGRAM",
        help="start PROGRAM as a confined frontend; HTMCP_BROKER_FD names its socket",
    )
    top.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help=argparse.SUPPRESS)
    return top
