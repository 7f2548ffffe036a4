"""Promises about queues: first in, first out; items are leased, not popped, so a crashed consumer loses nothing."""

from __future__ import annotations

from ...model import LeasedItem, State, item_key
from ...ops import Ack, Amend, Clear, Count, Push, Read, Renew, Return, Take
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class QueuePromises:
    """Push, Take, Ack, Return and Count, and Renew of an item."""

    def test_an_empty_queue_has_nothing_to_take(self, store: Harness) -> None:
        assert store.one(Take(fresh("empty"), fresh("owner"), 10)) is None

    def test_items_come_out_in_the_order_they_went_in_even_at_one_instant(self, store: Harness) -> None:
        queue = fresh("fifo")
        ids = ["c", "a", "b", "10", "9"]
        assert store.perform(*(Push(queue, id, id.encode()) for id in ids)) == [True] * 5
        assert _drain(store, queue) == ids

    def test_items_come_out_in_the_order_of_their_arrival(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("order")
        for n in range(12):
            store.one(Push(queue, f"{n}", b""))
            clock.advance(1)
        assert _drain(store, queue) == [f"{n}" for n in range(12)]

    def test_a_taken_item_is_leased_and_hidden_from_others(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("lease")
        store.one(Push(queue, "job", b"\0payload"))
        item = store.one(Take(queue, "first", 10))
        assert item is not None
        assert (item.id, item.payload, item.attempts) == ("job", b"\0payload", 1)
        assert abs(item.left - 10) <= TICK
        assert item.fence > 0
        clock.advance(10 - TICK)
        assert store.one(Take(queue, "second", 10)) is None

    def test_an_item_comes_back_when_its_lease_expires(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("back")
        store.one(Push(queue, "job", b""))
        store.one(Take(queue, "dead", 10))
        clock.advance(10)
        item = store.one(Take(queue, "alive", 10))
        assert item is not None
        assert (item.id, item.attempts) == ("job", 2)

    def test_a_repeated_take_returns_the_same_item_and_does_not_extend(
        self, store: Harness, clock: ManualClock
    ) -> None:
        queue = fresh("repeat")
        store.perform(Push(queue, "one", b"1"), Push(queue, "two", b"2"))
        first = store.one(Take(queue, "owner", 10))
        clock.advance(4)
        again = store.one(Take(queue, "owner", 10))
        assert first is not None
        assert again is not None
        assert (again.id, again.attempts, again.fence) == (first.id, 1, first.fence)
        assert abs(again.left - 6) <= TICK

    def test_a_take_by_the_same_owner_after_its_lease_expired_leases_again(
        self, store: Harness, clock: ManualClock
    ) -> None:
        queue = fresh("anew")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        clock.advance(10)
        item = store.one(Take(queue, "owner", 10))
        assert item is not None
        assert item.attempts == 2
        assert abs(item.left - 10) <= TICK

    def test_an_acked_item_is_gone_also_when_the_ack_is_repeated(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("ack")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        assert store.one(Ack(queue, "job", "owner")) is True
        assert store.one(Ack(queue, "job", "owner")) is True
        clock.advance(11)
        assert store.one(Take(queue, "other", 10)) is None
        assert store.one(Read(item_key(queue, "job"))).state is State.FREE

    def test_an_ack_is_accepted_after_expiry_until_another_took_the_item(
        self, store: Harness, clock: ManualClock
    ) -> None:
        queue = fresh("late-ack")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        clock.advance(100)
        assert store.one(Ack(queue, "job", "owner")) is True
        assert store.one(Take(queue, "other", 10)) is None

    def test_an_ack_by_a_displaced_taker_is_refused(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("displaced")
        store.perform(Push(queue, "job", b""), Take(queue, "slow", 10))
        clock.advance(10)
        store.one(Take(queue, "next", 10))
        assert store.one(Ack(queue, "job", "slow")) is False
        assert store.one(Return(queue, "job", "slow")) is False
        assert store.one(Ack(queue, "job", "next")) is True

    def test_a_late_ack_does_not_remove_a_later_item_of_its_id(self, store: Harness) -> None:
        queue = fresh("late-ack-and-take")
        store.one(Push(queue, "job", b"earlier"))
        earlier = store.one(Take(queue, "owner", 10))
        assert isinstance(earlier, LeasedItem)
        assert store.one(Ack(queue, "job", "owner", earlier.fence)) is True
        store.one(Push(queue, "job", b"later"))
        assert isinstance(store.one(Take(queue, "owner", 10)), LeasedItem)  # a late copy
        assert store.one(Ack(queue, "job", "owner", earlier.fence)) is False
        assert store.one(Read(item_key(queue, "job"))).value == b"later"

    def test_a_taken_item_keeps_the_fence_by_which_it_is_acked(self, store: Harness) -> None:
        queue = fresh("kept-fence")
        store.one(Push(queue, "job", b"1"))
        item = store.one(Take(queue, "owner", 10))
        assert isinstance(item, LeasedItem)
        assert store.one(Renew(item_key(queue, "job"), "owner", 20)).fence == item.fence
        assert store.one(Amend(queue, "job", b"2", b"1")) is True
        assert store.one(Ack(queue, "job", "owner", item.fence)) is True

    def test_an_item_that_nobody_took_cannot_be_acked_or_returned(self, store: Harness) -> None:
        queue = fresh("untaken")
        store.one(Push(queue, "job", b""))
        assert store.one(Ack(queue, "job", "owner")) is False
        assert store.one(Return(queue, "job", "owner")) is False
        assert _drain(store, queue) == ["job"]

    def test_a_returned_item_comes_back_after_its_delay(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("return")
        store.perform(Push(queue, "job", b"x"), Take(queue, "owner", 10))
        assert store.one(Return(queue, "job", "owner", delay=5)) is True
        assert store.one(Return(queue, "job", "owner", delay=5)) is False
        clock.advance(5 - TICK)
        assert store.one(Take(queue, "other", 10)) is None
        clock.advance(TICK)
        item = store.one(Take(queue, "other", 10))
        assert item is not None
        assert (item.payload, item.attempts) == (b"x", 2)

    def test_a_returned_item_without_delay_can_be_taken_at_once(self, store: Harness) -> None:
        queue = fresh("return-now")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10), Return(queue, "job", "owner"))
        assert _drain(store, queue) == ["job"]

    def test_a_returned_item_goes_behind_those_that_waited_longer(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("behind")
        store.perform(Push(queue, "a", b""), Push(queue, "b", b""), Take(queue, "owner", 10))
        clock.advance(1)
        assert store.one(Return(queue, "a", "owner")) is True
        assert _drain(store, queue) == ["b", "a"]

    def test_a_take_that_is_returned_uncounted_is_no_attempt(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("uncounted")
        store.one(Push(queue, "job", b""))
        for owner, uncounted, attempts in (("a", False, 1), ("b", True, 2), ("c", True, 2), ("d", False, 2)):
            item = store.one(Take(queue, owner, 10))
            assert item is not None
            assert item.attempts == attempts
            assert store.one(Return(queue, "job", owner, uncounted=uncounted)) is True
            assert store.one(Return(queue, "job", owner, uncounted=uncounted)) is False
        assert store.one(Read(item_key(queue, "job"))).attempts == 2

    def test_a_renewed_item_stays_with_its_taker(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("renewed")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        clock.advance(8)
        entry = store.one(Renew(item_key(queue, "job"), "owner", 10))
        assert (entry.state, entry.owner, entry.attempts) == (State.HELD, "owner", 1)
        assert abs(entry.left - 10) <= TICK
        assert abs(store.one(Renew(item_key(queue, "job"), "owner", 1)).left - 10) <= TICK  # never shortened
        clock.advance(10 - TICK)
        assert store.one(Take(queue, "other", 10)) is None
        clock.advance(TICK)
        item = store.one(Take(queue, "other", 10))
        assert item is not None
        assert item.attempts == 2

    def test_an_item_is_renewed_by_nobody_but_its_taker_in_time(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("not-renewed")
        key = item_key(queue, "job")
        assert store.one(Renew(key, "owner", 10)).state is State.FREE  # there is none
        store.one(Push(queue, "job", b""))
        assert store.one(Renew(key, "owner", 10)).owner == ""
        store.one(Take(queue, "owner", 10))
        assert store.one(Renew(key, "other", 100)).owner == ""
        clock.advance(10)
        assert store.one(Renew(key, "owner", 10)).owner == ""
        assert _drain(store, queue) == ["job"]

    def test_all_items_are_counted_taken_delayed_or_not(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("counted")
        assert store.one(Count(queue)) == 0
        store.perform(
            Push(queue, "a", b""), Push(queue, "b", b"", delay=5), Push(queue, "c", b""), Push(queue, "a", b"")
        )
        store.one(Take(queue, "owner", 10))
        assert store.one(Count(queue)) == 3
        store.one(Return(queue, "a", "owner"))
        assert store.one(Count(queue)) == 3
        fence = store.one(Read(item_key(queue, "c"))).fence
        assert store.perform(Count(queue), Clear(item_key(queue, "c"), fence, "why"), Count(queue)) == [3, True, 2]
        store.perform(Take(queue, "owner", 10), Ack(queue, "a", "owner"))
        clock.advance(100)
        assert store.one(Count(queue)) == 1
        assert store.one(Count(f"{queue}/b")) == 0

    def test_a_push_with_delay_hides_the_item_for_that_long(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("delay")
        store.perform(Push(queue, "later", b"", delay=5), Push(queue, "now", b""))
        assert _drain(store, queue) == ["now"]
        clock.advance(5)
        assert _drain(store, queue) == ["later"]

    def test_a_push_is_idempotent_until_the_ack(self, store: Harness) -> None:
        queue = fresh("idempotent")
        assert store.one(Push(queue, "job", b"first")) is True
        assert store.one(Push(queue, "job", b"second")) is False
        item = store.one(Take(queue, "owner", 10))
        assert item is not None
        assert item.payload == b"first"
        assert store.one(Push(queue, "job", b"third")) is False
        store.one(Ack(queue, "job", "owner"))
        assert store.one(Push(queue, "job", b"fourth")) is True
        item = store.one(Take(queue, "other", 10))
        assert item is not None
        assert (item.payload, item.attempts) == (b"fourth", 1)

    def test_an_item_can_be_taken_by_its_id(self, store: Harness) -> None:
        queue = fresh("by-id")
        store.perform(*(Push(queue, id, b"") for id in ("a", "b", "c")))
        item = store.one(Take(queue, "chooser", 10, id="b"))
        assert item is not None
        assert item.id == "b"
        assert store.one(Take(queue, "late", 10, id="b")) is None
        assert store.one(Take(queue, "wrong", 10, id="absent")) is None
        assert _drain(store, queue) == ["a", "c"]

    def test_queues_with_similar_names_are_independent(self, store: Harness) -> None:
        queue = fresh("q")
        store.perform(Push(f"{queue}/a", "b", b"1"), Push(queue, "a/b", b"2"), Push(f"{queue}%2Fa", "b", b"3"))
        taken = [store.one(Take(name, "owner", 10)) for name in (f"{queue}/a", queue, f"{queue}%2Fa")]
        assert [item and item.payload for item in taken] == [b"1", b"2", b"3"]

    def test_items_are_entries_that_can_be_read_and_listed(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("listed")
        store.perform(*(Push(queue, id, id.encode(), delay=delay) for id, delay in (("a", 0), ("b", 0), ("c", 5))))
        item = store.one(Take(queue, "owner-of-a", 10))
        assert item is not None
        entries = store.scan(item_key(queue, ""))
        assert [entry.state for entry in entries] == [State.HELD, State.FREE, State.CLOSED]
        assert [entry.value for entry in entries] == [b"a", b"b", b"c"]
        assert [entry.attempts for entry in entries] == [1, 0, 0]
        assert entries[0] == store.one(Read(item_key(queue, "a")))
        assert entries[0].fence == item.fence
        assert "owner-of-a" not in repr(entries)
        clock.advance(10)
        assert [entry.state for entry in store.scan(item_key(queue, ""))] == [State.FREE] * 3

    def test_items_can_be_cleared_taken_or_not(self, store: Harness) -> None:
        queue = fresh("cleared")
        store.perform(Push(queue, "taken", b""), Push(queue, "waiting", b""), Take(queue, "owner", 10))
        fences = {}
        for id in ("taken", "waiting"):
            fences[id] = store.one(Read(item_key(queue, id))).fence
            assert store.one(Clear(item_key(queue, id), fences[id] + 1, "")) is False
            assert store.one(Clear(item_key(queue, id), fences[id], "")) is True
        assert store.one(Take(queue, "other", 10)) is None
        assert store.one(Return(queue, "taken", "owner")) is False
        assert store.one(Ack(queue, "taken", "owner")) is True
        assert store.one(Push(queue, "taken", b"again")) is True
        assert (
            store.one(Clear(item_key(queue, "taken"), fences["taken"], "")) is True
        )  # a repeat, which leaves the new item
        assert _drain(store, queue) == ["taken"]

    def test_payloads_are_kept_byte_for_byte(self, store: Harness) -> None:
        queue = fresh("bytes")
        for payload in (b"", bytes(range(256)), b"x" * 100_000):
            id, owner = fresh("id ключ"), fresh("owner")
            store.one(Push(queue, id, payload))
            item = store.one(Take(queue, owner, 10))
            assert item is not None
            assert (item.id, item.payload) == (id, payload)


def _drain(store: Harness, queue: str) -> list[str]:
    """Takes every available item and returns their ids in order."""
    ids = list[str]()
    while (item := store.one(Take(queue, fresh("taker"), 1_000))) is not None:
        ids.append(item.id)
        assert len(ids) <= 1_000
    return ids
