"""What a trigger costs: round trips to the store besides those of the gate."""

from __future__ import annotations

from tests.apps.triggers.working import QUEUE, Faults, Worker


def trips_besides_the_gate(faults: Faults) -> list[list[str]]:
    return [ops for ops in faults.trips if ops != ["Hit"]]


async def test_a_trigger_without_a_key_takes_no_round_trip_besides_the_gate(faults: Faults) -> None:
    async with Worker() as worker:
        faults.batches.clear()
        await worker.trigger()
        assert faults.trips == [["Hit"]]


async def test_the_winner_of_a_key_takes_two_round_trips_besides_the_gate(faults: Faults) -> None:
    """The read of the buffer travels with the claim; the second one publishes."""
    async with Worker() as worker:
        faults.batches.clear()
        await worker.trigger("key")
        assert [sorted(ops) for ops in trips_besides_the_gate(faults)] == [["Acquire", "Read"], ["Finish"]]


async def test_a_winner_that_is_buffered_takes_one_more_for_the_buffer(diverting: Worker, faults: Faults) -> None:
    await diverting.buffer_one()
    faults.batches.clear()
    await diverting.trigger("key")
    assert [sorted(ops) for ops in faults.trips] == [["Acquire", "Read"], ["Push"], ["Finish"]]


async def test_a_settled_repeat_takes_at_most_one_round_trip(diverting: Worker, faults: Faults) -> None:
    """One while its run is buffered, none once SQL has it."""
    await diverting.buffer_one("key")
    faults.batches.clear()
    assert (await diverting.trigger("key")).cached
    assert len(faults.trips) == 1
    await diverting.drain()
    faults.batches.clear()
    assert (await diverting.trigger("key")).cached
    assert faults.trips == []


async def test_a_buffered_run_is_found_by_its_id_and_by_its_key_with_one_read_each(
    diverting: Worker, faults: Faults
) -> None:
    accepted = await diverting.buffer_one("key")
    faults.batches.clear()
    found = await diverting.find(accepted.id)
    assert (found.id, faults.trips) == (accepted.id, [["Read"]])
    faults.batches.clear()
    await diverting.app.runs.reset("default", "task", "unused")
    assert faults.trips == [["Read"]]
    assert QUEUE.endswith("buffer/default")
