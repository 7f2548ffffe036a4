"""Promises about limits: exact in every window, and each owner counts once."""

from __future__ import annotations

from random import Random

from ...ops import Hit, Unhit
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class LimitPromises:
    """Hit and Unhit."""

    def test_hits_up_to_the_limit_are_allowed(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("limit/count")
        for hits in (1, 2, 3):
            allowance = store.one(Hit(key, fresh("owner"), limit=3, per=10))
            assert (allowance.allowed, allowance.hits, allowance.retry_after) == (True, hits, 0.0)
            clock.advance(1)
        refused = store.one(Hit(key, fresh("owner"), limit=3, per=10))
        assert (refused.allowed, refused.hits) == (False, 3)

    def test_the_next_hit_is_allowed_after_retry_after_and_not_before(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("limit/retry")
        for _ in range(3):
            store.one(Hit(key, fresh("owner"), limit=3, per=10))
            clock.advance(2)
        refused = store.one(Hit(key, "late", limit=3, per=10))
        assert abs(refused.retry_after - 4) <= TICK
        clock.advance(4 - TICK)
        assert not store.one(Hit(key, "late", limit=3, per=10)).allowed
        clock.advance(TICK)
        assert store.one(Hit(key, "late", limit=3, per=10)).allowed

    def test_retry_after_is_correct_when_the_limit_was_lowered(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("limit/lowered")
        for _ in range(4):
            store.one(Hit(key, fresh("owner"), limit=4, per=10))
            clock.advance(1)
        refused = store.one(Hit(key, "late", limit=2, per=10))
        assert (refused.allowed, refused.hits) == (False, 4)
        assert abs(refused.retry_after - 8) <= TICK  # three of four must leave the window

    def test_a_repeat_by_the_same_owner_counts_once(self, store: Harness) -> None:
        key = fresh("limit/repeat")
        for _ in range(5):
            allowance = store.one(Hit(key, "owner", limit=2, per=10))
            assert (allowance.allowed, allowance.hits) == (True, 1)
        assert store.one(Hit(key, "other", limit=2, per=10)).hits == 2
        assert store.one(Hit(key, "owner", limit=2, per=10)).allowed

    def test_a_refused_hit_is_not_counted(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("limit/refused")
        store.one(Hit(key, "first", limit=1, per=10))
        clock.advance(9)
        assert not store.one(Hit(key, "second", limit=1, per=10)).allowed
        clock.advance(1)
        assert store.one(Hit(key, "third", limit=1, per=10)).allowed

    def test_unhit_removes_the_hit_of_its_owner_only(self, store: Harness) -> None:
        key = fresh("limit/back")
        store.one(Hit(key, "first", limit=1, per=10))
        assert store.one(Unhit(key, "stranger")) is False
        assert store.one(Unhit(key, "first")) is True
        assert store.one(Unhit(key, "first")) is False
        assert store.one(Hit(key, "second", limit=1, per=10)).allowed

    def test_limits_of_two_keys_are_independent(self, store: Harness) -> None:
        here, there = fresh("limit/here"), fresh("limit/there")
        assert store.one(Hit(here, "owner", limit=1, per=10)).allowed
        assert store.one(Hit(there, "owner", limit=1, per=10)).allowed

    def test_every_window_allows_exactly_as_many_hits_as_the_limit(self, store: Harness, clock: ManualClock) -> None:
        key, chance, allowed_at = fresh("limit/window"), Random(7), list[float]()
        for n in range(300):
            clock.advance(chance.choice([0, 0, TICK, 0.1, 0.5, 1 - TICK, 1]))
            now = clock()
            allowance = store.one(Hit(key, f"owner-{n}", limit=5, per=2))
            in_window = sum(1 for at in allowed_at if now - at < 2 - TICK / 2)
            assert allowance.allowed is (in_window < 5), n
            if allowance.allowed:
                allowed_at.append(now)
        assert len(allowed_at) > 100
