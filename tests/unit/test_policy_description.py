"""The description of a policy is complete where it fits, bounded where it does not, and tells nothing private."""

from pathlib import Path

import pytest

from broker import policy_profiles
from broker.describe import DESCRIPTION_BYTES
from tests.support.gate import DEFAULT_POLICY, policy_over


def test_the_default_policy_is_described_with_every_program_and_subcommand_under_8_kib(
    tmp_path: Path,
) -> None:
    policy = policy_over(tmp_path, DEFAULT_POLICY.read_bytes())
    text = policy.describe()
    assert len(text.encode()) < DESCRIPTION_BYTES
    lines = text.splitlines()
    for name in policy.programs:
        assert any(name in line.partition(":")[0].split(", ") for line in lines)
    assert any(line.startswith("  git log, show") and "-n,--max-count" in line for line in lines)
    assert "30 s" in text
    assert "Never available: a shell, pipes" in text


@pytest.mark.parametrize("count", [0, 1, 300, 3_000])
def test_any_policy_is_described_under_8_kib(tmp_path: Path, count: int) -> None:
    names = [f"program-with-a-long-name-{number}" for number in range(count)]
    text = policy_over(tmp_path, f"[commands]\nallow = {names}").describe()
    assert len(text.encode()) < DESCRIPTION_BYTES
    assert count < 300 or "more" in text or names[-1] in text


def test_rights_are_described(tmp_path: Path) -> None:
    policy = policy_over(
        tmp_path,
        "[commands]\nallow = ['a', 'b']\n[rules.a]\nwrites = true\nnetwork = true\n[rules.b]\ntemporary = true",
    )
    assert "\na [writes] [network]: any options" in policy.describe()
    assert "\nb [temporary folder]: any options" in policy.describe()


def test_places_outside_the_jail_and_fixed_variables_are_not_described(tmp_path: Path) -> None:
    policy = policy_over(
        tmp_path,
        "[commands]\nallow = ['a']\n[rules.a]\nread = ['/opt/private']\nenvironment = { A = 'hidden' }\n"
        "arguments_before = ['--inner']",
    )
    for private in ("/opt/private", "hidden", "--inner", str(tmp_path)):
        assert private not in policy.describe()


def test_a_policy_with_all_profiles_still_names_every_program(tmp_path: Path) -> None:
    raw = policy_profiles.with_profiles(DEFAULT_POLICY.read_bytes(), policy_profiles.profile_names()).raw
    policy = policy_over(tmp_path, raw)
    lines = policy.describe().splitlines()
    for name in policy.programs:
        assert any(name in line.partition(":")[0].partition(" [")[0].split(", ") for line in lines)
