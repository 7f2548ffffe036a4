"""The claim of a key: the unit list of its document."""

from __future__ import annotations

import asyncio

import pytest

from solely import AsyncClaim
from solely.apps.triggers.claim import TIMED_OUT, ClaimedRun, published_run
from solely.apps.triggers.model import claim_key, own, stored_key_of
from solely.kit import Problem
from solely.testing.clock import ManualClock
from tests.apps.triggers.working import Worker, until

NAME = claim_key("default", "task", "key")
RUN = ClaimedRun("run_a", "digest")


async def won(worker: Worker) -> AsyncClaim:
    claim = await worker.app.claims.claim(NAME)
    assert claim is not None
    assert claim.won
    return claim


async def test_the_first_trigger_of_a_key_wins_its_claim(anywhere: Worker) -> None:
    await won(anywhere)
    assert anywhere.counted("mollifier_idempotency_claim_wins") == 1


async def test_a_published_claim_answers_its_run_at_once(anywhere: Worker) -> None:
    claim = await won(anywhere)
    assert await anywhere.app.claims.publish(claim, RUN, 60.0) == RUN
    cached = await anywhere.app.claims.claim(NAME)
    assert cached is not None
    assert published_run(cached.value) == RUN
    assert anywhere.counted("mollifier_idempotency_claim_waits") == 1


async def test_a_pending_claim_is_waited_for_until_it_is_published(anywhere: Worker) -> None:
    claim = await won(anywhere)
    waiters = [asyncio.create_task(anywhere.app.claims.claim(NAME)) for _ in range(10)]
    await asyncio.sleep(0.05)
    assert not any(waiter.done() for waiter in waiters)
    await anywhere.app.claims.publish(claim, RUN, 60.0)
    found = await asyncio.gather(*waiters)
    assert [published_run(each.value) if each is not None else None for each in found] == [RUN] * 10


async def test_a_claim_that_expires_is_won_by_a_waiter() -> None:
    clock = ManualClock()
    async with Worker(clock=clock, claim_wait=10.0) as worker:
        await worker.once.claim(NAME, ttl=30.0, renew=False)
        waiter = asyncio.create_task(worker.app.claims.claim(NAME))
        await asyncio.sleep(0.02)
        clock.advance(31.0)
        claim = await waiter
        assert claim is not None
        assert (claim.won, claim.attempt) == (True, 2)


async def test_a_claim_that_is_never_resolved_is_refused_with_503() -> None:
    async with Worker(claim_wait=0.05) as worker:
        await won(worker)
        with pytest.raises(Problem) as refusal:
            await worker.app.claims.claim(NAME)
        assert (refusal.value.kind.status, refusal.value.document.detail) == (503, TIMED_OUT)
        assert worker.counted("mollifier_idempotency_claim_timeouts") == 1


async def test_a_released_claim_is_won_by_one_waiter(anywhere: Worker) -> None:
    claim = await won(anywhere)
    waiters = [asyncio.create_task(anywhere.app.claims.claim(NAME)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await anywhere.app.claims.release(claim, ValueError("the pipeline failed"))
    done, pending = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    (first,) = [each.result() for each in done]
    assert first is not None
    assert (first.won, first.attempt, len(pending)) == (True, 2, 2)
    await anywhere.app.claims.publish(first, RUN, 60.0)
    others = await asyncio.gather(*pending)
    assert all(each is not None and published_run(each.value) == RUN for each in others)


async def test_the_claim_has_the_key_of_the_document_with_encoded_parts() -> None:
    assert claim_key("prod", "send:mail", "a/b c") == own("mollifier:idempotency:prod:send%3Amail:a%2Fb%20c")
    assert claim_key("a", "b:c", "d") != claim_key("a", "b", "c:d")


@pytest.mark.parametrize("length", [513, 2048])
async def test_keys_that_are_longer_than_the_store_permits_are_hashed(anywhere: Worker, length: int) -> None:
    key = "é" * (length // 2)
    assert len(stored_key_of(key).encode()) <= 512
    assert len(claim_key("e" * 64, "ü" * 128, key)) <= 512
    first = await anywhere.trigger(key)
    assert await anywhere.trigger(key) == first._replace(cached=True)
    other = await anywhere.trigger(key + "x")
    assert other.id != first.id


async def test_a_claim_whose_run_was_reset_is_dropped(anywhere: Worker) -> None:
    first = await anywhere.trigger("key")
    assert await anywhere.app.runs.reset("default", "task", "key")
    second = await anywhere.trigger("key")
    assert (second.cached, second.id != first.id) == (False, True)
    assert anywhere.counted("mollifier_idempotency_claim_stale") == 1

    async def settled() -> bool:
        return (await anywhere.trigger("key")).id == second.id

    await until(settled)
