"""Something that is made in a thread of its own while the caller does something else: most of the making is waiting.

Always true: what the making raised is raised where the result is asked for, and nowhere else.
"""

import _thread
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Begins at once. What is made is never None."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._made: T | _Failed | None = None
        self._ready = _thread.allocate_lock()
        self._ready.acquire()
        _thread.start_new_thread(self._run, (make,))

    def _run(self, make: Callable[[], T]) -> None:
        try:
            self._made = make()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._made = _Failed(error)
        self._ready.release()

    def result(self) -> T:
        """Wait for it. Raises what its making raised."""
        self._wait(-1)
        if isinstance(self._made, _Failed):
            raise self._made.error
        assert self._made is not None  # noqa: S101 - the wait had no bound
        return self._made

    def within(self, seconds: float) -> T | None:
        """Return it if it is there in time, else None. A signal's handler may ask, wherever it came between."""
        self._wait(seconds)
        return None if isinstance(self._made, _Failed) else self._made

    def _wait(self, seconds: float) -> None:
        # the lock is looked at while nothing is made: a handler never waits for whom it interrupted
        if self._made is None and self._ready.acquire(timeout=seconds):
            self._ready.release()


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error
