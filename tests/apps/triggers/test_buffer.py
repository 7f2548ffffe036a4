"""Runs in the buffer: read and changed like stored ones, moved to SQL with every change, and never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from solely import DataError, DataUnavailable, InvalidInput
from solely.apps.triggers.buffer import read_item
from solely.apps.triggers.drainer import DEFERRED, Drainer
from solely.apps.triggers.model import CANCELED, FAILED, QUEUED, BufferedRun, RunChange, TaskRun, new_run_id, now
from solely.testing.clock import ManualClock
from tests.apps.triggers.working import BURST, HERE, SOON, Worker, until

KEY = "key"


def tagged(*tags: str) -> RunChange:
    return RunChange(kind="tags", at=now(), tags=list(tags))


async def change(worker: Worker, id: str, change: RunChange) -> TaskRun:
    run = await worker.app.runs.change(HERE, id, change)
    assert run is not None, f"{id} is unknown"
    return run


async def test_a_buffered_run_is_found_from_its_first_answer_on(anywhere: Worker) -> None:
    accepted = await anywhere.buffer_one(KEY, payload={"a": [1, "\u0000é"]}, tags=["x"], metadata={"m": 1})
    assert await anywhere.stored(accepted.id) is None
    before = await anywhere.find(accepted.id)
    await anywhere.drain()
    assert await anywhere.buffered() == 0
    after = await anywhere.stored(accepted.id)
    assert after == before
    assert (after.payload, after.tags, after.metadata) == ('{"a":[1,"\\u0000é"]}', ["x"], {"m": 1})


async def test_the_buffer_has_one_run_per_key_by_itself() -> None:
    """Its own duplicate check, the second line behind the claim."""
    async with Worker(**BURST, claim=False) as worker:
        await worker.buffer_one()
        answers = [await worker.trigger(KEY) for _ in range(3)]
        assert len({each.id for each in answers}) == 1
        assert [each.cached for each in answers] == [False, True, True]


async def test_a_run_that_is_too_large_for_the_buffer_goes_straight_to_sql(anywhere: Worker) -> None:
    await anywhere.buffer_one()
    accepted = await anywhere.trigger(KEY, payload="x" * 300_000)
    assert not accepted.buffered
    assert await anywhere.stored(accepted.id) is not None
    assert anywhere.counted("mollifier_buffer_failures", "too_large") == 1


async def test_changes_of_a_buffered_run_are_applied_when_it_is_drained(anywhere: Worker) -> None:
    accepted = await anywhere.buffer_one(tags=["first"])
    edit = {"type": "increment", "key": "n", "value": 2}
    await change(anywhere, accepted.id, tagged("second"))
    await change(anywhere, accepted.id, RunChange(kind="metadata", at=now(), metadata={"n": 1}))
    await change(anywhere, accepted.id, RunChange(kind="metadata", at=now(), edits=[edit]))
    run = await change(anywhere, accepted.id, RunChange(kind="cancel", at=now()))
    assert (run.tags, run.metadata, run.state) == (["first", "second"], {"n": 3}, CANCELED)
    assert await anywhere.stored(accepted.id) is None
    await anywhere.drain()
    stored = await anywhere.stored(accepted.id)
    assert stored is not None
    assert (stored.tags, stored.metadata, stored.state) == (["first", "second"], {"n": 3}, CANCELED)


@pytest.mark.parametrize("moment", ["seal", "insert"])
async def test_a_change_between_the_seal_and_the_removal_of_the_item_is_not_lost(
    anywhere: Worker, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A caller changes the run right after the drainer has sealed its item, or has inserted it."""
    accepted = await anywhere.buffer_one(metadata={"n": 1})
    edit = RunChange(kind="metadata", at=now(), edits=[{"type": "increment", "key": "n", "value": 1}])
    await change(anywhere, accepted.id, edit)
    insert, changes = anywhere.app.table.insert, [edit]

    async def inserted_and_changed(runs: list[TaskRun], *noted: Any) -> set[str]:
        ids = await insert(runs, *noted) if moment == "insert" else set()
        if changes and accepted.id in {run.id for run in runs}:
            assert (await change(anywhere, accepted.id, changes.pop())).metadata == {"n": 3}
        return ids or await insert(runs, *noted)

    monkeypatch.setattr(anywhere.app.table, "insert", inserted_and_changed)
    await anywhere.drain()
    stored = await anywhere.stored(accepted.id)
    assert stored is not None
    assert (stored.metadata, changes) == ({"n": 3}, [])
    assert await anywhere.buffered() == 0


async def test_a_sealed_item_takes_no_change_and_has_all_that_were_accepted(anywhere: Worker) -> None:
    accepted = await anywhere.buffer_one()
    await change(anywhere, accepted.id, tagged("before"))
    sealed = await anywhere.app.buffer.seal(HERE, accepted.id)
    assert sealed is not None
    assert sealed.current.tags == ["before"]
    assert await anywhere.app.buffer.change(HERE, accepted.id, tagged("after")) is None
    assert await anywhere.app.buffer.seal(HERE, accepted.id) == sealed


async def test_a_run_of_the_largest_size_that_the_buffer_takes_is_sealed_and_stored() -> None:
    """A sealed item is no larger than an open one."""
    async with Worker(**BURST) as worker:

        async def push(spaces: int) -> str:
            payload = '""' + " " * spaces
            run = TaskRun(id=new_run_id(HERE, "task", None), environment=HERE, task="task", payload=payload)
            await worker.app.buffer.push(run)
            return run.id

        item = await worker.app.buffer.queues[HERE].read((await push(0))[-26:])
        assert item is not None
        left = 256 * 1024 - len(item.payload)
        with pytest.raises(InvalidInput):
            await push(left + 1)
        largest = await push(left)
        await worker.drain()
        assert await worker.stored(largest) is not None


async def test_no_tag_of_1000_changes_made_while_buffered_is_lost(anywhere: Worker) -> None:
    """One hundred runs with ten tags each, changed while the drainer moves them."""
    await anywhere.buffer_one()
    ids = [(await anywhere.trigger()).id for _ in range(100)]
    draining = asyncio.create_task(anywhere.drainer.run())
    slots = asyncio.Semaphore(50)

    async def tag(id: str, number: int) -> None:
        async with slots:
            await change(anywhere, id, tagged(f"tag-{number}"))

    await asyncio.gather(*(tag(id, number) for number in range(10) for id in ids))

    async def drained() -> bool:
        return await anywhere.buffered() == 0

    await until(drained)
    await anywhere.drainer.stop()
    await draining
    rows = {row["id"]: row["tags"] for row in await anywhere.rows()}
    assert [sorted(rows[id].strip("[]").split(",")) for id in ids] == [[f'"tag-{n}"' for n in range(10)]] * 100


async def test_no_accepted_id_is_unknown_at_any_moment(anywhere: Worker) -> None:
    """Readers look for every id from its answer until SQL has it."""
    await anywhere.buffer_one()
    draining = asyncio.create_task(anywhere.drainer.run())
    looks = 0

    async def follow() -> None:
        nonlocal looks
        id = (await anywhere.trigger()).id
        while await anywhere.stored(id) is None:
            assert (await anywhere.find(id)).id == id
            looks += 1

    await asyncio.gather(*(follow() for _ in range(100)))
    await anywhere.drainer.stop()
    await draining
    assert looks > 0, "none of them was read while it was buffered"


async def test_changes_of_a_drained_run_are_made_in_sql(anywhere: Worker) -> None:
    accepted = await anywhere.buffer_one()
    await change(anywhere, accepted.id, tagged("before"))
    await anywhere.drain()
    assert (await change(anywhere, accepted.id, tagged("after"))).tags == ["before", "after"]


async def test_a_run_that_grows_too_large_for_the_buffer_is_stored_at_once(anywhere: Worker) -> None:
    accepted = await anywhere.buffer_one(payload="x" * 200_000)
    run = await change(anywhere, accepted.id, RunChange(kind="metadata", at=now(), metadata={"m": "y" * 100_000}))
    assert len(run.metadata["m"]) == 100_000
    assert await anywhere.stored(accepted.id) == run
    await anywhere.drain()
    assert await anywhere.stored(accepted.id) == run


# -- the drainer


async def test_a_drainer_killed_between_take_and_insert_strands_nothing() -> None:
    """Bug 15 of the list of peers' bugs: the entry that a dead drainer took comes back when its lease ends."""
    clock = ManualClock()
    async with Worker(clock=clock, **BURST) as worker:
        accepted = await worker.buffer_one(KEY)
        assert await worker.app.buffer.queues[HERE].take(ttl=30.0) is not None  # by a drainer that dies now
        assert await worker.app.buffer.queues[HERE].take(ttl=30.0) is not None
        await worker.drain()
        assert await worker.stored(accepted.id) is None
        assert (await worker.find(accepted.id)).state == QUEUED, "it can be read meanwhile"
        clock.advance(31.0)
        await worker.drain()
        assert [row["id"] for row in await worker.rows(idempotency_key=KEY)] == [accepted.id]


@pytest.mark.parametrize("step", ["seal", "insert"])
async def test_a_drainer_killed_after_its_insert_or_its_seal_repeats_nothing(step: str) -> None:
    clock = ManualClock()
    async with Worker(clock=clock, **BURST) as worker:
        accepted = await worker.buffer_one(KEY, metadata={"n": 1})
        edit = RunChange(kind="metadata", at=now(), edits=[{"type": "increment", "key": "n", "value": 1}])
        await change(worker, accepted.id, edit)
        queue = worker.app.buffer.queues[HERE]
        while (item := await queue.take(ttl=30.0)) is not None:
            if step == "seal":
                assert await worker.app.buffer.seal(HERE, read_item(item.payload).run.id, item) is not None
            else:
                await worker.app.drainer.drain(item)  # and never acked
        clock.advance(31.0)
        await worker.drain()
        assert await worker.buffered() == 0
        (row,) = await worker.rows(idempotency_key=KEY)
        assert (row["id"], row["metadata"]) == (accepted.id, '{"n":2}')


async def test_an_outage_of_sql_counts_as_no_attempt(anywhere: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = await anywhere.buffer_one(KEY)

    async def away(*given: Any) -> set[str]:
        raise DataUnavailable("the database restarts")

    with monkeypatch.context() as patch:
        patch.setattr(anywhere.app.table, "insert", away)
        for _ in range(3):
            await anywhere.drain()
    items = await anywhere.app.buffer.queues[HERE].list()
    assert {item.attempts for item in items} == {0}

    async def drained() -> bool:
        await anywhere.drain()
        return await anywhere.stored(accepted.id) is not None

    await until(drained)


async def test_a_run_that_sql_refuses_becomes_a_failed_run_after_three_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others of its batch are stored; its id is found throughout."""
    clock = ManualClock()
    async with Worker(clock=clock, **BURST) as worker:
        await worker.buffer_one()
        poison = await worker.trigger(KEY, payload="poison")
        other = await worker.trigger(payload="fine")
        insert = worker.app.table.insert

        async def refusing(runs: list[TaskRun], *changes: Any) -> set[str]:
            if any(run.payload == '"poison"' for run in runs):
                raise DataError("invalid byte sequence")
            return await insert(runs, *changes)

        monkeypatch.setattr(worker.app.table, "insert", refusing)
        for _ in range(3):
            await worker.drain()
            assert (await worker.find(poison.id)).id == poison.id
            clock.advance(60.0)
        failed = await worker.stored(poison.id)
        assert failed is not None
        assert (failed.state, failed.error) == (FAILED, "the run could not be stored: invalid byte sequence")
        assert await worker.stored(other.id) is not None
        assert await worker.buffered() == 0
        assert (await worker.trigger(KEY, payload="poison")).id == poison.id, "a failed run keeps its key"


async def test_a_canceled_run_that_sql_refuses_stays_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose key another run has by now is stored without it."""
    async with Worker(**BURST) as worker:
        first = await worker.buffer_one(KEY)
        await change(worker, first.id, RunChange(kind="cancel", at=now()))
        assert await worker.app.runs.reset(HERE, "task", KEY)
        second = await worker.trigger(KEY)
        await worker.app.table.insert_failed(await worker.find(first.id), "refused")
        stored = await worker.stored(first.id)
        assert stored is not None
        assert (stored.state, stored.error, stored.idempotency_key) == (CANCELED, "refused", None)
        assert (await worker.trigger(KEY)).id == second.id


async def test_a_change_of_a_run_that_sql_refuses_asks_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Worker(**BURST) as worker:
        accepted = await worker.buffer_one()
        assert await worker.app.buffer.seal(HERE, accepted.id) is not None

        async def refuse(*given: Any) -> set[str]:
            raise DataError("invalid byte sequence")

        monkeypatch.setattr(worker.app.table, "insert", refuse)
        with pytest.raises(DataUnavailable, match=f"run {accepted.id} is not stored yet.*invalid byte sequence"):
            await change(worker, accepted.id, tagged("late"))


async def test_a_run_that_no_drainer_survives_becomes_a_failed_run() -> None:
    clock = ManualClock()
    async with Worker(clock=clock, **BURST) as worker:
        accepted = await worker.buffer_one(KEY)
        for _ in range(3):
            assert await worker.app.buffer.queues[HERE].take(ttl=30.0, id=accepted.id[-26:]) is not None  # and dies
            clock.advance(31.0)
        await worker.drain()
        failed = await worker.stored(accepted.id)
        assert failed is not None
        assert (failed.state, failed.idempotency_key) == (FAILED, KEY)


async def test_a_failed_run_gives_its_key_up_if_its_trigger_asked_for_that() -> None:
    async with Worker(**BURST) as worker:
        accepted = await worker.buffer_one(KEY, freeKeyOnFailure=True)
        await worker.app.table.insert_failed(await worker.find(accepted.id), "refused")
        await worker.drain()
        assert (await worker.find(accepted.id)).state == FAILED
        assert (await worker.trigger(KEY)).id != accepted.id


async def test_a_burst_is_drained_when_it_is_over_or_has_lasted_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Worker(**BURST) as worker:
        run = TaskRun(id="run_a", environment=HERE, task="task", buffered_at=now())
        buffered = BufferedRun(run=run)
        calm = Drainer._until_calm
        left = [0.05, 0.05, 0.0]
        monkeypatch.setattr(worker.app.gate, "tripped_for", lambda environment: left.pop(0))
        await asyncio.wait_for(calm(worker.app.drainer, buffered), SOON)
        assert left == [], "it waited until the gate had recovered"
        monkeypatch.setattr(worker.app.gate, "tripped_for", lambda environment: 3_600.0)
        run.buffered_at = now() - DEFERRED
        await asyncio.wait_for(calm(worker.app.drainer, buffered), SOON)


async def test_environments_are_drained_in_rotation() -> None:
    async with Worker(**BURST, environments={"a": "one", "b": "two"}, drain_at_once=1) as worker:
        for environment in ("default", "one", "two"):
            for _ in range(3):
                run = TaskRun(id=new_run_id(environment, "task", None), environment=environment, task="task")
                await worker.app.buffer.push(run)
        order = list[str]()
        drain = worker.app.drainer.drain

        async def noted(item: Any) -> None:
            order.append(item.queue.rpartition("/")[2])
            await drain(item)

        worker.drainer._handler.perform = noted
        running = asyncio.create_task(worker.drainer.run())

        async def drained() -> bool:
            return len(order) == 9

        await until(drained)
        await worker.drainer.stop()
        await running
        assert {*order[:3]} == {"default", "one", "two"}, "no environment waits for all runs of another"


# -- keys


async def test_a_key_that_expired_is_freed_with_the_insert_of_the_next_run(anywhere: Worker) -> None:
    first = await anywhere.trigger(KEY)
    await anywhere.data.run("UPDATE triggers_runs SET key_expires_at = 1 WHERE id = :id", id=first.id)
    second = await anywhere.trigger(KEY)
    assert (second.cached, second.id != first.id) == (False, True)
    await anywhere.drain()
    assert [row["id"] for row in await anywhere.rows(idempotency_key=KEY)] == [second.id]
    assert (await anywhere.find(first.id)).idempotency_key is None


async def test_the_reset_of_a_buffered_run_frees_its_key(anywhere: Worker) -> None:
    first = await anywhere.buffer_one(KEY)
    assert await anywhere.app.runs.reset(HERE, "task", KEY)
    second = await anywhere.trigger(KEY)
    assert (second.cached, second.id != first.id) == (False, True)
    await anywhere.drain()
    assert [row["id"] for row in await anywhere.rows(idempotency_key=KEY)] == [second.id]
    assert {row["id"] for row in await anywhere.rows(task="task")} == {first.id, second.id}
    assert not await anywhere.app.runs.reset(HERE, "task", "unused")


async def test_a_trigger_whose_parent_waits_stores_the_buffered_run_of_its_key(anywhere: Worker) -> None:
    first = await anywhere.buffer_one(KEY)
    second = await anywhere.trigger(KEY, resumeParentOnCompletion=True)
    assert (second.id, second.cached, second.buffered) == (first.id, True, False)
    assert await anywhere.stored(first.id) is not None
    unkeyed = await anywhere.trigger(resumeParentOnCompletion=True)
    assert not unkeyed.buffered, "it bypasses the gate"
    await anywhere.drain()
    assert len(await anywhere.rows(idempotency_key=KEY)) == 1


async def test_a_duplicate_resolves_to_the_run_that_has_the_key(anywhere: Worker) -> None:
    """The buffer accepted a run of a key that SQL had, since the store lost its claims in between."""
    ghost = await anywhere.buffer_one(KEY)
    item = await anywhere.app.buffer.at(HERE, ghost.id[-26:])
    assert item is not None
    winner = TaskRun(**{**_fields(item.run), "id": "run_" + "a" * 13 + ghost.id[-26:]})
    assert await anywhere.app.table.insert([winner]) == {winner.id}
    await change(anywhere, ghost.id, tagged("kept"))
    await anywhere.drain()
    assert (await anywhere.find(ghost.id)).id == winner.id
    assert (await anywhere.find(winner.id)).tags == ["kept"], "a change of the duplicate is made of the run"
    assert await anywhere.trigger(KEY) == ghost._replace(id=winner.id, cached=True, buffered=False)
    assert anywhere.counted("mollifier_duplicates") == 1


def _fields(run: TaskRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


async def test_a_cached_id_that_does_not_resolve_yet_is_still_answered(anywhere: Worker) -> None:
    first = await anywhere.buffer_one(KEY)
    queue = anywhere.app.buffer.queues[HERE]
    info = await queue.read(first.id[-26:])
    assert info is not None
    assert await queue.remove(info.id, expected=info)  # as if it were not readable yet
    assert await anywhere.trigger(KEY) == first._replace(cached=True)
    assert await anywhere.rows(idempotency_key=KEY) == []


async def test_a_buffer_in_sql_has_its_own_tables(urls: tuple[str, str]) -> None:
    async with Worker(*urls, timeout=30.0, buffer="sql", **BURST) as worker:
        accepted = await worker.buffer_one(KEY)
        assert await worker.once.queue("~triggers/buffer/default").count() == 0
        assert (await worker.find(accepted.id)).id == accepted.id
        assert (await worker.trigger(KEY)).id == accepted.id
        await worker.drain()
        assert [row["id"] for row in await worker.rows(idempotency_key=KEY)] == [accepted.id]


async def test_old_runs_are_deleted_unless_their_key_protects_them(anywhere: Worker) -> None:
    protected, other = await anywhere.trigger(KEY), await anywhere.trigger()
    await anywhere.drain()
    for each in (protected, other):
        await change(anywhere, each.id, RunChange(kind="cancel", at=now() - 7_200.0))
    assert await anywhere.app.table.forget(older_than=10_000.0) == 0
    assert await anywhere.app.table.forget(older_than=3_600.0) == 1
    assert [row["id"] for row in await anywhere.rows()] == [protected.id]
    assert await anywhere.data.rows("SELECT DISTINCT run_id FROM triggers_events") == [{"run_id": protected.id}]
