"""Promises about an admin's Clear: it removes the entry that the admin saw, and no later one."""

from __future__ import annotations

from ...formats import write_watermark
from ...model import Gone, State
from ...ops import Acquire, Advance, Clear, Finish, Read, Renew
from ..clock import ManualClock
from ..harness import Harness, fresh


class ClearingPromises:
    """Clear."""

    def test_clear_removes_the_entry_with_the_given_fence(self, store: Harness) -> None:
        key = fresh("lock/clear")
        fence = store.one(Acquire(key, "holder", 10)).fence
        assert store.one(Clear(key, fence, "stuck")) is True
        assert store.one(Read(key)).state is State.FREE

    def test_the_next_renewal_of_a_cleared_hold_reports_it(self, store: Harness) -> None:
        key = fresh("lock/learns")
        store.one(Clear(key, store.one(Acquire(key, "holder", 10)).fence, "stuck"))
        entry = store.one(Renew(key, "holder", 10))
        assert (entry.owner, entry.gone) == ("", Gone.CLEARED)

    def test_clear_removes_nothing_under_another_fence(self, store: Harness) -> None:
        key = fresh("lock/other-fence")
        fence = store.one(Acquire(key, "holder", 10)).fence
        for wrong in (fence - 1, fence + 1, 0):
            assert store.one(Clear(key, wrong, "")) is False
        assert store.one(Clear(fresh("lock/absent"), 0, "")) is False
        assert store.one(Renew(key, "holder", 10)).owner == "holder"

    def test_a_repeated_clear_is_true_and_does_not_remove_the_successor(self, store: Harness) -> None:
        key = fresh("lock/repeat")
        fence = store.one(Acquire(key, "holder", 10)).fence
        assert store.one(Clear(key, fence, ""))
        store.one(Acquire(key, "successor", 10))
        assert store.one(Clear(key, fence, "")) is True
        assert store.one(Renew(key, "successor", 10)).owner == "successor"

    def test_clear_is_false_for_an_expired_hold(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("lock/expired")
        fence = store.one(Acquire(key, "holder", 10)).fence
        clock.advance(10)
        assert store.one(Clear(key, fence, "")) is False

    def test_a_result_is_cleared_like_a_hold_and_its_count_with_it(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("claim/clear")
        store.one(Acquire(key, "first", 10))
        clock.advance(10)
        store.perform(Acquire(key, "second", 10), Finish(key, "second", b"bwrong", 100))
        assert store.one(Clear(key, store.one(Read(key)).fence, "wrong")) is True
        entry = store.one(Finish(key, "second", b"bwrong", 100))
        assert (entry.state, entry.value, entry.gone) == (State.FREE, None, Gone.CLEARED)
        assert store.one(Acquire(key, "third", 10)).attempts == 1

    def test_each_of_several_clears_may_be_repeated(self, store: Harness) -> None:
        key = fresh("watermark/clears")
        fences = []
        for value in (1, 2, 3):
            fences.append(store.one(Advance(key, write_watermark(value))).fence)
            assert store.one(Clear(key, fences[-1], "")) is True
        assert [store.one(Clear(key, fence, "")) for fence in fences] == [True, True, True]
