"""Single-flight: the callers of one process share one question to the store, and nobody's end harms the others."""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import AsyncClient, State
from solely.rules import LOOK_AGAIN
from solely.testing.clock import ManualClock
from tests.claims.counting import Counted
from tests.claims.modes import PROMPT, Peek, in_line, inner

CALLERS = 50


@pytest.fixture
def counted(kind: str, store_url: str, clock: ManualClock) -> Counted:
    return Counted(kind, store_url, clock)


@pytest.fixture
def counting(open_client: Callable[..., Any], store_url: str, counted: Counted) -> Any:
    """A client whose ops are counted."""
    return open_client(store_url, store=counted)


async def test_callers_of_one_process_cost_one_claim_and_one_publish(counting: Any, counted: Counted) -> None:
    won = await counting.claim("a")
    waiting = [asyncio.ensure_future(counting.claim("a", wait=30)) for _ in range(CALLERS)]
    await in_line(counting, "a", CALLERS)
    await won.publish({"id": 1})
    claims = await asyncio.wait_for(asyncio.gather(*waiting), PROMPT)
    assert all(claim.value == {"id": 1} for claim in claims)
    assert claims[0].value is not claims[1].value  # nobody can change another's
    assert counted.names() == ["Acquire", "Finish"]
    gc.collect()
    assert not inner(counting)._flights._in_flight


async def test_callers_of_another_process_cost_two_ops(counting: Any, counted: Counted, other: Any) -> None:
    await (await counting.claim("warm")).release()  # from now on hints come, where there are any
    counted.ops.clear()
    won, begun = await other.claim("a"), time.monotonic()
    waiting = [asyncio.ensure_future(counting.claim("a", wait=30)) for _ in range(CALLERS)]
    await in_line(counting, "a", CALLERS)
    await won.publish("x")
    claims = await asyncio.wait_for(asyncio.gather(*waiting), PROMPT)
    assert {claim.value for claim in claims} == {"x"}
    assert set(counted.names()) == {"Acquire"}
    if not counted.polls:
        looks = 1 + int((time.monotonic() - begun) / LOOK_AGAIN)
        assert len(counted.ops) <= 2 + looks  # refused, then answered; and what looked again in between


async def test_without_a_cache_later_callers_ask_the_store(counting: Any, counted: Counted, other: Any) -> None:
    await (await counting.claim("a")).publish(1)
    assert (await counting.claim("a")).value == 1
    assert (await counting.claim("a")).value == 1
    assert counted.names() == ["Acquire", "Finish", "Acquire", "Acquire"]
    assert await other.reset("a", expected=1)
    assert (await counting.claim("a")).won


async def test_with_a_cache_later_callers_cost_nothing(
    open_client: Callable[..., Any], store_url: str, counted: Counted, other: Any
) -> None:
    cached = open_client(store_url, store=counted, cache=True)
    await (await cached.claim("mine", fingerprint="x")).publish({"id": 1})
    await (await other.claim("theirs")).publish_tombstone("streamed")
    assert (await cached.claim("theirs")).tombstone
    before = len(counted.ops)
    for _ in range(3):
        again = await cached.claim("mine", fingerprint="x")
        assert (again.cached, again.value, again.attempt) == (True, {"id": 1}, 1)
        assert (await cached.claim("theirs")).tombstone
        with pytest.raises(solely.Mismatch):
            await cached.claim("mine", fingerprint="y")
    assert len(counted.ops) == before
    assert await cached.reset("mine", expected={"id": 1})
    assert (await cached.claim("mine", fingerprint="y")).won


async def test_only_resolved_claims_are_cached_and_not_beyond_their_keep(
    open_client: Callable[..., Any], store_url: str, other: Any, clock: ManualClock
) -> None:
    cached = open_client(store_url, clock=clock, cache=True)
    claim = await cached.claim("a")
    assert (await other.claim("a", wait=0)).timed_out
    assert (await cached.claim("a", wait=0)).timed_out
    await claim.release()
    assert (await cached.claim("a", keep=0.05, policy=None)).won
    other_claim = await cached.claim("b", keep=0.05)
    await other_claim.publish(1)
    ends = time.monotonic() + PROMPT
    while inner(cached)._context.cache.has("claim/b"):
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)
    clock.advance(0.06)
    assert (await cached.claim("b")).won


async def test_bug_11_leader_of_a_single_flight_cancelled(store_url: str) -> None:
    """The followers go on: one of them asks, and all get the value."""
    async with AsyncClient(store_url) as once, AsyncClient(store_url) as other:
        winner = await other.claim("a", ttl=30, renew=False)
        leader = asyncio.ensure_future(once.claim("a", wait=30))
        await in_line(once, "a", 1)
        followers = [asyncio.ensure_future(once.claim("a", wait=30)) for _ in range(5)]
        await in_line(once, "a", 6)
        for cancelled in (leader, followers.pop(0), followers.pop(3)):
            cancelled.cancel()
            assert isinstance((await asyncio.gather(cancelled, return_exceptions=True))[0], asyncio.CancelledError)
        await winner.publish("value")
        claims = await asyncio.wait_for(asyncio.gather(*followers), PROMPT)
        assert [claim.value for claim in claims] == ["value"] * 3
        assert (await once.claim("a")).value == "value"


async def test_bug_11_winner_cancelled_in_its_work_promotes_a_follower(store_url: str) -> None:
    runs = 0

    async def work(client: AsyncClient) -> Any:
        nonlocal runs
        async with await client.claim("a", wait=30) as claim:
            if not claim.won:
                return claim.result()
            runs += 1
            await asyncio.sleep(0 if runs == 2 else 30)
            return (await claim.publish(claim.attempt)).value

    async with AsyncClient(store_url) as once:
        winner = asyncio.ensure_future(work(once))
        while not runs:
            await asyncio.sleep(0.005)
        followers = [asyncio.ensure_future(work(once)) for _ in range(5)]
        await in_line(once, "a", 5)
        winner.cancel()
        assert await asyncio.wait_for(asyncio.gather(*followers), PROMPT) == [2] * 5
        assert winner.cancelled() or await asyncio.wait([winner])
        assert runs == 2
    with Peek(store_url) as peek:
        assert peek("a").state is State.DONE


async def test_followers_whose_wait_ends_time_out_one_by_one(once: Any, other: Any, peek: Peek) -> None:
    await other.claim("a", purpose="long")
    waits = [0.05, 0.1, 0.15, 0.2]
    claims = await asyncio.gather(*(once.claim("a", wait=wait) for wait in waits))
    assert all(claim.timed_out and "long" in claim.holder for claim in claims)
    assert [wait <= claim.waited < wait + 1 for wait, claim in zip(waits, claims, strict=True)] == [True] * 4
    assert peek("a").waiters == 0
