"""Fixtures for every folder. Cheap: nothing here imports the MCP SDK or starts a process before a test asks for it."""

from pathlib import Path

import pytest

from tests.support.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place of the test's own; nothing runs in it yet."""
    return Place(tmp_path)
