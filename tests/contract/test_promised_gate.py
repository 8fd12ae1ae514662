"""The contract's first promises: what is let through, what is not, and where a command runs. Docstrings quote it."""

from collections.abc import Iterator

import pytest

from tests.support.command import run_cli
from tests.support.place import CANARY_NAME, POLICY, Place
from tests.support.sdk_client import SdkClient

METACHARACTERS = {
    ";": ";",
    "|": "|",
    "&": "&",
    "<": "<",
    ">": ">",
    "$": "$",
    "\\": "backslash",
    "`": "backtick",
}
"""Each with how a reason names it."""

PLACEMENTS = (
    "unlisted-program one{}two",
    "unlisted-program one {} two",
    "unlisted-program{}",
    "{}unlisted-program",
)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """A client on a server that refuses metacharacters wherever they stand."""
    policy = 'metacharacters = "anywhere"\n' + POLICY
    with SdkClient(Place(tmp_path_factory.mktemp("strict"), policy)) as connected:
        yield connected


def test_a_client_runs_a_real_program_in_a_real_repository(client: SdkClient) -> None:
    """A security-hardened terminal MCP server."""
    answer = client.run("git log --oneline")
    assert (answer.code, answer.exit_code) == ("OK", 0)
    assert answer.stdout.endswith("Begin the project\n")


def test_the_surface_is_two_tools_and_the_allowed_programs(client: SdkClient) -> None:
    """It exposes a small, policy-gated shell surface to an MCP client over stdio — allowlisted commands only, no
    shell, jailed to a single directory."""
    assert set(client.tools()) == {"run_command", "explain_command"}
    assert client.run("pwd").stdout == f"{client.place.jail}\n"


def test_a_program_on_no_list_is_refused(client: SdkClient) -> None:
    """Deny by default. A command whose name is not on the allowlist is refused."""
    answer = client.run("id")
    assert (answer.ok, answer.code, answer.exit_code) == (False, "POLICY_DENIED", None)
    assert "id" in answer.policy_reason


@pytest.mark.parametrize("command", ["/bin/ls", "./ls", "../bin/ls", "LS", "ls ", " ls"])
def test_only_the_listed_name_itself_is_let_through(client: SdkClient, command: str) -> None:
    """Deny by default. A command whose name is not on the allowlist is refused."""
    expected = "OK" if command.strip() == "ls" else "POLICY_DENIED"
    assert client.run(command).code == expected


def test_a_policy_without_lists_lets_nothing_through(place: Place) -> None:
    """Deny by default. A command whose name is not on the allowlist is refused."""
    place.policy.write_text("[commands]\n")
    assert run_cli(place, "run", "--json", "true").envelope.code == "POLICY_DENIED"


def test_a_name_on_both_lists_is_denied(client: SdkClient) -> None:
    """Deny wins: a name on both lists is denied."""
    assert client.run("wc readme.txt").code == "POLICY_DENIED"


def test_words_reach_the_program_as_they_were_written(client: SdkClient) -> None:
    """No shell. Commands run via subprocess with shell=False on a parsed argv."""
    answer = client.run("""printf '[%s]' plain 'two words' "a;b|c" '$HOME' '' '*'""")
    assert answer.stdout == "[plain][two words][a;b|c][$HOME][][*]"


def test_no_shell_stands_between_the_gate_and_the_program(client: SdkClient) -> None:
    """No shell. Commands run via subprocess with shell=False on a parsed argv."""
    assert client.run("echo exit 3").stdout == "exit 3\n"
    assert client.run("exit 3").code == "POLICY_DENIED"


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("character", METACHARACTERS)
def test_a_metacharacter_is_refused_before_the_policy_is_asked(
    client: SdkClient, character: str, placement: str
) -> None:
    r"""Shell metacharacters (; | & < > \ $(...)`) are rejected before any policy check — no chaining, redirection, or
    substitution."""
    answer = client.run(placement.format(character))
    assert answer.code == "POLICY_DENIED"
    assert METACHARACTERS[character] in answer.policy_reason
    assert "column" in answer.policy_reason
    assert "unlisted" not in answer.policy_reason


@pytest.mark.parametrize(
    "command",
    [
        "true; touch made.txt",
        "true && touch made.txt",
        "true || touch made.txt",
        "true | touch made.txt",
        "true & touch made.txt",
        "echo text > made.txt",
        "cat < readme.txt",
        "echo $(touch made.txt)",
        "echo `touch made.txt`",
        'echo "$(touch made.txt)"',
        'echo "`touch made.txt`"',
        "true\ntouch made.txt",
        "echo $HOME",
        "echo ${HOME}",
    ],
)
def test_nothing_is_chained_redirected_or_substituted(client: SdkClient, command: str) -> None:
    r"""Shell metacharacters (; | & < > \ $(...)`) are rejected before any policy check — no chaining, redirection, or
    substitution."""
    assert client.run(command).code == "POLICY_DENIED"
    assert not (client.place.jail / "made.txt").exists()


@pytest.mark.parametrize("character", METACHARACTERS)
def test_a_quoted_metacharacter_is_a_letter_like_any_other(client: SdkClient, character: str) -> None:
    r"""Shell metacharacters (; | & < > \ $(...)`) are rejected before any policy check — no chaining, redirection, or
    substitution."""
    assert client.run(f"echo 'a{character}b'").stdout == f"a{character}b\n"


@pytest.mark.parametrize("character", METACHARACTERS)
def test_a_policy_can_refuse_metacharacters_inside_quotes_too(strict: SdkClient, character: str) -> None:
    r"""Shell metacharacters (; | & < > \ $(...)`) are rejected before any policy check — no chaining, redirection, or
    substitution."""
    for quote in "'\"":
        answer = strict.run(f"unlisted-program {quote}a{character}b{quote}")
        assert answer.code == "POLICY_DENIED"
        assert "unlisted" not in answer.policy_reason
    assert strict.run("echo 'a b'").stdout == "a b\n"


@pytest.mark.parametrize("cwd", ["..", "../outside", "src/../..", "src/../../outside", "./../jail/.."])
def test_a_working_folder_cannot_climb_out_of_the_jail(client: SdkClient, cwd: str) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    answer = client.run("ls", cwd=cwd)
    assert (answer.code, answer.stdout, answer.exit_code) == ("CWD_ESCAPE", "", None)


@pytest.mark.parametrize("cwd", ["src/link_out", "src/link_out/."])
def test_a_working_folder_cannot_leave_the_jail_by_a_link(client: SdkClient, cwd: str) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    assert client.run("ls", cwd=cwd).code == "CWD_ESCAPE"


def test_a_working_folder_cannot_be_elsewhere_by_its_absolute_path(client: SdkClient) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    sibling = client.place.folder / "jail-beside"
    sibling.mkdir()
    for cwd in ("/", "/etc", str(client.place.outside), str(client.place.folder), str(sibling)):
        assert client.run("ls", cwd=cwd).code == "CWD_ESCAPE", cwd


def test_a_working_folder_inside_the_jail_is_used(client: SdkClient) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    inside = f"{client.place.jail}/src\n"
    assert client.run("pwd", cwd="src").stdout == inside
    assert client.run("pwd", cwd=str(client.place.jail / "src")).stdout == inside


@pytest.mark.parametrize(
    "operand",
    ["../outside/private.txt", "src/../../outside/private.txt", "src/link_out/private.txt", "{}/private.txt"],
)
def test_no_operand_reads_a_file_outside_the_jail(client: SdkClient, operand: str) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    answer = client.run("cat " + operand.format(client.place.outside))
    assert answer.code == "POLICY_DENIED"
    assert "nobody" not in answer.stdout


def test_the_kernel_holds_the_jail_where_no_argument_is_checked(client: SdkClient) -> None:
    """Jailed cwd. Execution is confined to a configured jail root; traversal (..), symlink, and absolute-path escapes
    are refused."""
    answer = client.run(f"sh -c 'cat {client.place.outside}/private.txt src/link_out/private.txt'")
    assert answer.exit_code != 0
    assert "nobody" not in answer.stdout


def test_the_environment_of_a_command_is_three_variables(client: SdkClient) -> None:
    """Scrubbed environment. The child gets a minimal env (PATH, HOME, LANG) so parent-process secrets can't leak into
    it."""
    variables = dict(line.split("=", 1) for line in client.run("env").stdout.splitlines())
    assert set(variables) == {"PATH", "HOME", "LANG"}
    assert variables["HOME"] not in {str(client.place.jail), client.place.environment()["HOME"]}


def test_a_secret_of_the_parent_is_not_found_in_a_command(client: SdkClient) -> None:
    """Scrubbed environment. The child gets a minimal env (PATH, HOME, LANG) so parent-process secrets can't leak into
    it."""
    for command in ("env", "sh -c 'cat /proc/self/environ'", "sh -c 'cat /proc/$PPID/environ'", "sh -c set"):
        answer = client.run(command)
        assert client.place.canary not in answer.stdout + answer.stderr, command
        assert CANARY_NAME not in answer.stdout, command


def test_a_rule_may_add_fixed_variables_and_nothing_else_comes_along(place: Place) -> None:
    """Scrubbed environment. The child gets a minimal env (PATH, HOME, LANG) so parent-process secrets can't leak into
    it."""
    place.policy.write_text('[commands]\nallow = ["env"]\n[rules.env.environment]\nGIT_PAGER = "cat"\n')
    names = {line.partition("=")[0] for line in run_cli(place, "run", "env").stdout.splitlines()}
    assert names == {"PATH", "HOME", "LANG", "GIT_PAGER"}
