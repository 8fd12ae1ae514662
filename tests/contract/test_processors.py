"""Where threads and commands may run while many commands do: the broker's threads on one processor, a command on any."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from broker.processors import MANY
from tests.faults.bare_client import BareClient, frame
from tests.support import processes
from tests.support.place import POLICY, Place
from tests.support.waiting import eventually

GIVEN = os.sched_getaffinity(0)
WAITS = "sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo done'"

pytestmark = pytest.mark.skipif(len(GIVEN) < 2, reason="this machine has one processor")


@pytest.fixture(params=["required", "off"])
def client(place: Place, request: pytest.FixtureRequest) -> Iterator[BareClient]:
    """A broker whose programs ask before they start, and one without any filter."""
    place.policy.write_text(f'{POLICY}\n[containment]\nmode = "{request.param}"\n')
    with BareClient(place) as connected:
        connected.greet()
        yield connected


def where(pid: int) -> list[set[int]]:
    """Return the processors of each thread of a process."""
    found = []
    for name in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            found.append(os.sched_getaffinity(int(name)))
    return found


def wait_until_free(pids: set[int]) -> None:
    """Return once every thread of these processes may run on all processors."""
    eventually(lambda: all(each == GIVEN for pid in pids for each in where(pid)), f"{pids} may run anywhere")


def begin(client: BareClient, first: int, count: int) -> set[int]:
    """Begin commands that wait, with ids from `first` on. Returns their processes once they run."""
    others = processes.children(client.pid)
    for number in range(first, first + count):
        client.send(frame("run", id=number, command=WAITS))
    eventually(lambda: len(processes.children(client.pid) - others) == count, "all commands run")
    return processes.children(client.pid) - others


def end(client: BareClient, count: int) -> None:
    """Let them end, and take their answers in any order."""
    (client.place.jail / "go").touch()
    assert [client.reply()["result"]["stdout"] for _ in range(count)] == ["done\n"] * count
    (client.place.jail / "go").unlink()


def test_threads_stay_together_while_many_commands_run_and_each_command_may_run_anywhere(
    client: BareClient,
) -> None:
    for first in (1, 1 + MANY):  # a second time with threads that were made meanwhile
        commands = begin(client, first, MANY)
        eventually(lambda: len(set.union(*where(client.pid))) == 1, "all threads are together")
        wait_until_free(commands)
        end(client, MANY)
        wait_until_free({client.pid})


def test_threads_stay_where_they_are_while_few_commands_run(client: BareClient) -> None:
    commands = begin(client, 1, MANY - 1)
    wait_until_free(commands)
    assert all(each == GIVEN for each in where(client.pid))
    end(client, MANY - 1)
