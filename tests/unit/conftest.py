"""What several of the tests of one part alone need."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture
def loop() -> Iterator[asyncio.SelectorEventLoop]:
    """An event loop that nobody has run yet."""
    made = asyncio.SelectorEventLoop()
    yield made
    made.close()
