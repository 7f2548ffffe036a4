"""Queues: first in, first out; leased, not popped; nothing is lost with its taker. On every store, on both modes."""

from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import ItemInfo, State
from solely.model import item_key
from solely.ops import Read
from solely.rules import MAX_VALUE_BYTES
from solely.testing.clock import ManualClock
from tests.client_modes import result_of

ITEMS = 200
TAKERS = 4
Guarded = Callable[..., Any]


async def drained(queue: Any) -> list[str]:
    """The ids that can be taken now, in order; each stays with its taker."""
    ids = list[str]()
    while (item := await result_of(queue.take(ttl=1_000))) is not None:
        ids.append(item.id)
        assert len(ids) <= ITEMS
    return ids


async def test_items_come_out_in_the_order_they_went_in(once: Any, other: Any, clock: ManualClock) -> None:
    for id in ("c", "a", "b"):
        assert await result_of(once.queue("jobs").push(id, id)) is True
        clock.advance(0.01)
    assert await drained(other.queue("jobs")) == ["c", "a", "b"]
    assert await result_of(once.queue("jobs").take(ttl=10)) is None
    assert await result_of(once.queue("other").take(ttl=10)) is None


async def test_a_payload_comes_out_as_it_went_in(once: Any) -> None:
    queue = once.queue("jobs")
    payloads: list[Any] = [b"", b"\0\xff", {"ü": [None, 1.5, "\ud800"]}, "text", None, 7, [], True]
    for payload in payloads:
        item = await result_of(queue.push_held("a", payload, ttl=10))
        for found in (item.payload, (await result_of(queue.read("a"))).payload):
            assert found == payload
            assert type(found) is type(payload)
        await result_of(item.ack())


async def test_the_largest_payload_can_be_pushed_and_held(once: Any) -> None:
    item = await result_of(once.queue("jobs").push_held("a", b"x" * MAX_VALUE_BYTES, ttl=10))
    assert (len(item.payload), item.fresh) == (MAX_VALUE_BYTES, True)


async def test_an_item_is_put_in_once_until_it_is_acked(once: Any, other: Any) -> None:
    queue = once.queue("jobs")
    assert await result_of(queue.push("a", "first")) is True
    assert await result_of(other.queue("jobs").push("a", "second")) is False
    first = await result_of(queue.take(ttl=10))
    assert first.payload == "first"
    assert await result_of(queue.push("a", "third")) is False
    assert await result_of(first.ack()) is True
    assert await result_of(first.ack()) is True
    assert await result_of(queue.push("a", "fourth")) is True
    again = await result_of(queue.take(ttl=10))
    assert (again.payload, again.attempts) == ("fourth", 1)
    assert again.fence > first.fence


async def test_one_can_be_taken_by_its_id(once: Any, other: Any) -> None:
    queue = once.queue("jobs")
    for id in ("a", "b/c", "ключ"):
        await result_of(queue.push(id, id))
    item = await result_of(queue.take(ttl=10, id="b/c"))
    assert (item.id, item.payload, item.queue) == ("b/c", "b/c", "jobs")
    assert await result_of(other.queue("jobs").take(ttl=10, id="b/c")) is None
    assert await result_of(queue.take(ttl=10, id="absent")) is None
    assert sorted(await drained(queue)) == ["a", "ключ"]


async def test_an_item_in_hand_says_for_how_long(once: Any) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    item = await result_of(queue.take(ttl=30))
    assert 20 < item.remaining() < 30
    assert (item.attempts, item.fresh) == (1, False)
    assert item._owner not in repr(item)
    await result_of(item.ack())
    assert item.remaining() == 0.0


async def test_an_item_whose_lease_ran_out_is_handed_on(once: Any, other: Any, clock: ManualClock) -> None:
    await result_of(once.queue("jobs").push("a", 1))
    slow = await result_of(once.queue("jobs").take(ttl=10))
    clock.advance(9.9)
    assert await result_of(other.queue("jobs").take(ttl=10)) is None
    clock.advance(0.1)
    item = await result_of(other.queue("jobs").take(ttl=10))
    assert (item.id, item.attempts, item.fence) == ("a", 2, slow.fence)
    assert await result_of(slow.ack()) is False
    assert await result_of(slow.give_back()) is False
    assert (await result_of(once.queue("jobs").read("a"))).state is State.HELD
    assert await result_of(item.ack()) is True
    assert await result_of(slow.ack()) is True  # gone is gone
    assert await result_of(once.queue("jobs").read("a")) is None


async def test_a_late_ack_counts_if_nobody_took_the_item_since(once: Any, clock: ManualClock) -> None:
    await result_of(once.queue("jobs").push("a", 1))
    late = await result_of(once.queue("jobs").take(ttl=10))
    clock.advance(100)
    assert await result_of(late.ack()) is True
    assert await drained(once.queue("jobs")) == []


async def test_an_item_that_is_given_back_can_be_taken_after_its_delay(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await result_of(once.queue("jobs").push("a", 1))
    first = await result_of(once.queue("jobs").take(ttl=10))
    assert await result_of(first.give_back(delay=5)) is True
    assert first.remaining() == 0.0
    assert await result_of(first.ack()) is False
    clock.advance(4.9)
    assert await result_of(other.queue("jobs").take(ttl=10)) is None
    clock.advance(0.1)
    second = await result_of(other.queue("jobs").take(ttl=10))
    assert second.attempts == 2
    assert await result_of(second.give_back()) is True
    assert (await result_of(once.queue("jobs").take(ttl=10))).attempts == 3


async def test_an_item_that_is_pushed_with_delay_is_hidden_for_that_long(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("later", 1, delay=5))
    await result_of(queue.push("now", 2))
    assert await drained(queue) == ["now"]
    clock.advance(5)
    assert await drained(queue) == ["later"]


# -- pushed and held


async def test_who_pushes_can_hold_at_once(once: Any, other: Any) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("before", 0))
    item = await result_of(queue.push_held("a", {"n": 1}, ttl=10))
    assert (item.id, item.payload, item.attempts, item.fresh) == ("a", {"n": 1}, 1, True)
    assert await result_of(other.queue("jobs").push_held("a", {"n": 2}, ttl=10)) is None
    assert (await result_of(queue.read("a"))).payload == {"n": 1}
    assert await result_of(item.ack()) is True
    assert await drained(queue) == ["before"]


async def test_what_is_pushed_and_held_is_adopted_from_a_holder_that_died(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await result_of(once.queue("jobs").push_held("a", "first", ttl=10))
    clock.advance(10)
    adopted = await result_of(other.queue("jobs").push_held("a", "second", ttl=10))
    assert (adopted.payload, adopted.attempts, adopted.fresh) == ("first", 2, False)
    assert await result_of(adopted.ack()) is True


async def test_what_waits_or_is_delayed_is_in_the_queue_in_any_case(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("waits", 1))
    waiting = await result_of(queue.push_held("waits", 2, ttl=10))
    assert (waiting.payload, waiting.attempts, waiting.fresh) == (1, 1, False)
    await result_of(queue.push("delayed", 1, delay=5))
    assert await result_of(queue.push_held("delayed", 2, ttl=10)) is None
    clock.advance(5)
    assert await drained(queue) == ["delayed"]


# -- as others see it


async def test_items_are_listed_in_the_order_of_ids_whoever_has_them(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("b", [1], delay=5))
    await result_of(queue.push("c", b"2"))
    await result_of(queue.push("a", 3))
    assert await result_of(once.queue("job").list()) == []
    taken = await result_of(queue.take(ttl=10, id="a"))
    listed = await result_of(queue.list())
    facts = [("a", 3, State.HELD, 10, 1), ("b", [1], State.CLOSED, 5, 0), ("c", b"2", State.FREE, 0, 0)]
    assert [(i.id, i.payload, i.state, round(i.left, 2), i.attempts) for i in listed] == facts
    assert isinstance(listed[0], ItemInfo)
    assert listed[0].fence == taken.fence
    assert [await result_of(queue.read(id)) for id in "abc"] == listed
    assert await result_of(queue.list(after="a", limit=1)) == listed[1:2]
    assert await result_of(queue.list(after="c")) == []
    await result_of(taken.ack())
    assert await result_of(queue.read("a")) is None
    assert [info.id for info in await result_of(queue.list())] == ["b", "c"]


async def test_a_long_queue_is_listed_page_by_page(once: Any, together: Any) -> None:
    queue = once.queue("jobs")
    ids = [f"{n:03}" for n in range(105)]
    await together([lambda id=id: queue.push(id, id) for id in ids])
    assert [info.id for info in await result_of(queue.list())] == ids[:100]
    assert [info.id for info in await result_of(queue.list(limit=1_000))] == ids
    assert [info.id for info in await result_of(queue.list(after="099"))] == ids[100:]


async def test_no_name_meets_dead_letters_or_the_audit_log(once: Any, observer: Any) -> None:
    await result_of(once.dead_letters("jobs").push({"n": 1}, error="no"))
    for name in ("dead:jobs", "jobs", "audit", "queue:audit"):
        assert await result_of(once.queue(name).take(ttl=10)) is None
        assert await result_of(once.queue(name).push("x", name)) is True
    assert len(await result_of(once.dead_letters("jobs").list())) == 1
    reads = [Read(item_key(queue, "x")) for queue in ("dead:jobs", "audit")]
    assert [entry.value for entry in observer.perform(*reads)] == [None, None]
    for name in ("dead:jobs", "jobs", "audit", "queue:audit"):
        assert (await result_of(once.queue(name).take(ttl=10))).payload == name


# -- guarded


async def test_the_end_of_a_block_acks(once: Any, guarded: Guarded) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    await guarded(await result_of(queue.take(ttl=10)), lambda: None)
    assert await result_of(queue.list()) == []


async def test_an_error_in_the_block_gives_back(once: Any, guarded: Guarded) -> None:
    def fail() -> None:
        raise OSError("the work's own")

    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    with pytest.raises(OSError, match="the work's own"):
        await guarded(await result_of(queue.take(ttl=10)), fail)
    assert (await result_of(queue.take(ttl=10))).attempts == 2


async def test_what_was_done_inside_the_block_is_not_done_again(once: Any, guarded: Guarded) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    item = await result_of(queue.take(ttl=10))
    await guarded(item, lambda: item.give_back(delay=5))
    assert (await result_of(queue.read("a"))).state is State.CLOSED


async def test_a_block_that_outlived_its_lease_is_told_if_another_has_the_item(
    once: Any, other: Any, clock: ManualClock, guarded: Guarded
) -> None:
    async def take_over() -> None:
        clock.advance(10)
        assert await result_of(other.queue("jobs").take(ttl=10)) is not None

    await result_of(once.queue("jobs").push("a", 1))
    with pytest.raises(solely.LeaseLost, match="'a' of queue 'jobs' was lost"):
        await guarded(await result_of(once.queue("jobs").take(ttl=10)), take_over)
    assert (await result_of(once.queue("jobs").read("a"))).state is State.HELD


# -- many at once


def take_and_ack(queue: Any) -> list[str]:
    """The ids that one thread got."""
    ids = list[str]()
    while (item := queue.take(ttl=1_000)) is not None:
        ids.append(item.id)
        assert item.ack() is True
    return ids


async def take_and_ack_awaited(queue: Any) -> list[str]:
    """The ids that one task got."""
    ids = list[str]()
    while (item := await queue.take(ttl=1_000)) is not None:
        ids.append(item.id)
        assert await item.ack() is True
    return ids


async def test_concurrent_takers_never_share_an_item(once: Any, together: Any, mode: str) -> None:
    queue = once.queue("jobs")
    ids = [f"{n:03}" for n in range(ITEMS)]
    assert all(await together([lambda id=id: queue.push(id, id) for id in ids]))
    work = take_and_ack if mode == "blocking" else take_and_ack_awaited
    taken = await together([lambda: work(queue)] * TAKERS)
    assert sorted(id for each in taken for id in each) == ids
    assert await result_of(queue.list()) == []


async def test_concurrent_pushes_of_one_id_are_one_item(once: Any, together: Any) -> None:
    queue = once.queue("jobs")
    held = await together([lambda n=n: queue.push_held("a", n, ttl=1_000) for n in range(20)])
    (item,) = [each for each in held if each is not None]
    (info,) = await result_of(queue.list())
    assert (info.payload, info.attempts, info.fence) == (item.payload, 1, item.fence)
