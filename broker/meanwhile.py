"""Something that is made in a thread of its own while the caller does something else: most of the making is waiting.

Always true: what the making raised is raised where the result is asked for, and nowhere else.
"""

import _thread
from _queue import SimpleQueue  # `queue` is the same behind 2 ms of imports
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Begins at once. `result` is to be called once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._made: SimpleQueue[T | _Failed] = SimpleQueue()
        _thread.start_new_thread(self._run, (make,))

    def _run(self, make: Callable[[], T]) -> None:
        try:
            self._made.put(make())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._made.put(_Failed(error))

    def result(self) -> T:
        """Wait for it. Raises what its making raised."""
        made = self._made.get()
        if isinstance(made, _Failed):
            raise made.error
        return made


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error
