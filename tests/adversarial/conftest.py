"""Cages for hostile commands: one broker for all cases of a module under one policy and one identity."""

import pytest

from tests.adversarial.identity import IDENTITIES, Identity, NoInterpreterError, interpreter_for


@pytest.fixture(scope="module", params=IDENTITIES, ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    """Whom the broker runs as."""
    chosen: Identity = request.param
    try:
        interpreter_for(chosen)
    except NoInterpreterError as problem:
        pytest.skip(str(problem))
    return chosen
