"""Hooks are told what happened; a hook that raises harms nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import events
from solely.ops import Clear
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import concurrently
from tests.client.modes import Observer

TTL = 3.0  # seconds: its renewal may be late by half of it, on a machine that stalls


def of(kind: type[events.Event], told: list[events.Event]) -> list[Any]:
    return [event for event in told if type(event) is kind]


async def renewed(told: list[events.Event]) -> None:
    """Returns when the lease has been renewed three times: it then lives longer than its ttl."""
    async with asyncio.timeout(100):
        while len(of(events.Renewed, told)) < 3:
            await asyncio.sleep(0.02)


@concurrently()
async def test_the_life_of_a_lease_is_told(open_client: Callable[..., Any], store_url: str) -> None:
    told: list[events.Event] = []
    once = open_client(store_url, hooks=[told.append])
    async with once.lock("a", ttl=TTL) as lease:
        await renewed(told)
    (acquired,) = of(events.Acquired, told)
    assert (acquired.key, acquired.fence) == ("lock/a", lease.fence)
    assert of(events.Renewed, told)
    assert all(event.fence == lease.fence and event.left > 0 for event in of(events.Renewed, told))
    (released,) = of(events.ReleasedLease, told)
    assert (released.key, released.fence, released.outcome) == ("lock/a", lease.fence, "released")
    assert released.held >= TTL
    assert not of(events.Lost, told)


@concurrently()
async def test_a_loss_is_told_once_with_how(
    open_client: Callable[..., Any], store_url: str, observer: Observer
) -> None:
    told: list[events.Event] = []
    once = open_client(store_url, hooks=[told.append])
    lease = await once.lock("a", ttl=TTL, on_lost="flag")
    observer.perform(Clear("lock/a", lease.fence, "test"))
    expiring = await once.lock("b", ttl=1.0, renew=False, on_lost="flag")
    async with asyncio.timeout(100):
        while len(of(events.Lost, told)) < 2:
            await asyncio.sleep(0.01)
    assert {(e.key, e.fence, e.how) for e in of(events.Lost, told)} == {
        ("lock/a", lease.fence, "cleared"),
        ("lock/b", expiring.fence, "expired"),
    }


async def test_contention_and_marks_are_told(open_client: Callable[..., Any], store_url: str, other: Any) -> None:
    told: list[events.Event] = []
    once = open_client(store_url, hooks=[told.append], cache=True)
    async with other.lock("a", ttl=30, purpose="audit"):
        with pytest.raises(solely.Busy):
            await once.lock("a", wait=0.05)
    (contended,) = of(events.Contended, told)
    assert contended.key == "lock/a"
    assert "audit" in contended.holder
    await once.first("m")
    await once.first("m")
    await once.first_many(["m", "n"])
    marked = [(e.key, e.first, e.cached) for e in of(events.Marked, told)]
    assert marked[:2] == [("mark/m", True, False), ("mark/m", False, True)]
    assert sorted(key_first[:2] for key_first in marked[2:]) == [("mark/m", False), ("mark/n", True)]


async def test_repeated_tries_are_told(proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]) -> None:
    told: list[events.Event] = []
    once = open_client(proxied_url, timeout=2.0, hooks=[told.append])
    await once.seen("warm")
    proxy.drop_replies(answering=lambda request: b"mark/a" in request, then="reset")
    assert await once.first("a")
    (retried,) = of(events.Retried, told)
    assert (retried.key, retried.op, retried.tries) == ("mark/a", "Mark", 1)
    assert retried.error


@concurrently()
async def test_a_hook_that_raises_harms_nothing(
    open_client: Callable[..., Any], store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[events.Event] = []

    def fails(event: events.Event) -> None:
        raise RuntimeError("a hook of little quality")

    once = open_client(store_url, hooks=[fails, told.append])
    async with once.lock("a", ttl=TTL) as lease:
        assert await once.first("m")
        await renewed(told)
        assert not lease.lost
    assert of(events.ReleasedLease, told)
    assert any(record.message.startswith("hook_failed: ") for record in caplog.records)


async def test_events_are_frozen(open_client: Callable[..., Any]) -> None:
    told: list[Any] = []
    once = open_client("memory://", hooks=[told.append])
    await once.first("a")
    with pytest.raises(AttributeError):
        told[0].key = "other"
