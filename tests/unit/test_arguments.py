"""A command line that cannot be read is answered with what was meant."""

import pytest

from broker import arguments
from broker.main import OPERATOR_COMMANDS

OTHERS = {name: text for name, (_, text) in OPERATOR_COMMANDS.items()}
USAGE = 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "ls", "-l"], 'the command is one word, in quotes: run "ls -l"'),
        (["run", "--json", "git", "log", "--oneline", "-5"], 'in quotes: run "git log --oneline -5"'),
        (["explain", "grep", "a b", "c"], "in quotes: explain \"grep 'a b' c\""),
        (["run", "echo", "$x"], """in quotes: run 'echo '"'"'$x'"'"''"""),
        (
            ["run", "-x", "ls"],
            'run has no option -x; one of the command\'s own stands within its quotes: run "ls -x"',
        ),
        (["run", "--jsno", "ls"], "run has no option --jsno; meant, perhaps: --json"),
        (["explain", "--cwd", "src", "ls"], "explain has no option --cwd; one of the command's own stands"),
        (
            ["run", "--policy", "F", "ls"],
            "run has no option --policy; HTMCP_POLICY_FILE names another policy",
        ),
        (["explain", "--jail=F", "ls"], "explain has no option --jail=F; HTMCP_JAIL_ROOT names another jail"),
        (
            ["serve", "--policy", "F"],
            "unrecognized arguments: --policy F; HTMCP_POLICY_FILE names another policy",
        ),
        (["--json", "run", "ls"], "--json stands behind the name: run --json …"),
        (["ls -l"], "no command 'ls -l'; meant, perhaps: run \"ls -l\""),
        (["chekc"], "no command 'chekc'; meant, perhaps: check"),
        (["xyzzy"], "no command 'xyzzy'; one of serve, run, explain, init,"),
        (["run"], "the following arguments are required: COMMAND"),
    ],
)
def test_what_was_meant_is_said(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments.read(words, OTHERS)
    assert ended.value.code == USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "usage: hardened-terminal-mcp" in told.err
    assert said in told.err.splitlines()[-1]


@pytest.mark.parametrize("words", [["run", "ls", "--json"], ["run", "--json", "--cwd", "src", "ls"]])
def test_what_can_be_read_is_read(words: list[str]) -> None:
    options = arguments.read(words, OTHERS)
    assert (options.name, options.command, options.json) == ("run", "ls", True)
