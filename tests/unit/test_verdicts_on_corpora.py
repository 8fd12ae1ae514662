"""The gate's two numbers, over the corpora in tests/adversarial/data: hostile commands let through, everyday ones refused.

Verdicts only: nothing is run. Each hostile case gets a real jail with the files it brings along, because links decide.
"""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker import policy_profiles
from broker.jail import Jail
from broker.policy import Policy
from broker.refusal import Refusal
from tests.support.gate import DEFAULT_POLICY, policy_over, verdict

DATA = Path(__file__).parent.parent / "adversarial" / "data"
Row = dict[str, Any]

BASE_FILES = [
    {"path": name} for name in ("README.md", "a.txt", "b.txt", "src/app.py", "data.csv", "data.json")
]

BY_DESIGN = "a backslash outside single quotes is refused by the grammar, whatever the program"
NOT_LISTED = "runs code of the project or is no inspection: a profile's matter"
PROGRAM_TEXT = "its argument is a program, of which one fixed form is allowed"
NAMES_INSIDE = "it takes further file names from what it reads, and those may lie outside"
REFUSED_EVERYDAY = {
    **dict.fromkeys(
        ("ben-0236", "ben-0541", "ben-0703", "ben-0900", "ben-0921", "ben-0925", "ben-0934"), BY_DESIGN
    ),
    **dict.fromkeys(("ben-0951", "ben-0953", "ben-1283", "ben-1324", "ben-1361"), BY_DESIGN),
    **dict.fromkeys(("ben-0377", "ben-0441", "ben-0445", "ben-0446", "ben-1171", "ben-1219"), NOT_LISTED),
    **dict.fromkeys(("ben-0863", "ben-0865", "ben-1002", "ben-1072"), PROGRAM_TEXT),
    **dict.fromkeys(("ben-0332", "ben-0333", "ben-0335", "ben-0336", "ben-0512", "ben-0514"), NAMES_INSIDE),
    **dict.fromkeys(("ben-0542", "ben-0543", "ben-0544", "ben-0545"), NAMES_INSIDE),
}
"""Every everyday command that the default policy refuses, with its reason."""


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


HOSTILE = rows("gtfobins.jsonl") + rows("cves.jsonl")
EVERYDAY = rows("benign.jsonl")


def lay_out(jail: Path, files: list[Row]) -> Path:
    outside = jail.parent / "outside"
    for folder in (jail, outside):
        folder.mkdir(parents=True)
    (outside / "secret.txt").write_text("HTM-CANARY-7f3a\n")
    for file in files:
        path = Path(str(jail / file["path"]).replace("jail/../", ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if "symlink" in file:
            path.symlink_to(file["symlink"].replace("{JAIL}", str(jail)).replace("{OUT}", str(outside)))
        elif "hardlink_outside" in file:
            path.hardlink_to(outside / "secret.txt")
        elif not file.get("fifo"):
            path.write_text(file.get("content", ""))
    return jail


def judged(policy: Policy, row: Row) -> tuple[bool, str]:
    jail = policy.jail.root
    place = {"{JAIL}": jail, "{OUT}": str(Path(jail).parent / "outside")}
    command, cwd = row["command"], row.get("cwd")
    for mark, path in place.items():
        command = command.replace(mark, path)
        cwd = cwd.replace(mark, path) if cwd else None
    try:
        return verdict(policy, command, cwd)
    except Refusal as refusal:
        return False, refusal.reason


def with_all_profiles() -> bytes:
    return policy_profiles.with_profiles(DEFAULT_POLICY.read_bytes(), policy_profiles.profile_names()).raw


class Verdict(NamedTuple):
    row: Row
    allowed: bool
    reason: str


def hostile_verdicts(folder: Path, raw: bytes) -> Iterator[Verdict]:
    plain = policy_over(lay_out(folder / "plain" / "jail", BASE_FILES), raw)
    for number, row in enumerate(HOSTILE):
        policy = plain
        if "files" in row:
            policy = copy.copy(plain)
            policy.jail = Jail(str(lay_out(folder / str(number) / "jail", BASE_FILES + row["files"])))
        yield Verdict(row, *judged(policy, row))
        if policy is not plain:
            policy.jail.close()


@pytest.fixture(
    scope="module", params=[DEFAULT_POLICY.read_bytes(), with_all_profiles()], ids=["default", "profiles"]
)
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    return list(hostile_verdicts(tmp_path_factory.mktemp("hostile"), request.param))


def test_no_hostile_command_is_allowed_by_the_default_policy_or_a_profile(hostile: list[Verdict]) -> None:
    assert [each.row["id"] for each in hostile if each.allowed and each.row["expected"] == "refuse"] == []


def test_no_refusal_is_long_or_names_a_place_outside_the_jail(hostile: list[Verdict]) -> None:
    assert max(len(each.reason) for each in hostile) <= 300
    outside = ("passwd", "outside/", "CANARY", "id_rsa", "/root/")
    assert [e.row["id"] for e in hostile if not e.allowed and any(part in e.reason for part in outside)] == []


def test_what_must_run_among_the_hostile_rows_is_allowed(hostile: list[Verdict]) -> None:
    refused = {each.row["id"] for each in hostile if each.row["expected"] == "allow" and not each.allowed}
    assert refused == {"cve-0200", "cve-0201"}, "sed scripts other than N,Mp: " + PROGRAM_TEXT


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Row, bool, str]]:
    fixture = json.loads((DATA / "benign_fixture.json").read_text())
    jail = lay_out(tmp_path_factory.mktemp("everyday") / "jail", fixture["files"])
    policy = policy_over(jail, DEFAULT_POLICY.read_bytes())
    return {row["id"]: (row, *judged(policy, row)) for row in EVERYDAY}


def test_at_least_95_percent_of_the_core_everyday_commands_are_allowed(
    everyday: dict[str, tuple[Row, bool, str]],
) -> None:
    counted = Counter(
        allowed
        for row, allowed, _ in everyday.values()
        if (row["tier"], row["expected"]) == ("core", "allow")
    )
    assert counted[True] / counted.total() >= 0.95


def test_at_least_98_percent_are_allowed_where_the_program_is_listed_and_the_grammar_lets_the_text_through(
    everyday: dict[str, tuple[Row, bool, str]],
) -> None:
    listed = {row["program"] for row, allowed, _ in everyday.values() if allowed}
    counted = Counter(
        allowed
        for row, allowed, _ in everyday.values()
        if row["tier"] == "core"
        and row["expected"] == "allow"
        and row["program"] in listed
        and row.get("expected_under_strict_prefilter") != "refuse"
    )
    assert counted[True] / counted.total() >= 0.98


def test_every_refused_everyday_command_has_its_reason_here(
    everyday: dict[str, tuple[Row, bool, str]],
) -> None:
    refused = {
        name for name, (row, allowed, _) in everyday.items() if row["expected"] == "allow" and not allowed
    }
    assert refused == set(REFUSED_EVERYDAY)


def test_no_everyday_command_that_must_be_refused_is_allowed(
    everyday: dict[str, tuple[Row, bool, str]],
) -> None:
    assert [
        name for name, (row, allowed, _) in everyday.items() if row["expected"] == "refuse" and allowed
    ] == []
