"""Clients on a running server; a test that needs no server of its own shares one with the others."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.place import Place
from tests.support.raw_client import RawClient
from tests.support.sdk_client import SdkClient

if TYPE_CHECKING:  # a cage is no part of most tests' start
    from tests.contract.workshop import Workshop


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """The SDK's client on a server that tests share."""
    with SdkClient(Place(tmp_path_factory.mktemp("shared"))) as connected:
        yield connected


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A client of raw lines, its handshake done, on a server that tests share."""
    with RawClient(Place(tmp_path_factory.mktemp("raw"))) as connected:
        connected.initialize()
        yield connected


@pytest.fixture
def workshop(shared: "Workshop") -> "Iterator[Workshop]":
    """The module's `shared` workshop, as it was before the test when the next one comes."""
    yield shared
    shared.restore(changed=True)
