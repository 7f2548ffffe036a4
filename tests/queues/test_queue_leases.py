"""Taken items: renewed, given back without an attempt, handed over, counted, and parked after too many attempts.

On every store, on both modes.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import State
from solely.leases.token import Token, write_token
from solely.model import item_key
from solely.queues.flow import queue_of
from solely.rules import MAX_VALUE_BYTES
from solely.stores.memory import Memory
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of
from tests.reservations.test_lost_replies import AsyncLosingStore, LosingStore


async def taken(once: Any, payload: Any = 1, ttl: float = 10) -> Any:
    """An item `a` of `jobs`, pushed and taken."""
    return await result_of(once.queue("jobs").push_held("a", payload, ttl=ttl))


# -- renewed


async def test_a_renewed_item_stays_with_its_taker(once: Any, other: Any, clock: ManualClock) -> None:
    item = await taken(once)
    clock.advance(8)
    assert await result_of(item.renew()) is None
    clock.advance(8)
    assert await result_of(other.queue("jobs").take(ttl=10)) is None
    await result_of(item.renew(100))
    await result_of(item.renew(1))  # never shortened
    clock.advance(50)
    assert await result_of(other.queue("jobs").take(ttl=10)) is None
    assert 0 < item.remaining() <= 100
    assert await result_of(item.ack()) is True


async def test_a_renewal_counts_no_attempt_and_changes_no_payload(once: Any) -> None:
    item = await taken(once, {"n": 1})
    await result_of(item.renew())
    seen = await result_of(once.queue("jobs").read("a"))
    assert (seen.attempts, seen.payload, seen.fence, seen.state) == (1, {"n": 1}, item.fence, State.HELD)


async def test_an_item_that_is_lost_cannot_be_renewed(once: Any, other: Any, clock: ManualClock) -> None:
    item = await taken(once)
    clock.advance(10)
    with pytest.raises(solely.LeaseLost, match="its lease expired"):
        await result_of(item.renew())
    again = await result_of(other.queue("jobs").take(ttl=10))
    with pytest.raises(solely.LeaseLost):
        await result_of(item.renew(1_000))
    assert await result_of(again.ack()) is True


@pytest.mark.parametrize("end", ["ack", "give_back", "hand_over"])
async def test_an_item_that_was_settled_or_handed_over_cannot_be_renewed(once: Any, end: str) -> None:
    item = await taken(once)
    await result_of(getattr(item, end)())
    with pytest.raises(solely.LeaseLost, match="acked, given back, handed over"):
        await result_of(item.renew())


async def test_a_ttl_out_of_bounds_renews_nothing(once: Any) -> None:
    item = await taken(once)
    with pytest.raises(solely.InvalidInput, match="ttl=0 is out of bounds"):
        await result_of(item.renew(0))
    assert await result_of(item.ack()) is True


# -- given back without an attempt


async def test_an_uncounted_take_is_no_attempt(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    item = await taken(once)
    assert await result_of(item.give_back(uncounted=True, delay=5)) is True
    assert (await result_of(queue.read("a"))).attempts == 0
    clock.advance(5)
    item = await result_of(queue.take(ttl=10))
    assert item.attempts == 1
    assert await result_of(item.give_back()) is True
    assert (await result_of(queue.read("a"))).attempts == 1


# -- counted


async def test_a_queue_counts_what_waits_is_delayed_and_is_taken(once: Any, other: Any) -> None:
    queue = once.queue("jobs")
    assert await result_of(queue.count()) == 0
    await taken(once)
    await result_of(queue.push("b", 1))
    await result_of(queue.push("c", 1, delay=100))
    await result_of(once.queue("other").push("d", 1))
    assert await result_of(other.queue("jobs").count()) == 3
    seen = await result_of(queue.read("b"))
    assert await result_of(queue.remove("b", expected=seen))
    assert await result_of(queue.count()) == 2


# -- handed over


async def test_an_item_can_be_handed_over(once: Any, other: Any, clock: ManualClock) -> None:
    item = await taken(once, {"n": 1})
    clock.advance(6)
    token = item.hand_over()
    assert item.remaining() == 0
    resumed = await result_of(other.queue("jobs").resume(token))
    assert (resumed.id, resumed.payload, resumed.attempts, resumed.fence) == ("a", {"n": 1}, 1, item.fence)
    assert (resumed.queue, resumed.fresh, resumed.stored) == ("jobs", False, item.stored)
    clock.advance(6)  # the resume extended it
    assert await result_of(once.queue("jobs").take(ttl=10)) is None
    assert await result_of(resumed.ack()) is True
    assert await result_of(once.queue("jobs").count()) == 0


async def test_who_handed_an_item_over_can_settle_it_no_more(once: Any, other: Any) -> None:
    item = await taken(once)
    token = item.hand_over()
    assert await result_of(item.ack()) is False
    assert await result_of(item.give_back()) is False
    resumed = await result_of(other.queue("jobs").resume(token))
    assert await result_of(resumed.give_back()) is True


async def test_the_end_of_a_block_leaves_an_item_that_was_handed_over(
    once: Any, guarded: Callable[..., Any], other: Any
) -> None:
    item = await taken(once)
    tokens: list[str] = []
    await guarded(item, lambda: tokens.append(item.hand_over()))
    assert (await result_of(once.queue("jobs").read("a"))).state is State.HELD
    assert await result_of((await result_of(other.queue("jobs").resume(tokens[0]))).ack()) is True


async def test_an_item_whose_lease_expired_or_that_was_settled_cannot_be_resumed(
    once: Any, other: Any, clock: ManualClock
) -> None:
    token = (await taken(once)).hand_over()
    clock.advance(10)
    with pytest.raises(solely.Busy, match="no longer taken under this token"):
        await result_of(other.queue("jobs").resume(token))
    again = await result_of(other.queue("jobs").take(ttl=10))
    with pytest.raises(solely.Busy):
        await result_of(once.queue("jobs").resume(token))
    assert await result_of(again.ack()) is True
    with pytest.raises(solely.Busy):
        await result_of(once.queue("jobs").resume(token))


async def test_a_token_is_only_good_for_its_queue(once: Any) -> None:
    token = (await taken(once)).hand_over()
    await result_of(once.queue("other").push_held("a", 1, ttl=10))
    with pytest.raises(solely.Busy):
        await result_of(once.queue("other").resume(token))
    assert (await result_of(once.queue("jobs").resume(token))).id == "a"


async def test_the_longest_names_can_be_handed_over(once: Any) -> None:
    queue, id = once.queue("é" * 256), "ü" * 256
    token = (await result_of(queue.push_held(id, 1, ttl=10))).hand_over()
    assert (await result_of(queue.resume(token))).id == id


LOCK_TOKEN = write_token(Token("lock/a", "0" * 32, 10.0, 7, 0.0))


@pytest.mark.parametrize(("token", "said"), [("nonsense", "not a lease token"), (LOCK_TOKEN, "not of an item")])
async def test_what_is_no_token_of_an_item_never_reaches_the_store(mode: str, token: str, said: str) -> None:
    with pytest.raises(solely.InvalidInput, match=said):
        await result_of(refusing_client(mode).queue("jobs").resume(token))


# -- too many attempts


async def fail(queue: Any, times: int, **options: Any) -> None:
    for _ in range(times):
        await result_of((await result_of(queue.take(ttl=10, **options))).give_back())


async def test_an_item_that_was_taken_too_often_becomes_a_dead_letter(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("poison", {"n": 1}))
    clock.advance(0.1)
    await fail(queue, 3, max_attempts=3)
    await result_of(queue.push("good", 2))
    clock.advance(0.1)
    item = await result_of(queue.take(ttl=10, max_attempts=3))
    assert (item.id, item.payload) == ("good", 2)
    (letter,) = await result_of(once.dead_letters("jobs").list())
    assert (letter.payload, letter.attempts, letter.origin) == ({"n": 1}, 3, "item 'poison'")
    assert "taken 3 times and never acknowledged" in letter.last_error
    assert await result_of(queue.read("poison")) is None
    assert await result_of(queue.take(ttl=10, max_attempts=3)) is None


async def test_without_a_limit_attempts_do_not_matter_and_uncounted_ones_never_do(once: Any) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    await fail(queue, 5)
    assert (await result_of(queue.read("a"))).attempts == 5
    for _ in range(3):
        item = await result_of(queue.take(ttl=10, max_attempts=6))
        await result_of(item.give_back(uncounted=True))
    assert await result_of(once.dead_letters("jobs").list()) == []


async def test_the_named_item_is_parked_too(once: Any) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("a", b"\0bytes"))
    await fail(queue, 1)
    assert await result_of(queue.take(ttl=10, id="a", max_attempts=1)) is None
    (letter,) = await result_of(once.dead_letters("jobs").list())
    assert letter.payload == b"\0bytes"


async def test_one_that_is_too_large_for_a_letter_stays_in_the_queue_and_delays_nobody(once: Any) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("large", b"x" * MAX_VALUE_BYTES))
    await fail(queue, 1)
    await result_of(queue.push("good", 1))
    assert (await result_of(queue.take(ttl=10, max_attempts=1))).id == "good"
    kept = await result_of(queue.read("large"))
    assert (len(kept.payload), kept.state, kept.left > 365 * 86_400) == (MAX_VALUE_BYTES, State.CLOSED, True)


@pytest.mark.parametrize("lost", range(1, 5))
async def test_an_item_is_never_lost_on_its_way_to_the_dead_letters(
    open_client: Callable[..., Any], mode: str, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever reply is lost: the letter is there before the item is gone, and there is one letter."""
    memory = Memory()
    store = LosingStore(memory) if mode == "blocking" else AsyncLosingStore(memory)
    once = open_client(store=store)
    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    await fail(queue, 2)
    store.lose = store.asked + lost
    with caplog.at_level(logging.WARNING, "solely"):
        assert await result_of(queue.take(ttl=10, max_attempts=2)) is None
    assert store.asked >= store.lose
    assert any(message.startswith("item_exhausted: item 'a' of 'jobs'") for message in caplog.messages)
    assert [letter.payload for letter in await result_of(once.dead_letters("jobs").list())] == [1]
    assert memory.scan(item_key(queue_of("jobs"), ""), "", 10) == []


@pytest.mark.parametrize("most", [-1, True, 1.5, "3", None])
async def test_an_invalid_max_attempts_never_reaches_the_store(mode: str, most: Any) -> None:
    with pytest.raises(solely.InvalidInput, match="max_attempts must be an int"):
        await result_of(refusing_client(mode).queue("jobs").take(ttl=10, max_attempts=most))


@pytest.mark.parametrize("id", ["", "a"])
async def test_an_interrupted_take_counts_no_attempt(once: Any, monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    def interrupted(*_: object) -> None:
        raise RuntimeError("a soft time limit")  # as a signal handler raises it anywhere, also after the reply

    queue = once.queue("jobs")
    await result_of(queue.push("a", 1))
    with monkeypatch.context() as patch:
        patch.setattr("solely.queues.flow.TakenItem", interrupted)
        with pytest.raises(RuntimeError, match="a soft time limit"):
            await result_of(queue.take(ttl=10, id=id, max_attempts=1))
    seen = await result_of(queue.read("a"))
    assert (seen.state, seen.attempts) == (State.FREE, 0)
    item = await result_of(queue.take(ttl=10, max_attempts=1))
    assert (item.id, item.attempts) == ("a", 1), "nobody had it, so that it is no dead letter"
