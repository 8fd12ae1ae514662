"""docs/architecture.md walks one call, file by file: what a call passes through in a running broker is what it names."""

import re
import subprocess
import sys

from tests.support.documents import ROOT, section
from tests.support.place import Place

WALK = section(ROOT / "docs" / "architecture.md", "A call")
NAMED = set(re.findall(r"`((?:broker|frontend|protocol)/\w+\.py)`", WALK))
SMALL = {"broker/digest.py", "broker/latch.py", "broker/owned_fd.py"}
"""A hash, a lock, a descriptor: used along the way, no step of it."""
OTHERWISE = {
    "broker/census.py": "a call that takes longer",
    "broker/grammar_reasons.py": "a refusal",
    "broker/refusal.py": "a refusal",
    "protocol/messages.py": "nothing but data",
}
"""Named, and passed through by other calls than these."""
BOUND_S = 40.0


def walked(place: Place, command: str) -> set[str]:
    """Return the modules that a call passes through."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.walked_call", command],
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith("OK"), ended.stderr
    return set(ended.stdout.split())


def test_every_module_that_a_call_passes_through_is_named_where_its_way_is_told(place: Place) -> None:
    place.policy.write_text(
        '[commands]\nallow = ["cat"]\n[rules.cat]\noperands = ["path"]\nallow_options = ["-n"]\ntemporary = true\n',
        encoding="utf-8",
    )
    passed = walked(place, "cat -n *.txt")
    assert passed - SMALL <= NAMED
    steps = {name for name in NAMED if not name.startswith("frontend/")}
    assert steps <= passed | OTHERWISE.keys(), "the document names what no call passes through"


def test_every_module_is_named_somewhere() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = [path for folder in ("broker", "frontend", "protocol") for path in (ROOT / folder).glob("*.py")]
    names = {str(path.relative_to(ROOT)) for path in modules if path.name != "__init__.py"}
    assert names == set(re.findall(r"`((?:broker|frontend|protocol)/\w+\.py)`", text))
