"""`check` warns of entries that are legal and hardly meant."""

from pathlib import Path

import pytest

from broker import policy_profiles
from broker.policy_check import check
from tests.support.gate import DEFAULT_POLICY, policy_over

PYTHON = "[commands]\nallow = ['python3']\n[rules.python3]\n"


def warnings(folder: Path, text: str | bytes) -> list[str]:
    return [str(warned) for warned in check(policy_over(folder, text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[commands]\nallow = ['sh']", "[commands] allow: sh runs any program"),
        ("[commands]\nallow = ['env']\n[rules.env]\nallow_options = []", "[rules.env]: env runs any program"),
        ("[commands]\nallow = ['/usr/bin/xargs']", "xargs runs any program"),
        ("[commands]\nallow = ['python3']", "python3 runs programs from its arguments"),
        ("[commands]\nallow = ['find']", "some options of find write files or start programs"),
        ("[commands]\nallow = ['find']\n[rules.find]\ndeny_options = ['-exec']", "some options of find"),
        ("[commands]\nallow = ['ls']\ndeny = ['ls']", "[commands]: ls is on both lists: it is denied"),
        ("[commands]\ndeny = ['ls']\n[rules.ls]\nwrites = true", "[rules.ls]: never holds"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\noperands = ['none', 'path']",
            "behind 'none' never matches",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['-a']\ninstead = { '-a' = 'x' }",
            "is never given",
        ),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = ['-a']\ndeny_options = ['-b']",
            "-b is not in allow_options, so it is refused anyway",
        ),
        ("[options]\nx = ['-a']", "[options] x: is used by no rule"),
        ("[commands]\nallow = ['no-such-program']", "[commands] allow: no-such-program: is not installed"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\narguments = 'any'\nwrites = true",
            'arguments = "any" together',
        ),
        ("[commands]\ndeny = ['ls']", "[commands]: allows no program, so every command is refused"),
        (
            "[commands]\nallow = ['ls']\n[rules.ls]\nmay_run = ['sh', 'lss']",
            "[rules.ls]: may_run: what is not installed, or unfit, starts nothing: lss",
        ),
        (
            "[commands]\nallow = ['g']\n[rules.g.subcommand.log]\nmay_run = ['lss']",
            "[rules.g.subcommand.log]: may_run: what is not installed",
        ),
        (
            "[commands]\nallow = ['ls']\ndeny = ['cat']\n[rules.ls]\nmay_run = ['cat']",
            "[rules.ls]: may_run: cat is denied, so nothing starts it",
        ),
        (f"{PYTHON}allow_options = ['-c=text']", "[rules.python3]: python3 runs whatever it is given: -c"),
        (
            f"{PYTHON}subcommands = ['x']\n[rules.python3.subcommand.x]\nallow_options = ['-c=text']",
            "subcommand.x]: python3",
        ),
        (
            "[commands]\nallow = ['awk']\n[rules.awk]\nallow_options = []\noperands = ['text', 'path']",
            "the first operand",
        ),
        (
            "[environment]\npath = ['/no/such/folder', '/usr/bin']",
            "[environment] path: /no/such/folder is no folder",
        ),
        ("[containment]\nmode = 'off'", "[containment] mode: nothing confines"),
        ("[audit]\nlog = 'trail.jsonl'", "[audit] log: trail.jsonl depends on the folder"),
    ],
)
def test_an_odd_entry_is_warned_of(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in line for line in warnings(tmp_path, text))


@pytest.mark.parametrize("name", [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".git/hooks"])
def test_what_starts_programs_outside_the_jail_is_warned_of_where_an_entry_may_write_it(
    tmp_path: Path, name: str
) -> None:
    reads = "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = []"
    writes = f"{reads}\nwrites = true"
    assert warnings(tmp_path, writes) == []
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    (told,) = warnings(tmp_path, writes)
    assert told.startswith(f"[jail]: entries with `writes` may change {name}: ")
    assert "unconfined" in told
    assert warnings(tmp_path, reads) == []


def test_a_program_in_the_jail_and_one_that_others_may_write_are_warned_of(tmp_path: Path) -> None:
    jail, bin_folder = tmp_path / "jail", tmp_path / "bin"
    (jail / "bin").mkdir(parents=True)
    bin_folder.mkdir()
    for folder, name in ((jail / "bin", "inner"), (bin_folder, "shared")):
        (folder / name).write_text("#!/bin/true\n")
        (folder / name).chmod(0o777)
    text = f"[commands]\nallow = ['inner', 'shared']\n[environment]\npath = ['{jail}/bin', '{bin_folder}']"
    told = warnings(jail, text)
    for name in ("inner", "shared"):
        assert any(f"{name}: " in line or f"{name}, " in line for line in told)
    assert not any("not installed" in line for line in told)


def test_the_default_policy_is_warned_of_only_where_a_program_is_missing(tmp_path: Path) -> None:
    assert [
        line for line in warnings(tmp_path, DEFAULT_POLICY.read_bytes()) if "not installed" not in line
    ] == []


@pytest.mark.parametrize("name", policy_profiles.profile_names())
def test_a_profile_is_warned_of_only_where_a_program_is_missing(tmp_path: Path, name: str) -> None:
    raw = policy_profiles.with_profiles(DEFAULT_POLICY.read_bytes(), [name]).raw
    assert [line for line in warnings(tmp_path, raw) if "not installed" not in line] == []


def test_what_fails_for_the_same_reason_is_one_warning(tmp_path: Path) -> None:
    two = "[commands]\nallow = ['lss', 'catt']\n[rules.lss]\nallow_options = []\n[rules.catt]\nallow_options = []\n"
    (told,) = warnings(tmp_path, two)
    assert told.startswith("[commands] allow: lss, catt: are not installed")
    rules = "".join(
        f"[rules.{name}]\nallow_options = []\nmay_run = ['lss']\n" for name in ("ls", "cat", "wc")
    )
    (told,) = warnings(tmp_path, "[commands]\nallow = ['ls', 'cat', 'wc']\n" + rules)
    assert told.startswith("[rules.ls] and 2 more: may_run: what is not installed")


def test_another_place_of_a_program_that_is_there_is_not_missed(tmp_path: Path) -> None:
    rule = "[commands]\nallow = ['ls']\n[rules.ls]\nallow_options = []\nmay_run = ['cat', '/nowhere/cat']\n"
    assert warnings(tmp_path, rule) == []
