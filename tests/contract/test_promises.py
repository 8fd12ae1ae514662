"""What the product promises, checked both ways: each sentence has its tests, each of those tests quotes its sentence."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SENTENCES = tomllib.loads((HERE / "promises.toml").read_text(encoding="utf-8"))["sentence"]
"""Each has a `text` and the names of its `tests`."""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quotations() -> Iterator[tuple[str, str]]:
    """Yield the name and docstring of every test of the contract's sentences."""
    for path in sorted(HERE.glob("test_promised_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.name, _one_line(ast.get_docstring(node) or "")


def test_no_test_of_the_contract_is_named_twice() -> None:
    names = [name for name, _ in _quotations()]
    assert len(names) == len(set(names))


def test_no_sentence_stands_there_twice() -> None:
    texts = [_one_line(sentence["text"]) for sentence in SENTENCES]
    assert len(texts) == len(set(texts))


def test_every_sentence_has_a_test_that_exists_and_quotes_it() -> None:
    quotations = dict(_quotations())
    for sentence in SENTENCES:
        assert sentence["tests"], sentence["text"]
        for name in sentence["tests"]:
            assert quotations.get(name) == _one_line(sentence["text"]), name


def test_every_test_of_the_contract_is_named_by_its_sentence() -> None:
    listed = [name for sentence in SENTENCES for name in sentence["tests"]]
    assert sorted(listed) == sorted(name for name, _ in _quotations())
