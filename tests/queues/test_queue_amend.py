"""An item is changed or removed in one step, if it is still as the caller saw it. On every store, on both modes."""

from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import State
from solely.rules import MAX_VALUE_BYTES
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of
from tests.reservations.conftest import Together
from tests.reservations.test_lost_replies import AsyncLosingStore, LosingStore

CALLERS = 8


async def pushed(queue: Any, id: str = "a", payload: Any = 1) -> Any:
    """The item as read after its push."""
    assert await result_of(queue.push(id, payload))
    return await result_of(queue.read(id))


async def test_an_amended_item_has_the_new_payload_in_its_old_place(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    seen = await pushed(queue)
    clock.advance(1)
    await result_of(queue.push("b", 2))
    assert await result_of(queue.amend("a", {"new": 1}, expected=seen)) is True
    changed = await result_of(queue.read("a"))
    assert (changed.payload, changed.fence, changed.attempts) == ({"new": 1}, seen.fence, 0)
    item = await result_of(queue.take(ttl=10))
    assert (item.id, item.payload, item.fresh) == ("a", {"new": 1}, False)


async def test_what_has_changed_since_is_neither_amended_nor_removed(once: Any, other: Any) -> None:
    queue = once.queue("jobs")
    seen = await pushed(queue)
    assert await result_of(other.queue("jobs").amend("a", 1, expected=seen)) is True  # the same payload is a change
    assert await result_of(queue.amend("a", 2, expected=seen)) is False
    assert await result_of(queue.remove("a", expected=seen)) is False
    now = await result_of(queue.read("a"))
    assert now.payload == 1
    assert await result_of(queue.remove("a", expected=now)) is True
    assert await result_of(queue.remove("a", expected=now)) is False
    assert await result_of(queue.amend("a", 3, expected=now)) is False
    assert await result_of(queue.list()) == []


async def test_an_item_pushed_anew_under_the_same_id_is_another_one(once: Any) -> None:
    queue = once.queue("jobs")
    seen = await pushed(queue)
    assert await result_of(queue.remove("a", expected=seen)) is True
    await pushed(queue)
    assert await result_of(queue.amend("a", 2, expected=seen)) is False
    assert await result_of(queue.remove("a", expected=seen)) is False
    assert (await result_of(queue.read("a"))).payload == 1


async def test_of_many_that_amend_at_once_one_succeeds(once: Any, together: Together) -> None:
    queue = once.queue("jobs")
    for round in range(5):
        seen = await pushed(queue, f"{round}")
        calls = [lambda n=n, seen=seen: queue.amend(seen.id, n, expected=seen) for n in range(CALLERS)]
        answers = await together(calls)
        assert sorted(answers) == [False] * (CALLERS - 1) + [True]
        assert (await result_of(queue.read(seen.id))).payload == answers.index(True)


async def test_of_many_that_remove_and_amend_at_once_one_succeeds(once: Any, together: Together) -> None:
    queue = once.queue("jobs")
    for round in range(5):
        seen = await pushed(queue, f"{round}")
        removing = [lambda seen=seen: queue.remove(seen.id, expected=seen) for _ in range(CALLERS // 2)]
        amending = [lambda n=n, seen=seen: queue.amend(seen.id, n, expected=seen) for n in range(CALLERS // 2)]
        answers = await together([*removing, *amending])
        assert sorted(answers) == [False] * (CALLERS - 1) + [True]
        assert (await result_of(queue.read(seen.id)) is None) is (True in answers[: CALLERS // 2])


async def test_a_taken_item_can_be_amended_and_not_removed(once: Any, other: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await pushed(queue)
    item = await result_of(other.queue("jobs").take(ttl=10))
    seen = await result_of(queue.read("a"))
    assert await result_of(queue.remove("a", expected=seen)) is False
    assert await result_of(queue.amend("a", 2, expected=item)) is True
    now = await result_of(queue.read("a"))
    assert (now.payload, now.state, now.attempts) == (2, State.HELD, 1)
    assert await result_of(item.ack()) is True
    assert await result_of(queue.read("a")) is None


async def test_a_delayed_item_and_one_whose_lease_expired_can_be_removed(once: Any, clock: ManualClock) -> None:
    queue = once.queue("jobs")
    await result_of(queue.push("later", 1, delay=10))
    item = await result_of(queue.push_held("a", 1, ttl=5))
    clock.advance(5)
    for id in ("later", "a"):
        assert await result_of(queue.remove(id, expected=await result_of(queue.read(id)))) is True
    assert await result_of(item.give_back()) is False
    clock.advance(10)
    assert await result_of(queue.take(ttl=10)) is None


async def test_the_largest_payload_can_be_amended(once: Any) -> None:
    queue = once.queue("jobs")
    seen = await pushed(queue, "a", b"x" * MAX_VALUE_BYTES)
    assert await result_of(queue.amend("a", b"y" * MAX_VALUE_BYTES, expected=seen)) is True
    assert (await result_of(queue.read("a"))).payload == b"y" * MAX_VALUE_BYTES


async def test_how_an_item_is_shown_contains_no_owner(once: Any) -> None:
    queue = once.queue("jobs")
    item = await result_of(queue.push_held("a", 1, ttl=10))
    seen = await result_of(queue.read("a"))
    assert item.stored == seen.stored
    assert seen.stored[:32].decode() not in repr(seen) + repr(item)


# -- a reply is lost


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=range(1, 5))
def losing(request: pytest.FixtureRequest, mode: str, memory: Memory) -> Any:
    """A store that does not hear the answer to its n-th request."""
    store = LosingStore(memory) if mode == "blocking" else AsyncLosingStore(memory)
    store.lose = request.param
    return store


async def test_a_repeat_after_a_lost_reply_recognizes_its_own_change(
    open_client: Callable[..., Any], losing: Any
) -> None:
    queue = open_client(store=losing).queue("jobs")
    seen = await pushed(queue)
    assert await result_of(queue.amend("a", 2, expected=seen)) is True
    now = await result_of(queue.read("a"))
    assert now.payload == 2
    assert await result_of(queue.remove("a", expected=now)) is True
    assert await result_of(queue.read("a")) is None


async def test_a_lost_reply_does_not_claim_the_change_of_another(
    open_client: Callable[..., Any], losing: Any, memory: Memory
) -> None:
    other = open_client(store=MemoryStore(memory) if isinstance(losing, MemoryStore) else AsyncMemoryStore(memory))
    seen = await pushed(other.queue("jobs"))
    assert await result_of(other.queue("jobs").amend("a", 2, expected=seen)) is True
    queue = open_client(store=losing).queue("jobs")
    for _ in range(2):
        assert await result_of(queue.amend("a", 2, expected=seen)) is False
        assert await result_of(queue.remove("a", expected=seen)) is False
    assert (await result_of(other.queue("jobs").read("a"))).payload == 2


# -- bad input

SEEN = solely.ItemInfo("a", 1, State.FREE, 0.0, 0, 7, stored=b"0" * 32 + b"j1")
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "amend: payload is a set": (lambda queue: queue.amend("a", {1}, expected=SEEN), "not this set"),
    "amend: expected is bytes": (lambda queue: queue.amend("a", 1, expected=b"x"), "expected must be an ItemInfo"),
    "amend: another item": (lambda queue: queue.amend("b", 1, expected=SEEN), "expected is item 'a', but the call"),
    "remove: expected is None": (lambda queue: queue.remove("a", expected=None), "expected must be an ItemInfo"),
    "remove: id is empty": (lambda queue: queue.remove("", expected=SEEN), "id: a key must not be empty"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_bad_input_never_reaches_the_store(mode: str, call: str) -> None:
    ask, said = CALLS[call]
    with pytest.raises(solely.InvalidInput, match=said):
        await result_of(ask(refusing_client(mode).queue("jobs")))
