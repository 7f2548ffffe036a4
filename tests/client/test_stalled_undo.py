"""A caller that is canceled while the network or the server stalls leaves nothing taken: what undoes its op never
overtakes that op, however long it is on its way."""

import asyncio
from typing import Any

import pytest

from solely import AsyncClient, Entry, State
from solely.model import item_key
from solely.ops import Read
from solely.queues.flow import queue_of
from solely.testing.proxy import FaultProxy
from tests.client.modes import Observer
from tests.conftest import PATIENT

STALL = 1.6  # seconds: longer than the second that an undo once waited, shorter than the timeout of the client


@pytest.mark.parametrize("call", ["take", "push_held"])
async def test_a_canceled_take_on_a_stalled_connection_leaves_the_item_free(
    proxied_url: str, proxy: FaultProxy, beside: Observer, call: str
) -> None:
    async with AsyncClient(proxied_url, timeout=PATIENT) as once:
        queue = once.queue("work")
        await queue.push("other", "x")
        assert await queue.take(ttl=60) is not None  # a connection is open, and the listener's
        if call == "take":
            await queue.push("item", "x")
        stalled = proxy.delay("to_server", STALL, where=lambda data: b"work" in data)
        work: Any = queue.take(ttl=60) if call == "take" else queue.push_held("item", "x", ttl=60)
        await _canceled(asyncio.ensure_future(work), stalled)

        def found() -> Entry:
            entry: Entry = beside.perform(Read(item_key(queue_of("work"), "item")))[0]
            return entry

        assert (found().state, found().attempts) == (State.FREE, 0)


async def test_a_canceled_limit_on_a_stalled_connection_keeps_no_hit(
    proxied_url: str, proxy: FaultProxy, beside: Observer
) -> None:
    async with AsyncClient(proxied_url, timeout=PATIENT) as once:
        assert await once.limit("other", limit=1, per=60)
        stalled = proxy.delay("to_server", STALL, where=lambda data: b"calls" in data)
        await _canceled(asyncio.ensure_future(once.limit("calls", limit=1, per=60)), stalled)
        assert await once.limit("calls", limit=1, per=60)


async def test_a_canceled_undo_keeps_no_hit(direct_url: str) -> None:
    """At whichever turn of the loop it is canceled, once it has begun."""
    async with AsyncClient(direct_url, timeout=PATIENT) as once:
        for turns in range(1, 12):
            admission = await once.limit(f"calls-{turns}", limit=1, per=60)
            undoing = asyncio.ensure_future(admission.undo())
            for _ in range(turns):
                await asyncio.sleep(0)
            undoing.cancel()
            await asyncio.wait([undoing])
            assert await once.limit(f"calls-{turns}", limit=1, per=60), turns


async def _canceled(task: "asyncio.Future[Any]", stalled: Any) -> None:
    assert await asyncio.to_thread(stalled.wait, PATIENT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(STALL)  # an undo that did not wait would have been performed before what it should undo
