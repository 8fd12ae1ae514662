"""What the documents say is checked against the repository."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLAIM = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"^\s*def (test_\w+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def names_in(path: Path) -> set[str]:
    return set(TEST.findall(path.read_text(encoding="utf-8")))


def claims() -> dict[str, set[str]]:
    found = CLAIM.findall((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    return {number: set(re.findall(r"`(test_\w+)`", proofs)) for number, _, proofs in found}


def test_every_claim_names_tests_that_exist() -> None:
    existing = set().union(*(names_in(path) for path in ROOT.glob("tests/**/test_*.py")))
    assert claims()
    for number, proofs in claims().items():
        assert proofs, f"claim {number} has no proof"
        assert proofs <= existing, f"claim {number}: {proofs - existing}"


def test_no_file_of_hostile_tests_is_without_a_claim() -> None:
    claimed = set().union(*claims().values())
    hostile = [*ROOT.glob("tests/adversarial/**/test_*.py"), *ROOT.glob("tests/faults/test_*.py")]
    unclaimed = [str(path.relative_to(ROOT)) for path in hostile if not names_in(path) & claimed]
    assert not unclaimed


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken


def test_every_file_that_a_document_names_exists() -> None:
    named = re.compile(r"`((?:broker|frontend|protocol|tests|docs)/[\w./-]*\w)`")
    missing = [
        f"{document.name}: {name}"
        for document in DOCUMENTS
        for name in named.findall(document.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert not missing
