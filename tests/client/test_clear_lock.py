"""`clear_lock`: an admin takes a lock from its holder, and everybody learns of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import events
from tests.client.refusing import AsyncRefusingStore, RefusingStore
from tests.client_modes import result_of


def of(kind: type[events.Event], heard: list[events.Event]) -> list[Any]:
    return [event for event in heard if type(event) is kind]


async def test_a_cleared_lock_is_free_and_its_holder_learns_of_it(
    open_client: Callable[..., Any], store_url: str, other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.Event] = []
    admin = open_client(store_url, hooks=[heard.append])
    assert await admin.clear_lock("a", reason="nothing there") is False
    held = await other.lock("a", ttl=30, on_lost="flag")
    with caplog.at_level(logging.WARNING, "solely"):
        assert await admin.clear_lock("a", reason="the host is gone") is True
    assert of(events.Cleared, heard) == [events.Cleared("lock/a", held.fence, "the host is gone")]
    (line,) = [vars(record) for record in caplog.records if record.message.startswith("lock_cleared: ")]
    assert (line["key"], line["fence"], line["reason"]) == ("lock/a", held.fence, "the host is gone")
    mine = await admin.lock("a", ttl=30, wait=5)
    assert mine.fence > held.fence
    with pytest.raises(solely.LeaseLost, match="cleared"):
        await held.renew()
    assert await held.release() == "cleared"
    assert await mine.release() == "released"
    assert await admin.clear_lock("a", reason="it is free") is False
    assert len(of(events.Cleared, heard)) == 1


async def test_who_waits_gets_a_cleared_lock(once: Any, other: Any) -> None:
    await other.lock("a", ttl=600, on_lost="flag")
    waiting = asyncio.ensure_future(_taken(once))
    await asyncio.sleep(0)
    assert await other.clear_lock("a", reason="the job hangs") is True
    async with asyncio.timeout(100):
        assert (await waiting).key == "a"


async def _taken(once: Any) -> Any:
    return await once.lock("a", ttl=600, wait=30, on_lost="flag")


async def test_a_lock_that_nobody_has_and_that_is_closed_for_a_while_stays_so(once: Any, other: Any) -> None:
    lease = await other.lock("a", ttl=30, on_lost="flag")
    await result_of(lease.keep_closed(at_least=600))
    await lease.release()
    assert await once.clear_lock("a", reason="it is not held") is False
    with pytest.raises(solely.Busy):
        await once.lock("a", wait=0)


async def test_only_the_lock_of_this_name_is_cleared(once: Any, other: Any) -> None:
    held = await other.lock("a", ttl=30, on_lost="flag")
    await other.first("a")
    reserved = await other.reserve("a")
    assert await once.clear_lock("a", reason="the lock alone") is True
    assert await once.seen("a") is True
    assert reserved
    assert held.key == "a"
    assert [info.key for info in await once.reservations()] == ["a"]


@pytest.mark.parametrize("reason", ["", "  ", None, 7, b"x"])
@pytest.mark.parametrize("key", ["a"])
async def test_without_a_reason_nothing_is_sent(kind: str, key: str, reason: Any) -> None:
    once: Any = (
        solely.Client(store=RefusingStore()) if kind == "blocking" else solely.AsyncClient(store=AsyncRefusingStore())
    )
    with pytest.raises(solely.InvalidInput, match="reason"):
        answer = once.clear_lock(key, reason=reason)
        await answer
