"""Cages for hostile commands: one broker for all cases of a module under one policy and one identity."""

import pytest

from tests.adversarial.identity import IDENTITIES, Identity, NoInterpreterError, interpreter_for


def _usable(chosen: Identity) -> Identity:
    try:
        interpreter_for(chosen)
    except NoInterpreterError as problem:
        pytest.skip(str(problem))
    return chosen


@pytest.fixture(scope="module", params=IDENTITIES, ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    """Whom the broker runs as: each in turn."""
    return _usable(request.param)


@pytest.fixture(scope="module")
def least_identity() -> Identity:
    """Whom the broker runs as where one identity says enough: an ordinary user, if we can become one."""
    return _usable(IDENTITIES[-1])
