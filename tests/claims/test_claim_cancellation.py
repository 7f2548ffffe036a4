"""Cancellation at any await of a claim leaves nothing held, nobody queued, and loses no result."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

import solely
from solely import AsyncClient, Policy, Replay, State
from solely.testing.clock import ManualClock
from tests.claims.modes import Peek
from tests.client.stepping import WAYS, cancelled_at
from tests.client.test_cancellation import KEEPERS, MOST_AWAITS, Prepare, Work, at_every_await, is_cancelled, plain

T = TypeVar("T")


async def everywhere(prepare: Prepare, check: Callable[[str, Any], None]) -> None:
    """Cancels in every way, at await 1, 2, 3 … until the work needs no more of them; checks after each."""
    for way in WAYS:
        prefix = way.replace(" ", "-")
        await at_every_await(way, _named(prepare, prefix), _named(check, prefix))


def _named(call: Callable[..., T], prefix: str) -> Callable[..., T]:
    return lambda key, *rest: call(f"{prefix}-{key}", *rest)


@pytest.fixture
async def clients(store_url: str) -> Any:
    async with AsyncClient(store_url) as once, AsyncClient(store_url) as other:
        yield once, other


@pytest.fixture
def peek(store_url: str) -> Any:
    with Peek(store_url) as peeking:
        yield peeking


async def test_claim_and_claim_many(clients: Any, peek: Peek) -> None:
    once, _ = clients

    def check(key: str, outcome: Any) -> None:
        assert (peek(key).state is State.FREE) == is_cancelled(outcome)
        assert peek(key).waiters == 0

    await everywhere(plain(lambda key: once.claim(key, fingerprint="x")), check)
    await everywhere(plain(lambda key: once.claim(f"{key}-0", wait=0)), lambda k, o: check(f"{k}-0", o))

    def check_both(key: str, outcome: Any) -> None:
        check(f"{key}-m", outcome)
        check(f"{key}-n", outcome)

    await everywhere(plain(lambda key: once.claim_many([f"{key}-m", f"{key}-n"])), check_both)
    assert len(once._driver.waiters) <= KEEPERS


@pytest.mark.parametrize("way", WAYS)
async def test_one_who_waits(clients: Any, peek: Peek, way: str) -> None:
    once, other = clients
    for k in range(1, MOST_AWAITS):
        key = f"key-{k}"
        won = await other.claim(key)
        reached, outcome = await cancelled_at(k, way, partial(once.claim, key, wait=0.05))
        assert is_cancelled(outcome) or outcome.timed_out
        assert (peek(key).fence, peek(key).waiters) == (won.fence, 0)
        if not reached:
            break
    assert len(once._driver.waiters) == 0


@pytest.mark.parametrize("way", WAYS)
async def test_one_who_is_about_to_be_told_or_to_take_over(clients: Any, peek: Peek, way: str) -> None:
    """Whoever stands behind the cancelled one gets the result, or the claim, promptly."""
    once, other = clients
    for k in range(1, 10):
        for ending in ("publish", "fail"):
            key = f"{ending}-{k}"
            won = await other.claim(key)
            first = asyncio.ensure_future(cancelled_at(k, way, partial(_use, once, key)))
            await asyncio.sleep(0.005)
            behind = [asyncio.ensure_future(_use(client, key)) for client in (once, other)]
            await asyncio.sleep(0.005)
            await (won.publish("x") if ending == "publish" else won.fail(ValueError()))
            results = await asyncio.wait_for(asyncio.gather(first, *behind), 100)
            assert results[1:] == ["x", "x"]
            assert (peek(key).state, peek(key).waiters) == (State.DONE, 0)


async def _use(client: AsyncClient, key: str) -> Any:
    async with await client.claim(key, wait=5) as claim:
        return (await claim.publish("x")).value if claim.won else claim.result()


async def test_publish(clients: Any, peek: Peek) -> None:
    """A cancelled publish still publishes: the work was done."""
    once, other = clients

    async def prepare(key: str) -> Work:
        claim = await once.claim(key)
        return lambda: claim.publish("value")

    def check(key: str, outcome: Any) -> None:
        assert is_cancelled(outcome) or outcome.published
        assert peek(key).state is State.DONE
        assert f"claim/{key}" not in once._context.keeper.here

    await everywhere(prepare, check)
    assert (await other.claim("late-key-1")).value == "value"


@pytest.mark.parametrize("way", WAYS)
async def test_a_late_publish(store_url: str, clock: ManualClock, way: str) -> None:
    async with AsyncClient(store_url, clock=clock) as once, AsyncClient(store_url, clock=clock) as other:
        with Peek(store_url, clock) as peek:
            for k in range(1, MOST_AWAITS):
                key = f"key-{k}"
                late = await once.claim(key, ttl=1, renew=False)
                clock.advance(1.01)
                successor = await other.claim(key)
                assert successor.won
                reached, outcome = await cancelled_at(k, way, partial(late.publish, "late", wait=0.03))
                assert is_cancelled(outcome) or (outcome.superseded and outcome.pending)
                assert (peek(key).fence, peek(key).waiters) == (successor.fence, 0)
                if not reached:
                    break


@pytest.mark.parametrize("policy", [Policy(), Policy(default=Replay())], ids=["release", "replay"])
async def test_fail(clients: Any, peek: Peek, policy: Policy) -> None:
    once, _ = clients

    async def prepare(key: str) -> Work:
        claim = await once.claim(key, policy=policy)
        return lambda: claim.fail(ValueError())

    def check(key: str, outcome: Any) -> None:
        assert peek(key).state is (State.FREE if policy.default == solely.RELEASE else State.DONE)

    await everywhere(prepare, check)


async def test_a_body_and_a_function(clients: Any, peek: Peek) -> None:
    once: AsyncClient = clients[0]

    async def body(key: str) -> None:
        async with await once.claim(key):
            await asyncio.sleep(0.001)

    @once.idempotent(key="{key}-f")
    async def function(key: str) -> str:
        await asyncio.sleep(0.001)
        return key

    await everywhere(plain(body), lambda key, _: _assert(peek(key).state is State.FREE))
    await everywhere(plain(function), lambda key, _: _assert(peek(f"{key}-f").state is not State.HELD))


def _assert(holds: bool) -> None:
    assert holds


async def test_reset(clients: Any) -> None:
    once, other = clients

    async def prepare(key: str) -> Work:
        await (await once.claim(key)).publish(1)
        return lambda: other.reset(key, expected=1)

    await everywhere(prepare, lambda key, outcome: _assert(outcome is True or is_cancelled(outcome)))
