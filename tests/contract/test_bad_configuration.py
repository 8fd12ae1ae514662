"""A configuration that cannot be used stops the start: one line on stderr, nothing on stdout, status 78, nothing made."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.command import EX_CONFIG, assert_refused, run_cli
from tests.support.place import POLICY, Place

not_as_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write whatever the mode says")


FAULTY_POLICIES = {
    "no TOML": ("commands = [", "policy.toml"),
    "a key twice": ("[commands]\nallow = []\nallow = []\n", "policy.toml"),
    "an unknown table": ("[comands]\nallow = []\n", "comands"),
    "an unknown key": ("[commands]\nallowed = []\n", "allowed"),
    "an unknown key of a rule": (POLICY + "[rules.true]\nalow_options = []\n", "alow_options"),
    "an unknown key of a limit": (POLICY + "[rules.true.limits]\ntimeout = 3\n", "timeout"),
    "a text for a list": ('[commands]\nallow = "ls"\n', "allow"),
    "a number in a list of names": ("[commands]\nallow = [7]\n", "allow"),
    "a text for a number": ('[limits]\ntimeout_s = "3"\n', "timeout_s"),
    "a negative limit": ("[limits]\ntimeout_s = -1\n", "timeout_s"),
    "no time at all": ("[limits]\ntimeout_s = 0\n", "timeout_s"),
    "no number": ("[limits]\ntimeout_s = nan\n", "timeout_s"),
    "a limit beyond reason": ("[limits]\nconcurrent = 100000\n", "concurrent"),
    "an unknown choice": ('metacharacters = "sometimes"\n', "metacharacters"),
    "an unknown fail mode": ('[audit]\nfail_mode = "ajar"\n', "fail_mode"),
    "a rule for a program on no list": ('[commands]\nallow = ["ls"]\n[rules.cat]\nwrites = true\n', "cat"),
    "an invalid pattern": (
        POLICY + '[redaction]\nextra_patterns = [{ name = "x", regex = "(" }]\n',
        "extra_patterns",
    ),
    "an invalid kind of operand": (
        '[commands]\nallow = ["ls"]\n[rules.ls]\noperands = ["/(/"]\n',
        "operands",
    ),
    "an unknown kind of operand": (
        '[commands]\nallow = ["ls"]\n[rules.ls]\noperands = ["paths"]\n',
        "operands",
    ),
    "a self-test that fails": (POLICY + '[[tests]]\ncommand = "rm x"\nexpect = "allow"\n', "rm x"),
    "a self-test for the wrong reason": (
        POLICY + '[[tests]]\ncommand = "rm x"\nexpect = "deny"\nreason = "the moon"\n',
        "the moon",
    ),
    "a self-test that expects nothing": (POLICY + '[[tests]]\ncommand = "ls"\n', "tests"),
    "a program's name with a line break": ('[commands]\nallow = ["l\\ns"]\n', "allow"),
    "an empty name": ('[commands]\nallow = [""]\n', "allow"),
    "a relative search path": ('[environment]\npath = ["bin"]\n', "path"),
}


@pytest.mark.parametrize("case", FAULTY_POLICIES)
def test_a_faulty_policy_stops_the_start_and_the_fault_is_named(place: Place, case: str) -> None:
    text, named = FAULTY_POLICIES[case]
    place.policy.write_text(text)
    assert_refused(run_cli(place), str(place.policy), named)
    assert not place.trail.exists()


def test_all_faults_of_a_policy_are_named_at_once(place: Place) -> None:
    place.policy.write_text(
        '[commands]\nallow = ["ls"]\n[rules.cat]\nwrites = true\n[rules.tar]\nwrites = true\n'
    )
    assert_refused(run_cli(place), "cat", "tar")


def test_a_policy_that_is_no_text_stops_the_start(place: Place) -> None:
    place.policy.write_bytes(b"[commands]\nallow = ['\xff']\n")
    assert_refused(run_cli(place), str(place.policy))


def test_a_policy_that_is_a_folder_stops_the_start(place: Place) -> None:
    assert_refused(run_cli(place, HTMCP_POLICY_FILE=str(place.outside)), str(place.outside))


def test_a_policy_that_is_a_pipe_stops_the_start_and_is_not_waited_for(place: Place) -> None:
    os.mkfifo(place.folder / "pipe.toml")
    assert_refused(run_cli(place, HTMCP_POLICY_FILE=str(place.folder / "pipe.toml")), "pipe.toml")


def test_a_policy_that_everybody_may_write_stops_the_start(place: Place) -> None:
    place.policy.chmod(0o666)
    assert_refused(run_cli(place), str(place.policy))


@not_as_root
def test_a_policy_that_may_not_be_read_stops_the_start(place: Place) -> None:
    place.policy.chmod(0)
    assert_refused(run_cli(place), str(place.policy))


def test_a_named_policy_inside_a_writable_jail_stops_the_start(place: Place) -> None:
    inside = place.jail / "named.toml"
    inside.write_text(POLICY)
    assert_refused(run_cli(place, HTMCP_POLICY_FILE=str(inside)), "jail")


def test_a_named_policy_inside_a_jail_that_nothing_may_write_is_used(place: Place) -> None:
    inside = place.jail / "named.toml"
    inside.write_text('[commands]\nallow = ["true"]\n')
    assert run_cli(place, "run", "true", HTMCP_POLICY_FILE=str(inside)).status == 0


@pytest.mark.parametrize("jail", ["/", "//", "/.", "/usr/.."])
def test_the_whole_machine_is_no_jail(place: Place, jail: str) -> None:
    assert_refused(run_cli(place, HTMCP_JAIL_ROOT=jail), "jail")


def test_a_jail_that_is_missing_or_no_folder_stops_the_start(place: Place) -> None:
    for jail in (place.folder / "missing", place.jail / "readme.txt", Path("/dev/null")):
        assert_refused(run_cli(place, HTMCP_JAIL_ROOT=str(jail)), str(jail))


def test_a_jail_that_the_policy_names_is_judged_too(place: Place) -> None:
    place.policy.write_text('[jail]\nroot = "/"\n' + POLICY)
    assert_refused(run_cli(place, HTMCP_JAIL_ROOT=None), "jail")


def _link_into_the_jail(place: Place) -> str:
    (place.outside / "link").symlink_to(place.jail / "src")
    return str(place.outside / "link" / "audit.jsonl")


def test_a_trail_inside_the_jail_stops_the_start_by_whatever_way(place: Place) -> None:
    for log in (str(place.jail / "audit.jsonl"), "jail/audit.jsonl", _link_into_the_jail(place)):
        assert_refused(run_cli(place, HTMCP_AUDIT_LOG=log), "jail")
    assert not list(place.jail.rglob("audit.jsonl"))


def test_a_trail_whose_folder_is_missing_stops_the_start(place: Place) -> None:
    log = str(place.folder / "missing" / "audit.jsonl")
    assert_refused(run_cli(place, HTMCP_AUDIT_LOG=log), log)


@pytest.mark.parametrize("log", ["/proc/audit.jsonl", "/sys/audit.jsonl", "/dev/null", "/dev/full"])
def test_a_trail_where_no_file_can_be_made_stops_the_start(place: Place, log: str) -> None:
    assert_refused(run_cli(place, HTMCP_AUDIT_LOG=log), log)


@not_as_root
def test_a_trail_in_a_folder_that_may_not_be_written_stops_the_start(place: Place) -> None:
    place.outside.chmod(0o500)
    log = str(place.outside / "audit.jsonl")
    assert_refused(run_cli(place, HTMCP_AUDIT_LOG=log), log)


def test_a_trail_that_is_a_folder_or_a_pipe_stops_the_start(place: Place) -> None:
    os.mkfifo(place.outside / "pipe.jsonl")
    for log in (place.outside, place.outside / "pipe.jsonl"):
        assert_refused(run_cli(place, HTMCP_AUDIT_LOG=str(log)), str(log))


def test_a_state_folder_that_cannot_be_made_stops_the_start(place: Place) -> None:
    (place.folder / "state").write_text("in the way\n")
    assert_refused(run_cli(place), "state")


@pytest.mark.parametrize("arguments", [("serve",), ("run", "true"), ("explain", "true")])
def test_no_way_of_starting_gets_around_a_bad_configuration(place: Place, arguments: tuple[str, ...]) -> None:
    assert_refused(run_cli(place, *arguments, HTMCP_JAIL_ROOT="/"), "jail")
    assert_refused(run_cli(place, *arguments, HTMCP_AUDIT_LOG=str(place.jail / "audit.jsonl")), "jail")
    place.policy.write_text("nonsense")
    assert_refused(run_cli(place, *arguments), str(place.policy))


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME"])
def test_what_decides_may_not_lie_in_a_jail_that_may_be_written(place: Place, variable: str) -> None:
    inside = str(place.jail / "own")
    assert_refused(run_cli(place, **{variable: inside}), inside, "would lie in one another")


def test_the_program_itself_may_not_lie_in_a_jail_that_may_be_written(place: Place) -> None:
    for jail in (sys.prefix, f"{sys.prefix}/bin"):
        assert_refused(run_cli(place, HTMCP_JAIL_ROOT=jail), "would lie in one another")


@pytest.mark.parametrize(
    "command", [("run", "ls"), ("check",), ("audit", "show"), ("audit", "repair")], ids=" ".join
)
@pytest.mark.parametrize("variable", ["HTMCP_JAIL_ROOT", "HTMCP_POLICY_FILE", "HTMCP_AUDIT_LOG"])
def test_a_path_steers_no_terminal_from_what_is_said_of_it(
    place: Place, command: tuple[str, ...], variable: str
) -> None:
    ended = run_cli(place, *command, **{variable: f"{place.jail}/no\x1b]0;such\x07\x9b2J\u202e"})
    assert all(char.isprintable() or char == "\n" for char in ended.stderr), ended
    assert ended.status in (0, EX_CONFIG)
