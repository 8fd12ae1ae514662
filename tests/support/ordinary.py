"""A check as an ordinary user, whoever runs the tests."""

import os
import warnings
from collections.abc import Callable

ORDINARY_USER = 12_345


def as_ordinary_user(check: Callable[[], bool]) -> bool:
    """Run `check` in a child that is no longer root, here if this is none, and return what it returned."""
    if os.geteuid() != 0:
        return check()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        pid = os.fork()  # the other threads are pytest's timers; the child touches nothing of theirs
    if pid == 0:
        status = 2
        try:
            os.setresgid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            status = 0 if check() else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0
