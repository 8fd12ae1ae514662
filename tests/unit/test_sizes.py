"""Files fit a head, functions fit a screen. `pytest -s tests/unit/test_sizes.py` prints the table."""

import ast
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
MODULE_LINES = 400
FUNCTION_LINES = 50
MEDIAN_LINES = 12

MODULES = sorted(
    path for folder in ("broker", "frontend", "protocol") for path in (ROOT / folder).glob("**/*.py")
)


def function_lengths(path: Path) -> dict[str, int]:
    """Return the length in lines, docstring included, of each function of the module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {f"{path.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1 for node in functions}


def test_no_module_is_longer_than_a_head_holds() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    for name, lines in sorted(lengths.items(), key=lambda item: -item[1]):
        print(f"{lines:5} {name}")
    assert not {name: lines for name, lines in lengths.items() if lines > MODULE_LINES}


def test_no_function_is_longer_than_a_screen_and_most_are_short() -> None:
    lengths = {name: lines for path in MODULES for name, lines in function_lengths(path).items()}
    print(
        f"{len(lengths)} functions, median {median(lengths.values())} lines, longest {max(lengths.values())}"
    )
    assert not {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES}
    assert median(lengths.values()) < MEDIAN_LINES
