"""Names, flags, codes, statuses and variables that the documents mention are those of the code."""

import ast
import functools
import json
import re
import shlex
import shutil
import subprocess

import pytest

from broker import arguments, completion_command, landlock, main, policy_profiles, service
from broker.audit_command import _parser as audit_parser
from broker.init_command import _parser as init_parser
from frontend import command_line
from protocol.messages import ResultCode
from tests.support.command import COMMAND
from tests.support.documents import (
    DOCUMENTS,
    README,
    SOURCES,
    VARIABLE,
    VARIABLES_IN_CODE,
    blocks,
    rows,
    section,
)

TEXTS = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
CALLED = re.compile(
    r"hardened-terminal-mcp ((?:audit )?[a-z]+)\b((?: +(?:-{1,2}[\w-]+(?:=\S+)?|[A-Z./~][\w./~-]*|[a-z]+)\b)*)"
)
BACKTICKED = re.compile(r"`([^`]+)`")
COMMANDS = {"serve", "run", "explain", *main.OPERATOR_COMMANDS}
AUDIT = ("verify", "show", "stats", "report", "repair")


@functools.cache
def help_of(*words: str) -> str:
    """Return the help of a command of `hardened-terminal-mcp`."""
    ended = subprocess.run([COMMAND, *words, "--help"], capture_output=True, timeout=30, check=True)
    return ended.stdout.decode()


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


def test_every_command_and_flag_that_a_document_shows_exists() -> None:
    tried = 0
    for name, text in TEXTS.items():
        for called, rest in CALLED.findall(text):
            words = called.split()
            if words[0] not in COMMANDS:
                continue  # prose: "hardened-terminal-mcp and"
            tried += 1
            assert words[0] != "audit" or len(words) == 1 or words[1] in AUDIT, (name, called)
            unknown = flags_in(rest) - flags_in(help_of(*words)) - {"--help"}
            assert not unknown, f"{name}: {called}{rest}"
    assert tried > 20


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_examples(name: str) -> None:
    text = help_of(name)
    assert "usage: hardened-terminal-mcp" in text
    assert "hardened-terminal-mcp " + name in text.partition("examples:")[2] or name == "serve"
    assert "exit status" in text


def test_the_examples_of_every_help_use_only_flags_that_exist() -> None:
    texts = [arguments.EXAMPLES, *(help_of(name) for name in COMMANDS)]
    for called, rest in (found for text in texts for found in CALLED.findall(text)):
        assert not flags_in(rest) - flags_in(help_of(*called.split())) - {"--help"}, called


def test_completions_are_the_commands_and_their_flags() -> None:
    assert set(completion_command.WORDS) == COMMANDS | {f"audit {name}" for name in AUDIT}
    for name, words in completion_command.WORDS.items():
        if name == "audit":
            assert set(words.split()) == {*AUDIT, "--help"}
            continue
        offered = help_of(*name.split()).split("examples:")[0]
        assert flags_in(words) == {flag for flag in flags_in(offered) if flag.startswith("--")} | {
            "--help"
        }, name


def test_the_completions_work_in_bash() -> None:
    script = subprocess.run(
        [COMMAND, "completion", "bash"], capture_output=True, timeout=30, check=True
    ).stdout.decode()
    for words, expected in (
        (["dr"], ""),
        (["do"], "doctor"),
        (["run", "--j"], "--json"),
        (["audit", "ver"], "verify"),
        (["audit", "verify", "--h"], "--head --help"),
        (["init", "--profile", "py"], "python"),
        (["init", "--profile", "=", "py"], "python"),
        (["init", "--profile", "make", "--client", ""], "claude cursor vscode"),
        (["init", "--client", "="], "claude cursor vscode"),
        (["audit", "show", "--code", "T"], "TIMEOUT"),
        (["audit", "stats", "--event", "ro"], "rotated"),
        (["audit", "report", "--tool", ""], "run explain"),
        (["run", "--cwd", ""], "--cwd --json --help"),
        (["completion", "z"], "zsh"),
    ):
        line = f"COMP_WORDS=(hardened-terminal-mcp {shlex.join(words)}); COMP_CWORD={len(words)}"
        asked = f'{script}\n{line}; _hardened_terminal_mcp; echo "${{COMPREPLY[*]}}"'
        ended = subprocess.run(["bash", "-c", asked], capture_output=True, timeout=30, check=True)
        assert ended.stdout.decode().strip() == expected
        assert ended.stderr == b""


def test_the_values_that_are_completed_are_those_that_the_options_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for place, values in completion_command.VALUES.items():
        name, option = place.split()
        parser, words = (audit_parser(), ["show", option]) if name == "audit" else (init_parser(), [option])
        for value in values:
            assert value in str(parser.parse_args([*words, value])), place
        with pytest.raises(SystemExit):
            parser.parse_args([*words, "nonsense"])
        assert all(value in capsys.readouterr().err for value in values[:1]), place


def test_the_completions_work_in_zsh() -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    before = 'compdef() { }; _files() { }; compadd() { print -r -- "$@" }'
    for words, expected in (
        (["init", "--profile", "py"], "-- git-write go make node python rust"),
        (["audit", "show", "--tool", ""], "-- run explain"),
        (["audit", "verify", "--h"], "-- --log --head --json --help"),
        (["audit", "ver"], "-- verify show stats report repair --help"),
    ):
        line = f"words=(hardened-terminal-mcp {shlex.join(words)}); CURRENT={len(words) + 1}"
        asked = f"{before}; source <({COMMAND} completion zsh); {line}; _hardened_terminal_mcp"
        ended = subprocess.run(["zsh", "-f", "-c", asked], capture_output=True, timeout=30, check=True)
        assert ended.stdout.decode().strip() == expected
        assert ended.stderr == b""


def test_the_completions_work_in_fish() -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    for words, expected in (
        ("do", {"doctor"}),
        ("init --profile py", {"python"}),
        ("audit show --code T", {"TIMEOUT"}),
        ("audit ver", {"verify"}),
    ):
        asked = f"{COMMAND} completion fish | source; complete -C 'hardened-terminal-mcp {words}'"
        ended = subprocess.run(
            ["fish", "--no-config", "-c", asked], capture_output=True, timeout=30, check=True
        )
        assert {line.split()[0] for line in ended.stdout.decode().splitlines()} == expected, words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_completions_are_scripts_of_their_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = subprocess.run(
        [COMMAND, "completion", shell], capture_output=True, timeout=30, check=True
    ).stdout
    assert subprocess.run([shell, "-n"], input=script, timeout=30, check=False).returncode == 0


def test_the_variables_of_the_documents_are_those_of_the_code() -> None:
    in_documents = {variable for text in TEXTS.values() for variable in VARIABLE.findall(text)}
    assert in_documents == VARIABLES_IN_CODE
    in_settings = {cells[0].strip("`") for cells in rows(section(README, "Settings"))[1:]}
    assert in_settings == VARIABLES_IN_CODE - {"HTMCP_BROKER_FD"}


def test_the_readme_explains_every_result_code_and_no_other() -> None:
    explained = [cells[0].strip("`") for cells in rows(section(README, "Tool reference")) if len(cells) == 2]
    assert set(explained[1:]) == {code.value for code in ResultCode}


def test_the_readme_has_a_row_of_trouble_for_every_code_that_is_no_success() -> None:
    trouble = section(README, "Troubleshooting")
    assert not {code.value for code in ResultCode if f"| `{code.value}`" not in trouble} - {"OK"}


def test_every_message_in_the_table_of_troubles_is_one_that_can_be_seen() -> None:
    for cells in rows(section(README, "Troubleshooting"))[1:]:
        for quoted in BACKTICKED.findall(cells[0]):
            assert quoted in SOURCES, quoted


def _messages_of_start_errors() -> list[str]:
    found = []
    for node in ast.walk(ast.parse(SOURCES)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "StartupError" and node.args:
            constants = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            found.append(" ".join(str(part) for part in constants))
    return found


NO_ROW_OF_ITS_OWN = (
    "containment.run_as",
    "HOME is not set",
    "look at `ulimit -a`",
    "--fd",
    "--stdio",
    "--force writes it anew",
    "'closed' or 'open' is expected",
    "are supported",
    "no place for temporary folders outside the jail",
    "profile",
    "an absolute path was expected",
    "redaction.extra_patterns",
    "commands need an empty HOME",
    ": cannot be read: ",
    "approvals ",
)
"""Parts of start-up messages that name their own remedy, so that no row of the table repeats it."""


def test_every_family_of_start_errors_is_in_the_table_of_troubles_or_says_itself_what_to_do() -> None:
    table = section(README, "Troubleshooting")
    phrases = [quoted for cells in rows(table)[1:] for quoted in BACKTICKED.findall(cells[0])]
    messages = _messages_of_start_errors()
    assert len(messages) > 40
    for message in messages:
        known = any(phrase in message for phrase in (*phrases, *NO_ROW_OF_ITS_OWN))
        assert known or not message.strip(": "), message


def test_exit_statuses_are_those_of_the_code() -> None:
    paragraph = section(README, "Tool reference").rpartition("Exit status of")[2]
    in_code = {
        command_line.EXIT_TIMEOUT,
        command_line.EXIT_OURS,
        command_line.EXIT_REFUSED,
        main.EXIT_INTERRUPTED,
        main.EXIT_CONFIGURATION,
        main.EXIT_INTERNAL,
        main.EXIT_OUTPUT,
        service.EXIT_VIOLATION,
        128,
        2,
    }
    for text in (paragraph, arguments.EXIT_STATUSES):
        assert {int(number) for number in re.findall(r"\b\d+\b", text)} == in_code


def test_every_profile_is_named_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in policy_profiles.profile_names())


def test_the_audit_commands_are_those_that_documents_name() -> None:
    assert all(f"{name}" in audit_parser().format_help() for name in AUDIT)


def test_no_document_names_a_host_of_a_package_registry() -> None:
    pieces = (
        "py,pi[.]org",
        "python,hosted",
        "npm,js",
        "crates,[.]io",
        "docker,[.]io",
        "ghcr,[.]io",
        "proxy,[.]golang",
    )
    hosts = re.compile("|".join(pieces).replace(",", ""))  # in pieces, so that this file names none
    assert not [name for name, text in TEXTS.items() if hosts.search(text)]


def test_what_the_documents_say_of_kernels_is_what_the_code_needs() -> None:
    for text in (TEXTS["README.md"], TEXTS["containment.md"]):
        assert re.search(
            rf"Linux 6\.12\b[^\n]*\b{landlock.SCOPED_ABI}\b|ABI {landlock.SCOPED_ABI} \(Linux 6\.12\)", text
        )


def test_every_piece_of_json_in_a_document_can_be_pasted() -> None:
    pieces = [block for path in DOCUMENTS for block in blocks(path, "json") if path.name != "protocol.md"]
    assert pieces
    for block in pieces:
        servers = json.loads(block.text)["mcpServers"]
        for server in servers.values():
            assert server.keys() == {"command", "args", "env"}
            assert server["env"].keys() <= VARIABLES_IN_CODE
            assert server["env"].get("HTMCP_BROKER", "--stdio").endswith("--stdio")


def test_the_flags_of_the_broker_command_that_documents_show_exist() -> None:
    offered = flags_in(arguments.broker_parser().format_help())
    for name, text in TEXTS.items():
        for rest in re.findall(r"hardened-terminal-broker((?: --[\w-]+)+)", text):
            assert flags_in(rest) <= offered, name
