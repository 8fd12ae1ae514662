"""The contract's promises about configuration and start-up. Docstrings quote it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import assert_refused, run_cli
from tests.support.place import POLICY, Place
from tests.support.trail import calls


def test_every_setting_is_optional(place: Place) -> None:
    """Configuration (env vars, both optional):"""
    unset: dict[str, Any] = dict.fromkeys(name for name in place.environment() if name.startswith("HTMCP_"))
    assert run_cli(place, "init", **unset).status == 0
    ended = run_cli(place, "run", "cat readme.txt", cwd=place.jail, **unset)
    assert (ended.status, ended.stdout) == (0, "a small project\n")


def test_the_policy_file_is_the_one_that_is_named(place: Place) -> None:
    """HTMCP_POLICY_FILE — path to policy.toml (default: policy.toml)."""
    other = place.outside / "other.toml"
    other.write_text('[commands]\nallow = ["id"]\n')
    assert run_cli(place, "run", "id", HTMCP_POLICY_FILE=str(other)).status == 0
    assert run_cli(place, "run", "id", HTMCP_POLICY_FILE="outside/other.toml").status == 0
    assert run_cli(place, "run", "id").status == 126


def test_the_policy_of_the_current_folder_is_the_default(place: Place) -> None:
    """HTMCP_POLICY_FILE — path to policy.toml (default: policy.toml)."""
    assert run_cli(place, "run", "sleep 0", cwd=place.folder, HTMCP_POLICY_FILE=None).status == 0


def test_a_default_policy_that_lies_in_the_jail_needs_approval(place: Place) -> None:
    """HTMCP_POLICY_FILE — path to policy.toml (default: policy.toml)."""
    (place.jail / "policy.toml").write_text('[commands]\nallow = ["id"]\n')
    ended = run_cli(place, "run", "id", cwd=place.jail, HTMCP_POLICY_FILE=None)
    assert_refused(ended, "policy.toml", "trust", "HTMCP_POLICY_FILE")


def test_an_approved_policy_in_the_jail_is_used_until_it_changes(place: Place) -> None:
    """HTMCP_POLICY_FILE — path to policy.toml (default: policy.toml)."""
    policy = place.jail / "policy.toml"
    policy.write_text('[commands]\nallow = ["id"]\n')
    assert run_cli(place, "trust", cwd=place.jail, HTMCP_POLICY_FILE=None).status == 0
    assert run_cli(place, "run", "id", cwd=place.jail, HTMCP_POLICY_FILE=None).status == 0
    policy.write_text('[commands]\nallow = ["id", "env"]\n')
    assert_refused(run_cli(place, "run", "id", cwd=place.jail, HTMCP_POLICY_FILE=None), "trust")


def test_the_shipped_policy_in_the_jail_needs_no_approval(place: Place) -> None:
    """HTMCP_POLICY_FILE — path to policy.toml (default: policy.toml)."""
    assert run_cli(place, "init", HTMCP_POLICY_FILE=None).status == 0
    shutil.copy(place.folder / "config" / "hardened-terminal-mcp" / "policy.toml", place.jail)
    assert run_cli(place, "run", "ls", cwd=place.jail, HTMCP_POLICY_FILE=None).status == 0


def test_the_jail_is_the_folder_that_is_named(place: Place) -> None:
    """HTMCP_JAIL_ROOT — directory commands are jailed to (default: process cwd)."""
    other = place.jail / "src"
    assert run_cli(place, "run", "pwd", HTMCP_JAIL_ROOT=str(other)).stdout == f"{other}\n"
    assert run_cli(place, "run", "cat ../readme.txt", HTMCP_JAIL_ROOT=str(other)).status == 126


def test_the_jail_is_the_current_folder_by_default(place: Place) -> None:
    """HTMCP_JAIL_ROOT — directory commands are jailed to (default: process cwd)."""
    ended = run_cli(place, "run", "pwd", cwd=place.jail / "src", HTMCP_JAIL_ROOT=None)
    assert ended.stdout == f"{place.jail}/src\n"


def test_the_trail_is_the_file_that_is_named(place: Place) -> None:
    """HTMCP_AUDIT_LOG — path to the JSONL audit trail (default: audit.jsonl)."""
    other = place.outside / "elsewhere.jsonl"
    run_cli(place, "run", "true", HTMCP_AUDIT_LOG=str(other))
    assert len(calls(other)) == 2
    assert not place.trail.exists()


def test_the_default_trail_is_outside_the_jail(place: Place) -> None:
    """HTMCP_AUDIT_LOG — path to the JSONL audit trail (default: audit.jsonl)."""
    run_cli(place, "run", "true", cwd=place.jail, HTMCP_AUDIT_LOG=None)
    assert len(calls(place.folder / "state" / "hardened-terminal-mcp" / "audit.jsonl")) == 2
    assert not (place.jail / "audit.jsonl").exists()


def test_a_trail_that_the_policy_names_is_used(place: Place) -> None:
    """HTMCP_AUDIT_LOG — path to the JSONL audit trail (default: audit.jsonl)."""
    other = place.outside / "by_policy.jsonl"
    place.policy.write_text(POLICY + f'[audit]\nlog = "{other}"\n')
    run_cli(place, "run", "true", HTMCP_AUDIT_LOG=None)
    assert len(calls(other)) == 2


@pytest.mark.parametrize(("mode", "status"), [("closed", 0), ("open", 0), (None, 0), ("ajar", 78)])
def test_the_fail_mode_is_closed_or_open(place: Place, mode: str | None, status: int) -> None:
    """HTMCP_AUDIT_FAIL_MODE — closed (default) or open (see Audit trail)."""
    assert run_cli(place, "run", "true", HTMCP_AUDIT_FAIL_MODE=mode).status == status


@pytest.mark.parametrize("arguments", [(), ("serve",), ("run", "true"), ("explain", "true")])
def test_a_missing_policy_stops_every_start(place: Place, arguments: tuple[str, ...]) -> None:
    """Startup fails loudly if the policy is missing/invalid or the jail root is not a directory."""
    missing = str(place.folder / "missing.toml")
    assert_refused(run_cli(place, *arguments, HTMCP_POLICY_FILE=missing), missing)


def test_no_policy_anywhere_says_how_to_make_one(place: Place) -> None:
    """Startup fails loudly if the policy is missing/invalid or the jail root is not a directory."""
    assert_refused(run_cli(place, cwd=place.outside, HTMCP_POLICY_FILE=None), "policy.toml", "init")


@pytest.mark.parametrize("arguments", [(), ("serve",), ("run", "true"), ("explain", "true")])
def test_an_invalid_policy_stops_every_start(place: Place, arguments: tuple[str, ...]) -> None:
    """Startup fails loudly if the policy is missing/invalid or the jail root is not a directory."""
    place.policy.write_text("[commands\n")
    assert_refused(run_cli(place, *arguments), str(place.policy))


def _jail_at(place: Place, kind: str) -> Path:
    if kind == "a file":
        return place.jail / "readme.txt"
    if kind == "a broken link":
        (place.outside / "broken").symlink_to("nowhere")
        return place.outside / "broken"
    return place.folder / "missing"


@pytest.mark.parametrize("kind", ["missing", "a file", "a broken link"])
def test_a_jail_that_is_no_directory_stops_the_start(place: Place, kind: str) -> None:
    """Startup fails loudly if the policy is missing/invalid or the jail root is not a directory."""
    jail = str(_jail_at(place, kind))
    assert_refused(run_cli(place, HTMCP_JAIL_ROOT=jail), jail)
    assert not place.trail.exists()
