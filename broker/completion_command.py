"""`hardened-terminal-mcp completion SHELL`: a small script that completes commands and options.

Always true: the words are a table, and a test holds it against what the commands accept; the script starts nothing.
"""

import argparse
from typing import Final

WORDS: Final = {
    "serve": "--help",
    "run": "--cwd --json --help",
    "explain": "--json --help",
    "init": "--profile --output --force --client --help",
    "trust": "--help",
    "check": "--json --help",
    "doctor": "--json --help",
    "redact": "--policy --explain --list --help",
    "audit": "verify show stats report repair --help",
    "completion": "bash zsh fish --help",
}
"""Command → what may follow it; file names always may."""

NAME: Final = "hardened-terminal-mcp"
FUNCTION: Final = "_hardened_terminal_mcp"


def main(arguments: list[str]) -> int:
    """Print the script. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"{NAME} completion",
        description="Print completions for a shell.",
        epilog="examples:\n"
        f"  {NAME} completion bash > ~/.local/share/bash-completion/completions/{NAME}\n"
        f"  {NAME} completion zsh > ~/.zfunc/{FUNCTION}     # with ~/.zfunc in fpath\n"
        f"  {NAME} completion fish > ~/.config/fish/completions/{NAME}.fish\n\n"
        "exit status: 0 printed, 2 wrong usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SCRIPTS)
    print(SCRIPTS[parser.parse_args(arguments).shell](), end="")
    return 0


def _bash() -> str:
    cases = "\n".join(f'        {name}) words="{words}" ;;' for name, words in WORDS.items())
    return f"""{FUNCTION}() {{
    local words="{" ".join(WORDS)} --help --version"
    [ "$COMP_CWORD" -gt 1 ] && case "${{COMP_WORDS[1]}}" in
{cases}
        *) words="" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F {FUNCTION} {NAME}
"""


def _zsh() -> str:
    cases = "\n".join(f"        {name}) compadd -- {words} ;;" for name, words in WORDS.items())
    return f"""#compdef {NAME}
{FUNCTION}() {{
    if (( CURRENT == 2 )); then
        compadd -- {" ".join(WORDS)} --help --version
        return
    fi
    case "$words[2]" in
{cases}
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
    top = f"complete -c {NAME} -n __fish_use_subcommand -f -a '{' '.join(WORDS)} --help --version'\n"
    return top + "".join(
        f"complete -c {NAME} -n '__fish_seen_subcommand_from {name}' -a '{words}'\n"
        for name, words in WORDS.items()
    )


SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shell → its script."""
