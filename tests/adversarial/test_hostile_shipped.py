"""Every hostile command under the policy that ships: what must be refused is, what must run does, and nothing escapes.

And without the kernel's help: what lies in the jail leads no program out of it.
"""

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.adversarial import evidence, policies
from tests.adversarial.cage import Cage, Seen
from tests.adversarial.cases import HOSTILE, REFUSED_BY_DESIGN, Case
from tests.adversarial.identity import Identity
from tests.support.repository import begin


@pytest.fixture(scope="module")
def cage(identity: Identity) -> Iterator[Cage]:
    with Cage(policies.SHIPPED, identity) as caged:
        yield caged


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.id)
def test_a_hostile_command_is_refused_or_harmless(cage: Cage, case: Case) -> None:
    for spelling in case.spellings:
        seen = cage.run_case(case, spelling)
        assert not seen.traces, seen
        assert not evidence.passwd_found_in(seen.output), seen
        if case.expected == "refuse" or case.id in REFUSED_BY_DESIGN:
            assert seen.refused, seen
        elif case.expected == "allow":
            assert seen.result.code == "OK" or _is_missing(seen.result.policy_reason), seen
        else:
            assert seen.result.code != "INTERNAL_ERROR", seen


def _is_missing(reason: str) -> bool:
    return "not installed" in reason


_NAMED_IN_THE_JAIL = """
diff -r one two
diff one two
diff one/secret.txt two
diff -rN one missing
grep -r HTM .
grep -r HTM one two
rg -uuu HTM one
rg --debug HTM
find . -type f
find one -newermt 'TZ="{OUT}/secret.txt" 2020-01-01'
date -d 'TZ="{OUT}/secret.txt" now'
ls -lR
du -a
tree -a
tree --gitignore
wc --files0-from=names
sort --files0-from=names
file -f names
md5sum -c sums
sha256sum --check sums
b2sum -c sums
cksum -c sums
jq -n -f program.jq
jq -nf program.jq
jq -n 'import "secret" as $x {search: "{OUT}"}; $x'
nm thin.a
size thin.a
strings thin.a
strings -d thin.a
git diff --no-index one two
git grep --no-index HTM
""".strip().splitlines()
"""Commands that read outside, in one form or another, wherever a program follows what lies in the jail."""


@pytest.fixture(scope="module")
def gate_alone(identity: Identity) -> Iterator[Cage]:
    with Cage(policies.GATE_ALONE, identity) as caged:
        yield caged


def _thin_archive(name: str) -> str:
    """Return an archive that holds the name of its one member in place of the member (ar(1), T)."""
    names = f"{name}/\n"
    names += "\n" * (len(names) % 2)
    member = f"{'/0':<16}{0:<12}{0:<6}{0:<6}{644:<8}{20:<10}`\n"
    return f"!<thin>\n{'//':<48}{len(names):<10}`\n{names}{member}"


def _lay_out_names(cage: Cage) -> None:
    """Make links, lists and archives that lead to the folder outside, and an index that knows no link."""
    secret = cage.outside / "secret.txt"
    (cage.outside / "secret.json").write_text(json.dumps(cage.canary))
    (cage.outside / "globs").write_text("{" + cage.canary + "\n")
    for name in ("one", "two", "one/folder", "two/folder"):
        (cage.jail / name).mkdir()
    (cage.jail / "one" / "secret.txt").write_text("x\n")
    (cage.jail / "one" / "folder" / "secret.txt").write_text("x\n")
    (cage.jail / "two" / "secret.txt").symlink_to(secret)
    (cage.jail / "two" / "linked").symlink_to(cage.outside)
    (cage.jail / "two" / "folder").rmdir()
    (cage.jail / "two" / "folder").symlink_to(cage.outside)
    (cage.jail / "names").write_text(f"{secret}\0")
    (cage.jail / "sums").write_text("".join(f"{'0' * length}  {secret}\n" for length in (32, 64, 128)))
    (cage.jail / "program.jq").write_text(f'import "secret" as $x {{search: "{cage.outside}"}}; $x\n')
    (cage.jail / "thin.a").write_text(_thin_archive(str(secret)))
    (cage.jail / "src" / "secret.txt").write_text("x\n")
    (cage.jail / "sub").mkdir()
    (cage.jail / "sub" / ".ignore").symlink_to(cage.outside / "globs")
    begin(cage.jail)
    shutil.rmtree(cage.jail / "src")
    (cage.jail / "src").symlink_to(cage.outside)


def _run_among_names(cage: Cage, command: str) -> Seen:
    cage.prepare(lambda: _lay_out_names(cage))
    try:
        return cage.run(command, programs=(command.split(maxsplit=1)[0],))
    finally:
        cage.restore(changed=True)


@pytest.mark.parametrize("command", _NAMED_IN_THE_JAIL)
def test_no_program_reads_outside_what_something_in_the_jail_names_even_without_the_kernel(
    gate_alone: Cage, command: str
) -> None:
    seen = _run_among_names(gate_alone, command.replace("{OUT}", str(gate_alone.outside)))
    assert not seen.failed, seen
    assert not seen.traces, seen


def test_rg_prints_nothing_of_an_ignore_file_that_is_a_link(gate_alone: Cage) -> None:
    seen = _run_among_names(gate_alone, "rg alpha sub")
    assert seen.result.code == "OK", seen
    assert gate_alone.canary not in seen.output
