"""The failure table of the document, and the store going away at each step: correct by the constraint, degraded by
name, and counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from solely import DataUnavailable, StoreError
from solely.apps.triggers.claim import TIMED_OUT
from solely.apps.triggers.model import TaskRun, claim_key
from solely.apps.triggers.table import Stored
from solely.kit import Problem
from solely.ops import Acquire, Finish, Hit, Push, Read, Release
from solely.testing.clock import ManualClock
from tests.apps.triggers.working import BURST, HERE, Faults, Worker

CLAIMS = "claim/"
KEY = "key"


def said(logs: list[Any]) -> list[str]:
    return [each["event"] for each in logs]


async def test_of_a_claimant_that_crashed_waiters_are_refused_and_a_later_trigger_wins() -> None:
    clock = ManualClock()
    async with Worker(clock=clock, claim_wait=0.05, gate="off") as worker:
        await worker.once.claim(claim_key(HERE, "task", KEY), ttl=30.0, renew=False)  # and never published
        with pytest.raises(Problem, match=TIMED_OUT):
            await worker.trigger(KEY)
        clock.advance(31.0)
        accepted = await worker.trigger(KEY)
        assert not accepted.cached
        assert [row["id"] for row in await worker.rows(idempotency_key=KEY)] == [accepted.id]


@pytest.mark.parametrize("settings", [{"gate": "off"}, BURST], ids=["in SQL", "in the buffer"])
async def test_a_claimant_that_crashed_after_its_run_was_accepted_leaves_that_run(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before it published. Whoever takes over looks again, and finds the run in SQL or in the buffer."""
    clock = ManualClock()
    async with Worker(clock=clock, **settings) as worker:
        await worker.trigger(task="first")
        await worker.trigger(task="second")
        with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
            patch.setattr(worker.app.claims, "publish", _dies)
            await worker.trigger(KEY)
        worker.once._context.keeper.holds.clear()  # nobody renews the claim of a process that died
        clock.advance(31.0)
        found = await worker.trigger(KEY)
        assert found.cached
        await worker.drain()
        assert [row["id"] for row in await worker.rows(idempotency_key=KEY)] == [found.id]


async def _dies(*given: object) -> None:
    raise asyncio.CancelledError


async def test_a_pipeline_error_frees_the_claim_and_one_waiter_takes_over(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failed, go_on = worker.app.table.settle, list[str](), asyncio.Event()

    async def fails_once(run: TaskRun) -> Stored:
        if not failed:
            failed.append(run.id)
            await go_on.wait()
            raise DataUnavailable("the database restarts")
        return await settle(run)

    monkeypatch.setattr(worker.app.table, "settle", fails_once)
    asked = [asyncio.create_task(worker.trigger(KEY)) for _ in range(5)]
    await asyncio.sleep(0.05)
    go_on.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in answers].count(DataUnavailable) == 1
    (id,) = {each.id for each in answers if not isinstance(each, BaseException)}
    assert id not in failed
    assert [row["id"] for row in await worker.rows(idempotency_key=KEY)] == [id]


async def test_without_the_store_the_claim_is_skipped_and_the_constraint_decides(
    worker: Worker, faults: Faults
) -> None:
    with faults.refusing(Acquire, of=CLAIMS), capture_logs() as logs:
        answers = await asyncio.gather(*(worker.trigger(KEY) for _ in range(20)))
    assert len({each.id for each in answers}) == 1
    assert len(await worker.rows(idempotency_key=KEY)) == 1
    assert "idempotency claim failed" in said(logs)
    assert worker.counted("mollifier_idempotency_claim_failures", "claim") >= 1


async def test_an_unreachable_store_is_not_asked_for_every_trigger(worker: Worker, faults: Faults) -> None:
    with faults.refusing(Acquire, Read):
        await worker.trigger(KEY)
        faults.batches.clear()
        await worker.trigger("another")
        assert faults.trips == []
    assert worker.counted("mollifier_idempotency_claim_failures", "skipped") == 1


async def test_an_outage_can_be_refused_instead(faults: Faults) -> None:
    async with Worker(timeout=0.3, on_outage="refuse") as worker:
        with faults.refusing(Acquire, of=CLAIMS):
            for _ in range(2):
                with pytest.raises(Problem) as refusal:
                    await worker.trigger(KEY)
                assert refusal.value.kind.status == 503
        assert await worker.rows(idempotency_key=KEY) == []


async def test_a_waiter_whose_store_goes_away_converges_with_the_winner(worker: Worker, faults: Faults) -> None:
    winner = await worker.once.claim(claim_key(HERE, "task", KEY))
    waiter = asyncio.create_task(worker.trigger(KEY))
    await asyncio.sleep(0.05)
    with faults.refusing(Acquire, Read, of=CLAIMS):
        accepted = await waiter
    await winner.release()
    assert await worker.trigger(KEY) == accepted._replace(cached=True)
    assert len(await worker.rows(idempotency_key=KEY)) == 1


async def test_a_claim_that_cannot_be_published_is_logged_and_the_row_answers(worker: Worker, faults: Faults) -> None:
    with faults.refusing(Finish), capture_logs() as logs:
        accepted = await worker.trigger(KEY)
    assert "idempotency claim publish failed" in said(logs)
    assert worker.counted("mollifier_idempotency_claim_failures", "publish") == 1
    assert await worker.trigger(KEY) == accepted._replace(cached=True)


async def test_a_buffered_run_whose_claim_cannot_be_published_is_settled_by_the_constraint(
    diverting: Worker, faults: Faults
) -> None:
    await diverting.buffer_one()
    with faults.refusing(Finish):
        accepted = await diverting.trigger(KEY)
    assert not accepted.buffered
    assert [row["id"] for row in await diverting.rows(idempotency_key=KEY)] == [accepted.id]
    await diverting.drain()
    assert len(await diverting.rows(task="task")) == 2, "the run and its item are one"


async def test_a_claim_that_cannot_be_released_is_logged_and_expires(
    worker: Worker, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(run: TaskRun) -> Stored:
        raise DataUnavailable("the database restarts")

    with monkeypatch.context() as patch, faults.refusing(Release, of=CLAIMS), capture_logs() as logs:
        patch.setattr(worker.app.table, "settle", fails)
        with pytest.raises(DataUnavailable):
            await worker.trigger(KEY)
    assert "idempotency claim release failed" in said(logs)
    assert worker.counted("mollifier_idempotency_claim_failures", "release") == 1


async def test_a_gate_without_its_store_lets_triggers_pass(diverting: Worker, faults: Faults) -> None:
    with faults.refusing(Hit), capture_logs() as logs:
        answers = [await diverting.trigger() for _ in range(3)]
    assert [each.buffered for each in answers] == [False] * 3
    assert said(logs).count("gate_unknown") == 1, "the store is not asked again for a second"
    assert diverting.counted("mollifier_gate", "unknown") == 3


async def test_a_run_that_the_buffer_does_not_accept_is_stored_in_sql(diverting: Worker, faults: Faults) -> None:
    await diverting.buffer_one()
    with faults.refusing(Push):
        accepted = await diverting.trigger(KEY)
    assert not accepted.buffered
    assert await diverting.stored(accepted.id) is not None
    assert diverting.counted("mollifier_buffer_failures", "push") == 1


@pytest.mark.parametrize("kind", [Acquire, Finish, Push, Hit, Read, Release])
async def test_a_store_that_refuses_any_step_leaves_one_id_per_key(faults: Faults, kind: Any) -> None:
    async with Worker(timeout=0.3, claim_wait=0.3, **BURST) as worker:
        await worker.buffer_one()
        with faults.refusing(kind):
            answers = await asyncio.gather(*(worker.trigger(KEY) for _ in range(5)), return_exceptions=True)
        accepted = [each for each in answers if not isinstance(each, BaseException)]
        assert all(isinstance(each, Problem | StoreError) for each in answers if isinstance(each, BaseException))
        assert accepted
        await worker.drain()
        (row,) = await worker.rows(idempotency_key=KEY)
        assert {(await worker.find(each.id)).id for each in accepted} == {row["id"]}
