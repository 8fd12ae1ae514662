"""`hardened-terminal-mcp completion SHELL`: a small script that completes commands, options and their values.

Always true: the words are a table, and a test holds it against what the commands accept; the script starts nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.arguments import operator_parser
from broker.audit_selection import CODES, EVENTS, TOOLS
from broker.init_command import CLIENTS
from broker.policy_profiles import profile_names

_SELECTION: Final = "--log --since --until --code --event --program --jail --session --tool --text --help"

WORDS: Final = {
    "serve": "--help",
    "run": "--cwd --json --help",
    "explain": "--json --help",
    "init": "--profile --output --force --client --help",
    "trust": "--help",
    "check": "--json --describe --help",
    "doctor": "--json --help",
    "redact": "--policy --explain --list --help",
    "audit": "verify show stats report repair --help",
    "audit verify": "--log --head --json --help",
    "audit show": f"--number --json --follow {_SELECTION}",
    "audit stats": f"--json {_SELECTION}",
    "audit report": f"--html --rows --json {_SELECTION}",
    "audit repair": "--log --json --help",
    "completion": "bash zsh fish --help",
}
"""Command → what may follow it; file names always may."""

VALUES: Final = {
    "init --profile": tuple(profile_names()),
    "init --client": tuple(CLIENTS),
    "audit --code": CODES,
    "audit --event": EVENTS,
    "audit --tool": TOOLS,
}
"""Command and option → the values that it may have. Other options have a file or a text."""

NAME: Final = "hardened-terminal-mcp"
FUNCTION: Final = "_hardened_terminal_mcp"


def main(arguments: list[str]) -> int:
    """Print the script. Returns the exit status."""
    parser = operator_parser(
        "completion",
        "Print completions for a shell.",
        (
            f"{NAME} completion bash > ~/.local/share/bash-completion/completions/{NAME}",
            f"{NAME} completion zsh > ~/.zfunc/{FUNCTION}     # with ~/.zfunc in fpath",
            f"{NAME} completion fish > ~/.config/fish/completions/{NAME}.fish",
        ),
        "0 printed, 2 wrong usage",
    )
    parser.add_argument("shell", choices=SCRIPTS)
    print(SCRIPTS[parser.parse_args(arguments).shell](), end="")
    return 0


def _top() -> str:
    return " ".join([*(name for name in WORDS if " " not in name), "--help", "--version"])


def _cases(table: Mapping[str, Iterable[str]], line: str) -> str:
    """Return the branches of a shell's `case`: `line` with the words of each name of `table`."""
    return "\n".join(f'        "{name}") {line.format(" ".join(words))} ;;' for name, words in table.items())


def _bash() -> str:
    return f"""{FUNCTION}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" name="${{COMP_WORDS[1]}}" words=""
    [ "$current" = "=" ] && current=""
    [ "$before" = "=" ] && before="${{COMP_WORDS[COMP_CWORD-2]}}"
    case "$name $before" in
{_cases(VALUES, 'words="{}"')}
        *)
            [ "$name" = audit ] && [ "$COMP_CWORD" -gt 2 ] && name="audit ${{COMP_WORDS[2]}}"
            [ "$COMP_CWORD" -eq 1 ] && name=""
            case "$name" in
        "") words="{_top()}" ;;
{_cases(_split(WORDS), 'words="{}"')}
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F {FUNCTION} {NAME}
"""


def _split(words: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: text.split() for name, text in words.items()}


def _zsh() -> str:
    return f"""#compdef {NAME}
{FUNCTION}() {{
    if (( CURRENT == 2 )); then
        compadd -- {_top()}
        return
    fi
    local name="$words[2]"
    case "$name $words[CURRENT-1]" in
{_cases(VALUES, "compadd -- {}; return")}
    esac
    [ "$name" = audit ] && (( CURRENT > 3 )) && name="audit $words[3]"
    case "$name" in
{_cases(_split(WORDS), "compadd -- {}")}
    esac
    _files
}}
if [ "$funcstack[1]" = "{FUNCTION}" ]; then
    {FUNCTION} "$@"
else
    compdef {FUNCTION} {NAME}
fi
"""


def _fish() -> str:
    lines = [f"complete -c {NAME} -n __fish_use_subcommand -f -a '{_top()}'"]
    for name, words in WORDS.items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        lines.append(f"complete -c {NAME} -n '{seen}' -a '{words}'")
    for place, values in VALUES.items():
        name, option = place.split(" --")
        seen = f"__fish_seen_subcommand_from {name}"
        lines.append(f"complete -c {NAME} -n '{seen}' -l {option} -x -a '{' '.join(values)}'")
    return "\n".join(lines) + "\n"


SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shell → its script."""
