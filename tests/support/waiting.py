"""Waiting with a bound: a condition becomes true in time, or the test fails and says what it waited for."""

import threading
import time
from collections.abc import Callable

BOUND_S = 10.0
"""The longest that any test waits for one thing; far more than a healthy run needs on a busy machine."""

_PAUSE_S = 0.005


def eventually(condition: Callable[[], object], what: str, *, bound_s: float = BOUND_S) -> None:
    """Return once `condition` is true. Raises AssertionError, naming `what`, after `bound_s` seconds."""
    deadline = time.monotonic() + bound_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {bound_s} s: {what}")
        pause.wait(_PAUSE_S)
