"""Promises about limits: exact in every window, and each owner counts once."""

from __future__ import annotations

from random import Random

from ...ops import Hit, Unhit
from ..clock import ManualClock
from ..face import Face, fresh

_TICK = 0.001  # the resolution of a store's clock


class LimitPromises:
    """Hit and Unhit."""

    def test_as_many_as_the_limit_are_allowed(self, store: Face, clock: ManualClock) -> None:
        key = fresh("limit/count")
        for hits in (1, 2, 3):
            allowance = store.one(Hit(key, fresh("owner"), limit=3, per=10))
            assert (allowance.allowed, allowance.hits, allowance.retry_after) == (True, hits, 0.0)
            clock.advance(1)
        refused = store.one(Hit(key, fresh("owner"), limit=3, per=10))
        assert (refused.allowed, refused.hits) == (False, 3)

    def test_retry_after_is_the_moment_at_which_one_more_is_allowed(self, store: Face, clock: ManualClock) -> None:
        key = fresh("limit/retry")
        for _ in range(3):
            store.one(Hit(key, fresh("owner"), limit=3, per=10))
            clock.advance(2)
        refused = store.one(Hit(key, "late", limit=3, per=10))
        assert abs(refused.retry_after - 4) <= _TICK
        clock.advance(4 - _TICK)
        assert not store.one(Hit(key, "late", limit=3, per=10)).allowed
        clock.advance(_TICK)
        assert store.one(Hit(key, "late", limit=3, per=10)).allowed

    def test_retry_after_is_right_when_the_limit_was_lowered(self, store: Face, clock: ManualClock) -> None:
        key = fresh("limit/lowered")
        for _ in range(4):
            store.one(Hit(key, fresh("owner"), limit=4, per=10))
            clock.advance(1)
        refused = store.one(Hit(key, "late", limit=2, per=10))
        assert (refused.allowed, refused.hits) == (False, 4)
        assert abs(refused.retry_after - 8) <= _TICK  # three of four must leave the window

    def test_a_repeat_by_the_same_owner_counts_once(self, store: Face) -> None:
        key = fresh("limit/repeat")
        for _ in range(5):
            allowance = store.one(Hit(key, "owner", limit=2, per=10))
            assert (allowance.allowed, allowance.hits) == (True, 1)
        assert store.one(Hit(key, "other", limit=2, per=10)).hits == 2
        assert store.one(Hit(key, "owner", limit=2, per=10)).allowed

    def test_a_refused_hit_is_not_counted(self, store: Face, clock: ManualClock) -> None:
        key = fresh("limit/refused")
        store.one(Hit(key, "first", limit=1, per=10))
        clock.advance(9)
        assert not store.one(Hit(key, "second", limit=1, per=10)).allowed
        clock.advance(1)
        assert store.one(Hit(key, "third", limit=1, per=10)).allowed

    def test_unhit_gives_back_what_its_owner_took(self, store: Face) -> None:
        key = fresh("limit/back")
        store.one(Hit(key, "first", limit=1, per=10))
        assert store.one(Unhit(key, "stranger")) is False
        assert store.one(Unhit(key, "first")) is True
        assert store.one(Unhit(key, "first")) is False
        assert store.one(Hit(key, "second", limit=1, per=10)).allowed

    def test_limits_of_two_keys_do_not_meet(self, store: Face) -> None:
        here, there = fresh("limit/here"), fresh("limit/there")
        assert store.one(Hit(here, "owner", limit=1, per=10)).allowed
        assert store.one(Hit(there, "owner", limit=1, per=10)).allowed

    def test_never_more_than_the_limit_in_any_window_and_never_less_than_it_allows(
        self, store: Face, clock: ManualClock
    ) -> None:
        key, chance, allowed_at = fresh("limit/window"), Random(7), list[float]()
        for n in range(300):
            clock.advance(chance.choice([0, 0, _TICK, 0.1, 0.5, 1 - _TICK, 1]))
            now = clock()
            allowance = store.one(Hit(key, f"owner-{n}", limit=5, per=2))
            in_window = sum(1 for at in allowed_at if now - at < 2 - _TICK / 2)
            assert allowance.allowed is (in_window < 5), n
            if allowance.allowed:
                allowed_at.append(now)
        assert len(allowed_at) > 100
