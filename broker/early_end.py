"""What a signal does before there is anybody to end in order: it ends the process at once, and whoever must not outlive it.

Always true: no traceback, whatever was being imported or built; nothing was served yet, so the trail has no attempt without
its outcome. What has begun by itself (the reaper) ends as it does when this process is killed. Must not import: it comes first.
"""

import _signal  # type: ignore[import-not-found]  # of the module signal, which costs a start its enums
import os

TYPE_CHECKING = False  # typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable

_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
_first: "list[Callable[[], object]]" = []


def begin() -> None:
    """From now on a signal ends this process, with 128 and its number."""
    for number in _ENDING:
        _signal.signal(number, _end)
    # inherited from whoever started us: a signal that is blocked ends nobody, and of an ignored SIGCHLD's children none
    # can be waited for
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ENDING)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def leave() -> None:
    """Signals do again what they do to any Python program."""
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for number in (_signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_DFL)


def first(action: "Callable[[], object]") -> None:
    """Have a signal do this before. It may interrupt the main thread anywhere, and must not wait without a bound."""
    _first.append(action)


def _end(number: int, _frame: object) -> None:
    try:
        for action in _first:
            action()
    finally:
        os._exit(128 + number)
