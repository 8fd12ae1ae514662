"""`check` and `init` as an operator meets them: what they print, and what they leave on disk."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.bare_client import BROKER
from tests.support.command import COMMAND, EX_CONFIG, Ended, assert_refused, run_cli
from tests.support.place import POLICY, Place

ROOT = Path(__file__).parents[2]
USAGE = 2
EX_IOERR = 74
WEAK = {
    '[containment]\nmode = "off"': "[containment] mode",
    '[containment]\nmode = "best-effort"': "[containment] mode",
    "[redaction]\nenabled = false": "[redaction] enabled",
    '[audit]\nfail_mode = "open"': "[audit] fail_mode",
    '[output]\ncontrol_sequences = "keep"': "[output] control_sequences",
}


def check(place: Place, text: str) -> Ended:
    place.policy.write_text(text)
    return run_cli(place, "check")


def test_check_names_each_fault_with_file_and_line(place: Place) -> None:
    ended = check(place, '[commands]\nallow = ["ls", "a b"]\n\n[[tests]]\ncommand = ""\nexpect = "allow"\n')
    assert (ended.status, ended.stdout) == (EX_CONFIG, "")
    assert ended.stderr.splitlines() == [
        f"{place.policy}:2: commands.allow: 'a b': a program's name or absolute path is expected",
        f"{place.policy}:5: tests.1.command: '': a command is expected",
    ]


def test_a_self_test_that_fails_is_told_with_file_and_line(place: Place) -> None:
    ended = check(place, f"{POLICY}\n[[tests]]\ncommand = 'cat ../x'\nexpect = 'allow'\n")
    line = POLICY.count("\n") + 2
    number = POLICY.count("[[tests]]") + 1
    fault = f"{line}: tests.{number}: self-test failed: 'cat ../x': allow expected, got deny: "
    assert ended.status == 1
    assert f"\n{place.policy}:{fault}" in ended.stdout
    assert json.loads(run_cli(place, "check", "--json").stdout)["failed_tests"][0].startswith(fault)
    assert_refused(run_cli(place, "run", "true"), f"policy {place.policy}: line {fault}")


def test_check_says_that_the_policy_in_force_is_another_where_the_broker_is_elsewhere(place: Place) -> None:
    said = "HTMCP_BROKER: the policy in force is that beyond 'ssh host x': run check there"
    for arguments in ((), ("--describe",)):
        ended = run_cli(place, "check", *arguments, HTMCP_BROKER="ssh host x")
        assert (ended.status, ended.stderr) == (0, f"warning: {said}\n")
    warned = json.loads(run_cli(place, "check", "--json", HTMCP_BROKER="ssh host x").stdout)["warnings"]
    assert said in [f"{each['place']}: {each['text']}" for each in warned]
    assert run_cli(place, "check", str(place.policy), HTMCP_BROKER="ssh host x").stderr == ""


@pytest.mark.parametrize(
    ("policy", "step"),
    [
        ("allow = ['ls']", 'try it: hardened-terminal-mcp run "ls -l"'),
        (
            "allow = ['cat']\n[rules.cat]\nallow_options = ['-n']\n",
            "see what may be called: hardened-terminal-mcp check --describe",
        ),
        (
            "allow = ['touch', 'cat']\n[rules.touch]\nwrites = true\n[[tests]]\ncommand = 'touch x'\nexpect = 'allow'\n"
            "[[tests]]\ncommand = 'cat readme.txt'\nexpect = 'allow'",
            'try it: hardened-terminal-mcp run "cat readme.txt"',
        ),
    ],
)
def test_what_doctor_says_to_try_is_allowed(place: Place, policy: str, step: str) -> None:
    place.policy.write_text(f"[commands]\n{policy}\n")
    assert f"\n  {step}\n" in run_cli(place, "doctor").stdout


def test_check_finds_a_pattern_with_which_no_server_would_start(place: Place) -> None:
    ended = check(place, f'{POLICY}\n[redaction]\nextra_patterns = [{{ name = "x", regex = "(" }}]\n')
    line = POLICY.count("\n") + 3
    assert ended.status == EX_CONFIG
    assert ended.stderr.startswith(f"{place.policy}:{line}: redaction.extra_patterns: x: ")


def test_check_finds_a_user_that_does_not_exist_and_all_patterns_at_once(place: Place) -> None:
    wrong = '[containment]\nrun_as = "nobody-of-that-name"\n[redaction]\nextra_patterns = '
    ended = check(place, POLICY + wrong + '[{ name = "x", regex = "(" }, { name = "y", regex = "(" }]\n')
    assert (ended.status, ended.stderr.count("\n")) == (EX_CONFIG, 3)
    assert "containment.run_as: there is no user 'nobody-of-that-name'" in ended.stderr


@pytest.mark.parametrize("mirror", ["udp:1", "relative", ""])
def test_check_finds_a_mirror_that_is_none(place: Place, mirror: str) -> None:
    ended = check(place, f'{POLICY}\n[audit]\nmirror = "{mirror}"\n')
    assert ended.status == EX_CONFIG
    assert f"audit.mirror: {mirror!r}" in ended.stderr


def test_check_without_a_file_fails_for_a_policy_that_no_server_here_would_take(place: Place) -> None:
    (place.jail / "policy.toml").write_text(POLICY)
    ended = run_cli(place, "check", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert ended.status == 1
    assert "not approved" in ended.stdout
    named = run_cli(place, "check", "policy.toml", cwd=place.jail, HTMCP_JAIL_ROOT=None)
    assert (named.status, "usable" in named.stdout) == (0, True)


def test_what_check_says_fits_the_columns_that_there_are(place: Place) -> None:
    ended = run_cli(place, "check", COLUMNS="60")
    longest = max(ended.stdout.split(), key=len)
    assert max(map(len, ended.stdout.splitlines())) <= max(60, len(longest) + 2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [(POLICY + "\n[surprise]\n", "surprise: unknown key"), (None, "No such file or directory")],
)
def test_check_tells_faults_as_json_too(place: Place, text: str | None, fault: str) -> None:
    if text is None:
        place.policy.unlink()
    else:
        place.policy.write_text(text)
    ended = run_cli(place, "check", "--json")
    assert (ended.status, ended.stderr) == (EX_CONFIG, "")
    (told,) = json.loads(ended.stdout)["faults"]
    assert fault in told


@pytest.mark.parametrize("setting", WEAK)
def test_check_and_doctor_warn_of_each_guard_that_is_off(place: Place, setting: str) -> None:
    assert "warning" not in run_cli(place, "doctor").stdout
    place.policy.write_text(f"{POLICY}\n{setting}\n")
    for command in ("check", "doctor"):
        told = run_cli(place, command).stdout
        assert f"{WEAK[setting]}: " in told.partition("warning")[2], told


def test_check_describes_the_policy_as_a_model_is_told(place: Place) -> None:
    ended = run_cli(place, "check", "--describe")
    assert (ended.status, ended.stderr) == (0, "")
    assert "One call runs one program" in ended.stdout
    assert "sh [writes]: any arguments\n" in ended.stdout


def init(place: Place, *arguments: str) -> Ended:
    """Run `init` for the user's own policy, which no variable replaces."""
    return run_cli(place, "init", *arguments, HTMCP_POLICY_FILE=None)


@pytest.fixture
def own(place: Place) -> Path:
    """A policy of the user's own, edited since `init` wrote it."""
    assert init(place).status == 0
    path = place.folder / "config" / "hardened-terminal-mcp" / "policy.toml"
    path.write_text(path.read_text() + '\n[profile.folders]\nallow = ["mkdir"]\n[rules.mkdir]\nwrites = true')
    path.chmod(0o640)
    return path


def test_a_profile_is_added_below_a_policy_that_was_edited(place: Place, own: Path) -> None:
    before = own.read_bytes()
    ended = init(place, "--profile", "git-write")
    assert (ended.status, ended.stderr) == (0, "")
    assert own.read_bytes().startswith(before)
    assert own.stat().st_mode & 0o777 == 0o640
    assert os.listdir(own.parent) == ["policy.toml"]
    added = own.read_bytes()
    for command in ("git add readme.txt", "mkdir new"):
        assert run_cli(place, "explain", command, HTMCP_POLICY_FILE=str(own)).status == 0
    assert "already" in init(place, "--profile", "git-write").stdout
    assert own.read_bytes() == added


def test_the_policy_that_a_variable_names_is_the_one_that_init_is_about(place: Place, own: Path) -> None:
    before = own.read_bytes()
    named = place.folder / "named.toml"
    for arguments in ((), ("--profile", "make")):
        ended = run_cli(place, "init", *arguments, HTMCP_POLICY_FILE=str(named))
        assert ended.status == 0
        assert str(named) in ended.stdout
    assert "[profile.make]" in named.read_text()
    assert own.read_bytes() == before


def test_a_dash_is_standard_output_and_no_file(place: Place) -> None:
    ended = run_cli(place, "init", "--output", "-", "--profile", "make", cwd=place.outside)
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.startswith((ROOT / "policy.toml").read_text())
    assert "[profile.make]" in ended.stdout
    assert os.listdir(place.outside) == ["private.txt"]


def test_the_jail_that_a_variable_names_is_the_one_that_a_client_gets(place: Place) -> None:
    ended = run_cli(place, "init", "--client", "claude", cwd=place.outside)
    (server,) = json.loads(ended.stdout)["mcpServers"].values()
    assert server["env"]["HTMCP_JAIL_ROOT"] == str(place.jail)
    assert f"the jail is {place.jail}" in ended.stderr


@pytest.mark.parametrize(
    "variable", ["HTMCP_JAIL_ROOT", "HTMCP_POLICY_FILE", "HTMCP_AUDIT_LOG", "HTMCP_BROKER"]
)
def test_a_name_that_no_json_can_hold_is_told_and_not_printed_for_a_client(
    place: Place, variable: str
) -> None:
    ended = run_cli(place, "init", "--client", "claude", **{variable: "/srv/\udcff"})
    assert_refused(ended, "/srv/\\udcff", "not UTF-8")


@pytest.mark.parametrize("command", ["doctor", "check"])
def test_a_policy_whose_name_no_json_can_hold_is_told(place: Place, command: str) -> None:
    odd = place.folder / "odd\udcff.toml"
    place.policy.rename(odd)
    assert_refused(
        run_cli(place, command, "--json", HTMCP_POLICY_FILE=str(odd)), "odd\\udcff.toml", "not UTF-8"
    )


def test_what_is_no_policy_is_not_approved(place: Place) -> None:
    text = place.jail / "readme.txt"
    assert_refused(run_cli(place, "trust", str(text)), str(text))
    (place.jail / "policy.toml").write_text(POLICY)
    assert run_cli(place, "trust", "", cwd=place.jail).status == EX_CONFIG


def test_of_a_policy_that_is_the_users_own_or_named_trust_says_that_nothing_is_to_be_approved(
    place: Place, own: Path
) -> None:
    for variable, whose in ((None, "the user's own"), (str(place.policy), "named by HTMCP_POLICY_FILE")):
        ended = run_cli(place, "trust", cwd=place.outside, HTMCP_POLICY_FILE=variable)
        path = variable or own
        assert (ended.status, ended.stderr) == (0, "")
        assert ended.stdout == f"nothing to approve: the policy in force is {path}, {whose}\n"
    assert not (own.parent / "trusted").exists()


def test_trust_without_any_policy_says_how_one_is_written(place: Place) -> None:
    ended = run_cli(place, "trust", cwd=place.outside, HTMCP_POLICY_FILE=None)
    assert_refused(ended, "no policy: neither ./policy.toml nor ", "init")


@pytest.mark.parametrize("extra", ["", "\n[[tests]]\ncommand = 'cat ../x'\nexpect = 'deny'\n"])
def test_check_counts_one_as_one(place: Place, extra: str) -> None:
    ended = check(place, f"[commands]\nallow = ['cat']\n{extra}")
    tests = "1 self-test" if extra else "0 self-tests"
    assert f": 1 program, {tests}, SHA-256 " in ended.stdout


def test_a_profile_that_cannot_be_added_leaves_the_policy_as_it_was(place: Place, own: Path) -> None:
    own.write_text(own.read_text() + "\n[rules.make]\nwrites = true\n[profile.x]\nallow = ['make']\n")
    before = own.read_bytes()
    ended = init(place, "--profile", "make")
    assert (ended.status, ended.stdout, ended.stderr.count("\n")) == (EX_CONFIG, "", 1)
    assert "[rules.make] is in it already" in ended.stderr
    assert own.read_bytes() == before
    assert os.listdir(own.parent) == ["policy.toml"]


def test_a_profile_that_breaks_a_test_of_the_policy_is_not_added(place: Place, own: Path) -> None:
    own.write_text(own.read_text() + "\n[[tests]]\ncommand = 'git add a'\nexpect = 'deny'\n")
    before = own.read_bytes()
    ended = init(place, "--profile", "git-write")
    assert_refused(ended, str(own), "self-test failed: 'git add a'")
    assert own.read_bytes() == before


def test_a_policy_that_is_a_link_stays_one_when_a_profile_is_added(place: Place, own: Path) -> None:
    real = place.folder / "dotfiles.toml"
    own.rename(real)
    own.symlink_to(real)
    assert init(place, "--profile", "make").status == 0
    assert own.is_symlink()
    assert "[profile.make]" in real.read_text()


def test_an_approved_policy_has_to_be_approved_again_once_a_profile_was_added(
    place: Place, own: Path
) -> None:
    assert run_cli(place, "trust", str(own)).status == 0
    assert f"trust {own}" in init(place, "--profile", "make").stdout


def test_force_writes_the_policy_anew_with_its_profiles_and_keeps_the_old_one(
    place: Place, own: Path
) -> None:
    before = own.read_bytes()
    assert init(place, "--force", "--profile", "make").status == 0
    assert b"folders" not in own.read_bytes()
    assert b"[profile.make]" in own.read_bytes()
    assert own.with_suffix(".toml.bak").read_bytes() == before


def test_force_never_writes_over_what_an_earlier_one_kept(place: Place, own: Path) -> None:
    first = own.read_bytes()
    assert init(place, "--force").status == 0
    own.write_text("# the second one\n")
    ended = init(place, "--force")
    assert own.with_suffix(".toml.bak").read_bytes() == first
    assert own.with_suffix(".toml.bak1").read_text() == "# the second one\n"
    assert f"{own}.bak1" in ended.stdout


def test_a_policy_that_init_writes_into_the_jail_is_noted(place: Place) -> None:
    ended = run_cli(place, "init", "--output", "p.toml", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert ended.status == 0
    assert "note: p.toml lies in this folder; in a jail no policy may lie that grants writes" in ended.stderr
    outside = run_cli(place, "init", "--output", str(place.folder / "p.toml"), HTMCP_POLICY_FILE=None)
    assert outside.stderr == ""


def test_what_a_client_is_given_names_the_trail_that_is_set_and_the_policy_that_run_would_use_instead(
    place: Place, own: Path
) -> None:
    (place.jail / "policy.toml").write_bytes(own.read_bytes())
    ended = run_cli(place, "init", "--client", "cursor", cwd=place.jail, HTMCP_POLICY_FILE=None)
    (server,) = json.loads(ended.stdout)["mcpServers"].values()
    assert server["env"]["HTMCP_POLICY_FILE"] == str(own)
    assert server["env"]["HTMCP_AUDIT_LOG"] == str(place.trail)
    assert (
        f"# run and doctor look at ./policy.toml first, this names {own}; --output policy.toml"
        in ended.stderr
    )
    other = run_cli(
        place, "init", "--client", "cursor", "--output", "policy.toml", cwd=place.jail, HTMCP_POLICY_FILE=None
    )
    assert "a server would not start with this: policy " in other.stderr
    assert "move it outside the jail" in other.stderr


def test_doctor_does_not_advise_a_new_policy_where_one_only_has_the_wrong_mode(place: Place) -> None:
    place.policy.chmod(0o666)
    ended = run_cli(place, "doctor")
    assert ended.status == 1
    assert "everybody may write it" in ended.stdout
    assert "hardened-terminal-mcp init" not in ended.stdout
    none = run_cli(place, "doctor", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert "write a policy: hardened-terminal-mcp init" in none.stdout


def test_doctor_warns_of_a_clients_configuration_that_a_command_may_write(place: Place) -> None:
    assert "warning" not in run_cli(place, "doctor").stdout
    (place.jail / ".mcp.json").write_text("{}")
    ended = run_cli(place, "doctor")
    assert ended.status == 0
    assert "warning  [jail]: entries with `writes` may change .mcp.json: " in ended.stdout


def _broken_line(place: Place) -> None:
    run_cli(place, "run", "true")
    place.trail.write_bytes(place.trail.read_bytes().replace(b"true", b"yess"))


def _missing_beside_rotated(place: Place) -> None:
    run_cli(place, "run", "true")
    place.trail.rename(f"{place.trail}.000000000001")


STOPPED = {
    "a line was changed": _broken_line,
    "no trail": lambda place: (place.trail.write_text("garbage\n"), place.trail.chmod(0o600)),
    "everybody may write it": lambda place: (place.trail.touch(), place.trail.chmod(0o666)),
    "a folder": lambda place: place.trail.mkdir(),
    "a fifo": lambda place: os.mkfifo(place.trail, 0o600),
    "a link": lambda place: place.trail.symlink_to(place.folder / "elsewhere"),
    "missing beside rotated files": _missing_beside_rotated,
    "something lies in the home": lambda place: (
        run_cli(place, "run", "true"),
        (place.folder / "state" / "hardened-terminal-mcp" / "home" / "x").touch(),
    ),
    "a mirror that is none": lambda place: place.policy.write_text(f'{POLICY}\n[audit]\nmirror = "udp:1"\n'),
}


@pytest.mark.parametrize("name", STOPPED)
def test_doctor_says_what_stops_a_start_and_changes_nothing(place: Place, name: str) -> None:
    STOPPED[name](place)
    before = evidence(place.trail)
    told = run_cli(place, "doctor")
    assert evidence(place.trail) == before
    stopped = run_cli(place, "run", "true")
    assert (told.status, stopped.status) == (1, EX_CONFIG), (told, stopped)
    problem = " ".join(told.stdout.partition("problem  ")[2].partition("\n\n")[0].split())
    assert stopped.stderr.strip() == f"hardened-terminal-mcp: {problem}"


def evidence(path: Path) -> list[tuple[str, int, int]]:
    """Return name, time of the last change and size of all that stands beside a trail."""
    statuses = ((entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(path.parent))
    return sorted((name, status.st_mtime_ns, status.st_size) for name, status in statuses)


def test_doctor_looks_for_what_reaches_a_broker_elsewhere(place: Place) -> None:
    ended = run_cli(place, "doctor", HTMCP_BROKER="no-such-program host")
    assert ended.status == 1
    assert "HTMCP_BROKER" in ended.stdout.partition("problem")[2]
    for carrier, said in (
        ("false", "no broker answered (`false` ended with 1)"),
        ("cat", "what answers is no broker"),
        ("echo hello", "no broker answered (`echo` ended with 0)"),
    ):
        told = run_cli(place, "doctor", HTMCP_BROKER=carrier)
        assert told.status == 1
        assert f"problem HTMCP_BROKER: {carrier!r}: {said}" in " ".join(told.stdout.split())
    there = run_cli(place, "doctor", HTMCP_BROKER=f"{BROKER} --stdio")
    assert there.status == 0
    assert "policy, jail and trail are those beyond" in " ".join(there.stdout.split())
    assert 'try it: hardened-terminal-mcp run "ls -l"' in there.stdout
    snippet = run_cli(place, "init", "--client", "cursor", HTMCP_BROKER="sh host 'x y'")
    (server,) = json.loads(snippet.stdout)["mcpServers"].values()
    assert server["env"] == {"HTMCP_BROKER": f"{shutil.which('sh')} host 'x y'"}


def test_doctor_says_of_a_folder_that_cannot_be_made_what_a_start_says(place: Place) -> None:
    def told() -> tuple[int, int]:
        closed = place.folder / "closed"
        closed.mkdir(0o500)
        where = {"XDG_STATE_HOME": str(closed / "state"), "HTMCP_AUDIT_LOG": None}
        return run_cli(place, "doctor", **where).status, run_cli(place, "run", "true", **where).status

    if os.geteuid() == 0:
        pytest.skip("root may write whatever the mode says")
    assert told() == (1, EX_CONFIG)


@pytest.mark.parametrize("command", ["doctor", "check", "audit show", "init --client claude"])
def test_output_that_was_closed_is_no_fault(place: Place, command: str) -> None:
    run_cli(place, "run", "true")
    ended = subprocess.run(
        ["/bin/sh", "-c", f"{COMMAND} {command} >&-"],
        env=place.environment(),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_what_doctor_says_fits_the_columns_that_there_are(place: Place) -> None:
    ended = run_cli(place, "doctor", COLUMNS="60", HTMCP_JAIL_ROOT=str(place.folder / "missing"))
    longest = max(ended.stdout.split(), key=len)
    assert max(map(len, ended.stdout.splitlines())) <= max(60, len(longest) + 9)


@pytest.mark.parametrize("option", [["--profile", "make"], ["--force"]])
def test_a_client_together_with_what_writes_is_refused_and_says_what_to_do(
    place: Place, option: list[str]
) -> None:
    ended = init(place, "--client", "claude", *option)
    assert (ended.status, ended.stdout) == (USAGE, "")
    assert f"hardened-terminal-mcp init {' '.join(option)}" in ended.stderr
    assert not (place.folder / "config").exists()


def test_an_unknown_profile_is_wrong_usage_and_the_known_ones_are_named(place: Place) -> None:
    ended = init(place, "--profile", "pyton")
    assert ended.status == USAGE
    assert "python, rust" in ended.stderr.replace("'", "").partition("choose from")[2]


@pytest.mark.parametrize("arguments", [["check"], ["doctor"], ["audit", "show"], ["completion", "bash"]])
def test_output_that_cannot_be_written_is_said_so(place: Place, arguments: list[str]) -> None:
    assert run_cli(place, "run", "true").status == 0
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=place.folder,
            env=place.environment(),
            timeout=30,
            check=False,
        )
    assert ended.stderr.decode() == "hardened-terminal-mcp: cannot write: No space left on device\n"
    assert ended.returncode == EX_IOERR


def test_an_old_encoding_keeps_nobody_from_reading_the_trail(place: Place) -> None:
    run_cli(place, "run", "printf '\u2603'")
    ended = run_cli(place, "audit", "show", PYTHONIOENCODING="latin-1")
    assert (ended.status, ended.stderr) == (0, "")
    assert "printf '\\u2603'" in ended.stdout
