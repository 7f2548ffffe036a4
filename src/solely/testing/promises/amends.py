"""Promises about amends: an item's bytes are compared and replaced, or the item removed, in one step."""

from __future__ import annotations

import pytest

from ...errors import InvalidInput
from ...model import LeasedItem, State, item_key
from ...ops import Ack, Amend, Push, Read, Return, Take
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class AmendPromises:
    """Amend, with a value and without."""

    def test_an_amended_item_keeps_its_place_its_fence_and_its_attempts(
        self, store: Harness, clock: ManualClock
    ) -> None:
        queue = fresh("place")
        store.perform(Push(queue, "a", b"1"), Take(queue, "owner", 10), Return(queue, "a", "owner"))
        clock.advance(1)
        store.one(Push(queue, "b", b"2"))
        before = store.one(Read(item_key(queue, "a")))
        assert store.one(Amend(queue, "a", b"new", b"1")) is True
        after = store.one(Read(item_key(queue, "a")))
        assert (after.value, after.attempts, after.fence) == (b"new", 1, before.fence)
        item = store.one(Take(queue, "other", 10))
        assert isinstance(item, LeasedItem)
        assert (item.id, item.payload, item.attempts) == ("a", b"new", 2)

    def test_an_item_is_amended_only_if_its_bytes_are_as_expected(self, store: Harness) -> None:
        queue = fresh("expected")
        store.one(Push(queue, "a", b"1"))
        for expected in (b"", b"10", b"2"):
            assert store.one(Amend(queue, "a", b"new", expected)) is False
            assert store.one(Amend(queue, "a", None, expected)) is False
        assert store.one(Read(item_key(queue, "a"))).value == b"1"
        assert store.one(Amend(queue, "absent", b"new", b"1")) is False
        assert store.one(Amend(queue, "absent", None, b"1")) is False
        assert store.one(Read(item_key(queue, "absent"))).value is None

    def test_of_two_amends_that_expect_the_same_bytes_one_succeeds(self, store: Harness) -> None:
        queue = fresh("twice")
        store.one(Push(queue, "a", b"1"))
        assert store.perform(Amend(queue, "a", b"2", b"1"), Amend(queue, "a", b"3", b"1")) == [True, False]
        assert store.one(Amend(queue, "a", None, b"1")) is False
        assert store.one(Read(item_key(queue, "a"))).value == b"2"

    def test_a_repeated_amend_answers_as_the_first_until_another_changes_the_item(self, store: Harness) -> None:
        queue = fresh("repeat")
        store.one(Push(queue, "a", b"1"))
        assert [store.one(Amend(queue, "a", b"2", b"1")) for _ in range(3)] == [True] * 3
        assert store.one(Amend(queue, "a", b"3", b"2")) is True
        assert store.one(Amend(queue, "a", b"2", b"1")) is False

    def test_a_taken_item_can_be_amended_and_its_taker_keeps_it(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("taken")
        store.perform(Push(queue, "a", b"1"), Take(queue, "owner", 10))
        assert store.one(Amend(queue, "a", b"2", b"1")) is True
        entry = store.one(Read(item_key(queue, "a")))
        assert (entry.state, entry.value) == (State.HELD, b"2")
        assert abs(entry.left - 10) <= TICK
        assert store.one(Take(queue, "other", 10)) is None
        assert store.one(Ack(queue, "a", "owner")) is True

    def test_an_item_without_a_taker_can_be_removed(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("removed")
        store.perform(Push(queue, "waits", b"1"), Push(queue, "delayed", b"1", delay=5), Push(queue, "expired", b"1"))
        store.one(Take(queue, "dead", 10, id="expired"))
        clock.advance(10)
        store.one(Push(queue, "delayed-again", b"1", delay=5))
        for id in ("waits", "delayed", "expired", "delayed-again"):
            assert store.one(Amend(queue, id, None, b"1")) is True
            assert store.one(Amend(queue, id, None, b"1")) is False
            entry = store.one(Read(item_key(queue, id)))
            assert (entry.state, entry.value, entry.fence) == (State.FREE, None, 0)
            assert store.one(Ack(queue, id, "dead")) is True
        clock.advance(10)
        assert store.one(Take(queue, "other", 10)) is None
        assert store.scan(item_key(queue, "")) == []
        assert store.one(Push(queue, "waits", b"2")) is True
        item = store.one(Take(queue, "other", 10))
        assert isinstance(item, LeasedItem)
        assert (item.payload, item.attempts) == (b"2", 1)

    def test_a_taken_item_is_not_removed(self, store: Harness) -> None:
        queue = fresh("held")
        store.perform(Push(queue, "a", b"1"), Take(queue, "owner", 10))
        assert store.one(Amend(queue, "a", None, b"1")) is False
        assert store.one(Read(item_key(queue, "a"))).state is State.HELD
        assert store.one(Return(queue, "a", "owner")) is True

    def test_amended_bytes_are_kept_byte_for_byte(self, store: Harness) -> None:
        queue, before = fresh("bytes"), b"first"
        store.one(Push(queue, "a", before))
        for value in (b"", bytes(range(256)), b"x" * 100_000, b"\0"):
            assert store.one(Amend(queue, "a", value, before)) is True
            assert store.one(Read(item_key(queue, "a"))).value == value
            before = value

    def test_an_amend_is_refused_where_its_bytes_would_be_unreadable(self, store: Harness) -> None:
        queue = fresh("queue:jobs")
        store.one(Push(queue, "a", b"0123456789abcdef" * 2 + b"b1"))
        unreadable, no_record, dead = (Amend(name, "a", b"{}", b"1") for name in (queue, "audit", "dead:group"))
        for wrong in (unreadable, no_record, dead, dead._replace(value=None)):
            with pytest.raises(InvalidInput, match="amend"):
                store.one(wrong)
        assert store.one(Read(item_key(queue, "a"))).value == b"0123456789abcdef" * 2 + b"b1"
