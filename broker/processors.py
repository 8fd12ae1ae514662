"""Where the broker's threads run: on one processor while many commands run, since the interpreter's lock lets one of
them go on at a time anyway, and handing it from one processor to another costs more than what is done in between.

Always true: a command may use every processor that the broker was given; what cannot be set is left as it is, as it
costs time and nothing else.
"""

import contextlib
import os
from collections.abc import Iterable
from typing import Final

from broker import kernel

MANY: Final = 3
"""Commands that run at once. With fewer, their threads do more beside each other than they wait for the lock."""

_GIVEN: Final = os.sched_getaffinity(0)


def free(pid: int) -> None:
    """Let the process or thread `pid` run on all that the broker was given (sched_setaffinity(2))."""
    _set(pid, _GIVEN)


class Together:
    """Brings all threads of this process together while many commands run, and lets them go when none does."""

    def __init__(self) -> None:
        self._gathered = False

    def look(self, running: int) -> None:
        """Do what so many running commands ask for."""
        if running >= MANY and not self._gathered:
            self._gathered = True
            self._all({kernel.processor()})
        elif running == 0 and self._gathered:
            self._gathered = False
            self._all(_GIVEN)

    @staticmethod
    def _all(processors: Iterable[int]) -> None:
        done: set[str] = set()
        with contextlib.suppress(OSError):  # where /proc is missing they stay where they are
            while (
                found := set(os.listdir("/proc/self/task")) - done
            ):  # one may have been made by one not yet moved
                done |= found
                for name in found:
                    _set(int(name), processors)


def _set(pid: int, processors: Iterable[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended, or may use none of them any more
        os.sched_setaffinity(pid, processors)
