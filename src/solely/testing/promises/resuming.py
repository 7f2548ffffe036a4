"""Promises about handing over: a hold passes from one owner to the next in one step, and only once."""

from __future__ import annotations

from ...model import Gone, LeasedItem, Released, State, item_key
from ...ops import Ack, Acquire, Clear, Count, Finish, Push, Read, Release, Renew, Resume, Return, Take
from ...rules import REMEMBER
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class ResumePromises:
    """Resume, of holds and of taken items."""

    def test_a_resumed_hold_has_another_owner_a_greater_fence_and_a_new_ttl(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key, giver, heir = fresh("claim/resumed"), fresh("giver"), fresh("heir")
        held = store.one(Acquire(key, giver, 10, "a", fingerprint="p"))
        clock.advance(9)
        entry = store.one(Resume(key, giver, heir, 10, "b"))
        assert (entry.state, entry.owner, entry.info, entry.fingerprint) == (State.HELD, heir, "b", "p")
        assert (entry.attempts, entry.gone, entry.value) == (1, "", None)
        assert entry.fence > held.fence
        assert abs(entry.left - 10) <= TICK
        assert store.one(Read(key))[1:3] == (State.HELD, entry.fence)
        clock.advance(10)
        assert store.one(Read(key)).state is State.FREE

    def test_a_hold_is_not_resumed_twice(self, store: Harness) -> None:
        key = fresh("lock/twice")
        store.one(Acquire(key, "giver", 10))
        first = store.one(Resume(key, "giver", "heir", 10, "the heir"))
        for _ in range(2):
            second = store.one(Resume(key, "giver", "other", 10, "another"))
            assert (second.state, second.owner, second.fence) == (State.HELD, "", first.fence)
            assert second.info == "the heir"
        assert store.one(Release(key, "heir", fence=first.fence)) is Released.RELEASED
        assert store.one(Resume(key, "giver", "other", 10)).owner == ""

    def test_of_two_resumes_in_one_batch_the_first_is_granted(self, store: Harness) -> None:
        key = fresh("lock/batch-of-resumes")
        batch = (Acquire(key, "giver", 10), Resume(key, "giver", "a", 10), Resume(key, "giver", "b", 10))
        assert [getattr(reply, "owner", None) for reply in store.perform(*batch)] == ["giver", "a", ""]

    def test_a_repeated_resume_answers_the_same_fence_and_does_not_extend(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key = fresh("lock/repeated-resume")
        store.one(Acquire(key, "giver", 10))
        first = store.one(Resume(key, "giver", "heir", 10, "i"))
        clock.advance(3)
        again = store.one(Resume(key, "giver", "heir", 10, "j"))
        assert (again.owner, again.fence, again.info) == ("heir", first.fence, "i")
        assert abs(again.left - 7) <= TICK

    def test_the_former_holder_is_gone_and_changes_nothing(self, store: Harness) -> None:
        key = fresh("claim/former")
        held = store.one(Acquire(key, "giver", 10))
        heir = store.one(Resume(key, "giver", "heir", 10))
        renewed = store.one(Renew(key, "giver", 99))
        assert (renewed.state, renewed.owner, renewed.gone, renewed.fence) == (
            State.HELD,
            "",
            Gone.RESUMED,
            heir.fence,
        )
        assert abs(renewed.left - 10) <= TICK
        late = store.one(Acquire(key, "giver", 10))
        assert (late.owner, late.gone) == ("", Gone.RESUMED)
        finished = store.one(Finish(key, "giver", b"blate", 10))
        assert (finished.state, finished.owner, finished.gone) == (State.HELD, "", Gone.RESUMED)
        assert store.one(Release(key, "giver", True, fence=held.fence)) is Released.RESUMED
        assert store.one(Clear(key, held.fence, "of the giver")) is False
        assert store.one(Finish(key, "heir", b"bmine", 10))[1:5:3] == (State.DONE, "heir")
        assert store.one(Finish(key, "giver", b"blate", 10)).value == b"bmine"

    def test_the_former_holder_is_gone_for_a_minute_beyond_its_ttl(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("lock/remembered-resume")
        held = store.one(Acquire(key, "giver", 100))
        clock.advance(1)
        store.one(Resume(key, "giver", "heir", 1))
        clock.advance(99 + REMEMBER - TICK)  # longer than the hold of its successor was remembered
        assert store.one(Renew(key, "giver", 1)).gone == Gone.RESUMED
        assert store.one(Release(key, "giver", fence=held.fence)) is Released.RESUMED
        clock.advance(TICK)
        assert store.one(Renew(key, "giver", 1)).gone == ""

    def test_only_a_hold_that_lasts_is_resumed(self, store: Harness, clock: ManualClock) -> None:
        expired, released, cleared, done, free = (fresh(f"claim/{n}") for n in ("e", "r", "c", "d", "f"))
        for key in (expired, released, cleared, done):
            store.one(Acquire(key, "giver", 10))
        store.perform(Release(released, "giver"), Clear(cleared, store.one(Read(cleared)).fence, "why"))
        store.one(Finish(done, "giver", b"b", 100))
        clock.advance(10)
        for key in (expired, released, cleared, free):
            entry = store.one(Resume(key, "giver", "heir", 10))
            assert (entry.state, entry.owner) == (State.FREE, ""), key
            assert store.one(Acquire(key, "next", 10)).owner == "next", key
            assert store.one(Resume(key, "giver", "heir", 10)).owner == "", key
        assert store.one(Resume(done, "giver", "heir", 10))[1:5:3] == (State.DONE, "")

    def test_a_successor_that_was_revoked_before_is_refused(self, store: Harness) -> None:
        key = fresh("lock/revoked-heir")
        store.one(Acquire(key, "giver", 10))
        assert store.one(Release(key, "heir", True)) is Released.RELEASED  # overtakes the resume that it undoes
        late = store.one(Resume(key, "giver", "heir", 10))
        assert (late.state, late.owner, late.gone) == (State.HELD, "", Gone.REVOKED)
        assert store.one(Resume(key, "giver", "other", 10)).owner == "other"

    def test_a_late_copy_of_a_resume_takes_nothing_back(self, store: Harness) -> None:
        key = fresh("lock/late-resume")
        store.perform(Acquire(key, "giver", 10), Resume(key, "giver", "a", 10))
        store.one(Resume(key, "a", "b", 10))
        late = store.one(Resume(key, "giver", "a", 10))
        assert (late.owner, late.gone) == ("", Gone.RESUMED)
        assert store.one(Release(key, "b")) is Released.RELEASED
        late = store.one(Resume(key, "giver", "a", 10))
        assert (late.state, late.owner) == (State.FREE, "")
        assert store.one(Acquire(key, "next", 10)).owner == "next"

    def test_those_who_wait_and_the_delay_of_the_hold_stay(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("lock/waiters-of-a-resume")
        store.one(Acquire(key, "giver", 10, delay=5))
        store.one(Acquire(key, "waiter", 10, client="c"))
        assert store.one(Resume(key, "giver", "heir", 10)).waiters == 1
        clock.advance(10)
        assert store.one(Read(key)).state is State.CLOSED
        clock.advance(5)
        assert store.one(Acquire(key, "waiter", 10, client="c")).owner == "waiter"
        assert store.one(Release(key, "heir")) is Released.EXPIRED

    def test_a_resumed_item_keeps_its_fence_and_its_attempts(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("resumed-item")
        key = item_key(queue, "job")
        store.one(Push(queue, "job", b"work"))
        item = store.one(Take(queue, "giver", 10))
        assert isinstance(item, LeasedItem)
        clock.advance(9)
        entry = store.one(Resume(key, "giver", "heir", 10, "not kept"))
        assert (entry.state, entry.owner, entry.value) == (State.HELD, "heir", b"work")
        assert (entry.fence, entry.attempts, entry.info) == (item.fence, 1, "")
        assert abs(entry.left - 10) <= TICK
        assert store.one(Take(queue, "heir", 10)) == LeasedItem("job", b"work", 1, entry.left, item.fence)
        clock.advance(10)
        assert store.one(Take(queue, "next", 10)) == LeasedItem("job", b"work", 2, 10, item.fence)

    def test_an_item_is_not_resumed_twice_and_only_its_last_taker_settles_it(self, store: Harness) -> None:
        queue = fresh("twice-resumed-item")
        key = item_key(queue, "job")
        store.perform(Push(queue, "job", b""), Take(queue, "giver", 10), Resume(key, "giver", "heir", 10))
        second = store.one(Resume(key, "giver", "other", 10))
        assert (second.state, second.owner) == (State.HELD, "")
        assert (store.one(Renew(key, "giver", 99)).owner, store.one(Renew(key, "giver", 99)).gone) == ("", Gone.RESUMED)
        for owner in ("giver", "other"):
            assert store.one(Ack(queue, "job", owner)) is False
            assert store.one(Return(queue, "job", owner)) is False
        assert store.one(Count(queue)) == 1
        assert store.one(Ack(queue, "job", "heir")) is True
        assert store.one(Count(queue)) == 0
        assert store.one(Ack(queue, "job", "heir")) is True
        assert store.one(Ack(queue, "job", "giver")) is False  # it was done by another, and that is remembered
        assert store.one(Resume(key, "giver", "other", 10)).owner == ""

    def test_an_item_that_was_resumed_and_acked_leaves_room_for_the_next_of_its_id(
        self, store: Harness, clock: ManualClock
    ) -> None:
        queue = fresh("item-after-resume")
        key = item_key(queue, "job")
        store.perform(Push(queue, "job", b"1"), Take(queue, "giver", 10), Resume(key, "giver", "heir", 10))
        first = store.one(Read(key)).fence
        store.one(Ack(queue, "job", "heir", first))
        assert store.one(Take(queue, "x", 10)) is None
        assert store.one(Push(queue, "job", b"2")) is True
        item = store.one(Take(queue, "next", 10))
        assert item is not None
        assert (item.payload, item.attempts, item.fence > first) == (b"2", 1, True)
        assert store.one(Ack(queue, "job", "next", item.fence)) is True

    def test_a_returned_item_is_no_longer_resumed_by_its_token(self, store: Harness) -> None:
        queue = fresh("returned-before-resume")
        key = item_key(queue, "job")
        store.perform(Push(queue, "job", b""), Take(queue, "giver", 10), Return(queue, "job", "giver"))
        assert store.one(Resume(key, "giver", "heir", 10)).owner == ""
        assert store.one(Resume(item_key(queue, "none"), "giver", "heir", 10)).state is State.FREE
        store.one(Take(queue, "next", 10))
        assert store.one(Resume(key, "giver", "heir", 10)).owner == ""
