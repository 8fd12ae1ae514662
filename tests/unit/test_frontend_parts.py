"""Parts of the MCP frontend that a whole process cannot be brought to show: turns, and progress that does not rise."""

import asyncio

import pytest

from frontend.broker_link import BrokerLink
from frontend.conversation import Conversation, RequestContext
from frontend.jsonrpc import Message
from frontend.tools import Run
from protocol.client import ClientConnection
from protocol.messages import MalformedRequest, RunRequest
from tests.fake_broker import FakeBroker

BOUND_S = 10


def run(loop, coroutine):
    return loop.run_until_complete(asyncio.wait_for(coroutine, BOUND_S))


def linked(loop, broker):
    connection = ClientConnection("test")
    broker.frontend.sendall(connection.hello())
    while connection.welcome is None:
        connection.feed(broker.frontend.recv(65536))
    return BrokerLink(broker.frontend.fileno(), connection, loop)


def test_a_link_is_made_of_a_connection_that_was_welcomed(loop):
    with pytest.raises(ValueError, match="handshake"):
        BrokerLink(0, ClientConnection("test"), loop)


def test_a_turn_that_comes_together_with_a_cancellation_is_used_to_report_it_and_handed_on(loop):
    async def scene(link, broker):
        first = loop.create_task(link.call(Run("hold", None)))
        second = loop.create_task(link.call(Run("echo 2", None)))
        third = loop.create_task(link.call(Run("echo 3", None)))
        while not broker.received:
            await asyncio.sleep(0)
        turn = link._turns[0]
        broker.release()
        while not turn.done():
            await asyncio.sleep(0)
        # The turn has been given, and the task that waited for it has not run yet.
        second.cancel()
        assert (await first).stdout == "released\n"
        assert (await third).stdout == "3\n"
        assert second.cancelled()
        assert [type(request) for request in broker.received] == [RunRequest, MalformedRequest, RunRequest]

    with FakeBroker(in_flight=1) as broker:
        run(loop, scene(linked(loop, broker), broker))


def test_a_cancelled_call_ends_only_when_the_broker_has_answered_however_often_it_is_cancelled(loop):
    async def scene(link, broker):
        call = loop.create_task(link.call(Run("hold", None)))
        while not broker.received:
            await asyncio.sleep(0)
        with broker._taking:
            for _ in range(3):
                call.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert not call.done()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert link._asked == {}

    with FakeBroker() as broker:
        run(loop, scene(linked(loop, broker), broker))


def test_many_calls_at_once_never_exceed_what_the_broker_allows(loop):
    async def scene(link):
        results = await asyncio.gather(*(link.call(Run(f"echo {number}", None)) for number in range(300)))
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(300)]

    with FakeBroker(in_flight=3) as broker:
        run(loop, scene(linked(loop, broker)))
        assert broker.most_unanswered <= 3


def test_progress_that_does_not_rise_is_not_told_and_none_after_the_answer(loop):
    written: list[bytes] = []
    conversation = Conversation(loop, written.append, lambda: None)
    context = RequestContext(conversation, Message("tools/call", {"_meta": {"progressToken": 1}}, 5))

    async def scene():
        for value in (1.0, 1.0, 0.5, 2.0):
            await context.progress(value)
        context.close()
        await context.progress(3.0)

    run(loop, scene())
    assert [line.partition(b'"progress":')[2][:3] for line in written] == [b"1.0", b"2.0"]
