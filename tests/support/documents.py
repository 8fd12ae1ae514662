"""The documents as data: their fenced blocks, and the commands that they show."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = ROOT / "README.md"

SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("broker", "frontend", "protocol")
    for path in sorted((ROOT / folder).glob("*.py"))
)
"""The text of all modules."""

VARIABLE = re.compile(r"\bHTMCP_[A-Z_]+\b")
VARIABLES_IN_CODE = set(VARIABLE.findall(SOURCES))

_FENCED = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block; `note` is what stands behind the language."""

    document: str
    line: int
    language: str
    note: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(path: Path, language: str = "") -> list[Block]:
    """Return the fenced blocks of a document, of one language or of all."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    found = [
        Block(name, text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3])
        for match in _FENCED.finditer(text)
    ]
    return [block for block in found if not language or block.language == language]


def section(path: Path, heading: str) -> str:
    """Return what stands below a heading of the second level. Raises ValueError."""
    text = path.read_text(encoding="utf-8")
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    return text[start : end if end > 0 else len(text)]


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of the tables in `text`, heads included, rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
