"""Threads that wait, tasks that come: nobody waits for what does not come, and nothing is lost."""

import threading
from queue import SimpleQueue

from broker.seats import Seats
from tests.support.waiting import eventually


def come(seats: Seats[str], taken: "SimpleQueue[str | None]") -> threading.Thread:
    """Return a thread that has come and puts what it was given."""
    thread = threading.Thread(target=lambda: taken.put(seats.wait()), daemon=True)
    thread.start()
    return thread


def test_a_task_goes_to_a_thread_that_waits() -> None:
    seats: Seats[str] = Seats(1)
    taken: SimpleQueue[str | None] = SimpleQueue()
    assert seats.missing() == 1
    thread = come(seats, taken)
    eventually(lambda: seats._seats, "the thread waits")
    assert seats.give("task") == 0
    thread.join(timeout=5)
    assert taken.get(timeout=5) == "task"


def test_a_task_waits_for_a_thread_on_its_way_and_orders_no_other() -> None:
    seats: Seats[str] = Seats(1)
    taken: SimpleQueue[str | None] = SimpleQueue()
    assert seats.missing() == 1
    assert seats.give("task") == 0
    come(seats, taken)
    assert taken.get(timeout=5) == "task"


def test_each_task_beyond_those_that_come_orders_one_thread() -> None:
    seats: Seats[str] = Seats(0)
    assert [seats.give(task) for task in ("one", "two", "three")] == [1, 1, 1]
    taken: SimpleQueue[str | None] = SimpleQueue()
    for _ in range(3):
        come(seats, taken)
    assert sorted(str(taken.get(timeout=5)) for _ in range(3)) == ["one", "three", "two"]


def test_a_thread_that_does_not_come_gives_back_the_task_that_nobody_is_left_for() -> None:
    seats: Seats[str] = Seats(0)
    assert (seats.give("one"), seats.give("two")) == (1, 1)
    assert seats.lose() == ["one"]
    assert seats.lose() == ["two"]
    assert seats.give("three") == 1


def test_what_was_used_is_missing_once() -> None:
    seats: Seats[str] = Seats(2)
    assert seats.missing() == 2
    assert seats.missing() == 0
    seats.lose()
    assert seats.missing() == 1


def test_who_waits_is_let_go() -> None:
    seats: Seats[str] = Seats(1)
    taken: SimpleQueue[str | None] = SimpleQueue()
    seats.missing()
    come(seats, taken)
    eventually(lambda: seats._seats, "the thread waits")
    seats.dismiss()
    assert taken.get(timeout=5) is None
