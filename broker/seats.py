"""Where threads wait for their tasks: those that wait, those on their way, and the tasks for which none is there yet.

Always true: a task that was taken reaches one thread, or is given back by `lose`; nobody waits for a thread that will
not come. Nothing here makes a thread.
"""

import _thread
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _Seat(Generic[T]):
    """Where one thread waits. A queue for all would wake two threads a call, of which one waits again."""

    __slots__ = ("_called", "_task")

    def __init__(self) -> None:
        self._task: T | None = None
        self._called = _thread.allocate_lock()
        self._called.acquire()

    def call(self, task: T | None) -> None:
        """Wake the thread with a task, or with None to let it go. To be called once."""
        self._task = task
        self._called.release()

    def wait(self) -> T | None:
        """Wait for the call, and return the task."""
        self._called.acquire()
        return self._task


class Seats(Generic[T]):
    """Threads of one kind, of which `warm` shall wait when nothing else is to be done."""

    def __init__(self, warm: int) -> None:
        self._warm = warm
        self._lock = _thread.allocate_lock()
        self._seats: list[_Seat[T]] = []
        self._tasks: deque[T] = deque()
        self._coming = 0

    def give(self, task: T) -> int:
        """Give a task to a thread that waits or is on its way. Returns how many have to be made."""
        with self._lock:
            seat = self._seats.pop() if self._seats else None
            if seat is None:
                self._tasks.append(task)
            missing = len(self._tasks) > self._coming
            self._coming += missing
        if seat is not None:
            seat.call(task)
        return int(missing)

    def missing(self) -> int:
        """Return how many have to be made in the place of those that were used; they count as on their way."""
        with self._lock:
            missing = max(0, self._warm + len(self._tasks) - len(self._seats) - self._coming)
            self._coming += missing
        return missing

    def wait(self) -> T | None:
        """Wait, as a thread that has come, for its task; None: there is none any more."""
        seat: _Seat[T] = _Seat()
        with self._lock:
            self._coming -= 1
            task = self._tasks.popleft() if self._tasks else None
            if task is None:
                self._seats.append(seat)
        return task or seat.wait()

    def lose(self) -> list[T]:
        """One that was on its way will not come. Returns the tasks that nobody is left for; a later call tries again."""
        with self._lock:
            self._coming -= 1
            return [self._tasks.popleft() for _ in range(len(self._tasks) - self._coming)]

    def dismiss(self) -> None:
        """Let those go that wait."""
        with self._lock:
            seats, self._seats = self._seats, []
        for seat in seats:
            seat.call(None)
