"""Promises about holding a key: who gets it, for how long, and what other and late callers are answered."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ...model import Entry, Gone, Released, State
from ...ops import Acquire, Clear, Read, Release, Renew
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class HoldPromises:
    """Acquire, Renew and Release."""

    def test_a_free_key_is_granted(self, store: Harness) -> None:
        key, owner = fresh("lock/free"), fresh("owner")
        entry = store.one(Acquire(key, owner, ttl=10, info="me", fingerprint="abc"))
        assert (entry.key, entry.state, entry.owner) == (key, State.HELD, owner)
        assert abs(entry.left - 10) <= TICK
        assert (entry.attempts, entry.refused, entry.waiters) == (1, 0, 0)
        assert (entry.info, entry.fingerprint, entry.value, entry.gone) == ("me", "abc", None, "")
        assert entry.fence > 0

    def test_a_refused_acquire_reports_the_holder_and_the_time_left(self, store: Harness, clock: ManualClock) -> None:
        key, holder = fresh("lock/held"), fresh("holder")
        held = store.one(Acquire(key, holder, ttl=10, info="host 7", fingerprint="abc"))
        clock.advance(4)
        entry = store.one(Acquire(key, fresh("other"), ttl=99))
        assert (entry.state, entry.owner, entry.fence) == (State.HELD, "", held.fence)
        assert (entry.info, entry.fingerprint, entry.gone) == ("host 7", "abc", "")
        assert abs(entry.left - 6) <= TICK

    def test_a_repeat_answers_the_same_fence_and_does_not_extend(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("lock/repeat"), fresh("owner")
        first = store.one(Acquire(key, owner, ttl=10))
        clock.advance(3)
        again = store.one(Acquire(key, owner, ttl=10, counted=True, client="me"))
        assert (again.owner, again.fence, again.attempts) == (owner, first.fence, 1)
        assert (again.refused, again.waiters) == (0, 0)
        assert abs(again.left - 7) <= TICK

    def test_a_hold_lasts_for_its_ttl_and_not_a_tick_longer(self, store: Harness, clock: ManualClock) -> None:
        key, holder, other = fresh("lock/expiry"), fresh("holder"), fresh("other")
        first = store.one(Acquire(key, holder, ttl=10))
        clock.advance(10 - TICK)
        assert store.one(Acquire(key, other, ttl=10)).owner == ""
        clock.advance(TICK)
        assert store.one(Read(key)).state is State.FREE
        second = store.one(Acquire(key, other, ttl=10))
        assert second.owner == other
        assert second.fence > first.fence

    def test_renew_extends_the_hold_from_now(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("lock/renew"), fresh("owner")
        first = store.one(Acquire(key, owner, ttl=10))
        clock.advance(9)
        renewed = store.one(Renew(key, owner, ttl=10))
        assert (renewed.owner, renewed.fence, renewed.attempts) == (owner, first.fence, 1)
        assert abs(renewed.left - 10) <= TICK
        clock.advance(9)
        assert store.one(Acquire(key, fresh("other"), ttl=1)).state is State.HELD

    def test_renew_never_shortens_a_hold(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("lock/shorten"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        assert abs(store.one(Renew(key, owner, ttl=1)).left - 10) <= TICK
        clock.advance(9)
        assert store.one(Read(key)).state is State.HELD

    def test_renew_never_revives_an_expired_hold(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("lock/revive"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        clock.advance(10)
        late = store.one(Renew(key, owner, ttl=10))
        assert (late.state, late.owner, late.gone) == (State.FREE, "", Gone.EXPIRED)

    def test_renew_by_a_stranger_changes_nothing(self, store: Harness) -> None:
        key, owner = fresh("lock/stranger"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        entry = store.one(Renew(key, fresh("stranger"), ttl=99))
        assert entry.owner == ""
        assert abs(entry.left - 10) <= TICK

    def test_renew_of_a_key_that_nobody_holds_creates_nothing(self, store: Harness) -> None:
        key = fresh("lock/nobody")
        assert store.one(Renew(key, fresh("owner"), ttl=10)).state is State.FREE
        assert store.scan(key) == []

    def test_release_frees_the_key_and_a_repeat_returns_the_same(self, store: Harness) -> None:
        key, owner = fresh("lock/release"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        assert store.one(Release(key, owner)) is Released.RELEASED
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Release(key, owner)) is Released.RELEASED

    def test_a_repeated_release_does_not_free_the_next_holder(self, store: Harness) -> None:
        key, owner, successor = fresh("lock/late-release"), fresh("owner"), fresh("successor")
        store.perform(Acquire(key, owner, 10), Release(key, owner), Acquire(key, successor, 10))
        assert store.one(Release(key, owner)) is Released.RELEASED
        assert store.one(Renew(key, successor, 10)).owner == successor

    def test_release_by_a_stranger_frees_nothing(self, store: Harness) -> None:
        key, owner = fresh("lock/stranger"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        store.one(Release(key, fresh("stranger"), delay=5))
        assert store.one(Renew(key, owner, 10)).owner == owner

    def test_release_after_expiry_returns_expired_also_when_repeated(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("lock/expired"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10))
        clock.advance(10)
        assert store.one(Release(key, owner)) is Released.EXPIRED
        assert store.one(Release(key, owner)) is Released.EXPIRED
        clock.advance(59)
        assert store.one(Release(key, owner)) is Released.EXPIRED

    def test_release_returns_expired_after_another_took_the_key(self, store: Harness, clock: ManualClock) -> None:
        key, owner, successor = fresh("lock/displaced"), fresh("owner"), fresh("successor")
        store.one(Acquire(key, owner, ttl=10))
        clock.advance(10)
        store.one(Acquire(key, successor, ttl=100))
        clock.advance(59)
        assert store.one(Release(key, owner)) is Released.EXPIRED
        assert store.one(Renew(key, successor, 10)).owner == successor

    def test_release_after_clear_returns_cleared(self, store: Harness) -> None:
        key, owner = fresh("lock/cleared"), fresh("owner")
        fence = store.one(Acquire(key, owner, ttl=10)).fence
        assert store.one(Clear(key, fence, "stuck"))
        assert store.one(Release(key, owner)) is Released.CLEARED
        assert store.one(Release(key, owner, revoke=True)) is Released.CLEARED
        assert store.one(Release(key, owner)) is Released.CLEARED

    def test_an_expired_cleared_or_revoked_owner_is_refused_for_a_minute(
        self, store: Harness, clock: ManualClock
    ) -> None:
        expired, cleared, revoked = keys = [fresh(f"lock/{how}") for how in ("expired", "cleared", "revoked")]
        owner = fresh("owner")
        store.perform(*(Acquire(key, owner, ttl=10) for key in keys))
        clock.advance(9)
        store.perform(Clear(cleared, store.one(Read(cleared)).fence, ""), Release(revoked, owner, revoke=True))
        clock.advance(1)
        assert store.one(Release(expired, owner)) is Released.EXPIRED
        for seconds in (0, 30, 29 - TICK):
            clock.advance(seconds)
            for key, how in zip(keys, (Gone.EXPIRED, Gone.CLEARED, Gone.REVOKED), strict=True):
                late = store.one(Acquire(key, owner, ttl=10))
                assert (late.state, late.owner, late.gone) == (State.FREE, "", how)

    def test_a_late_copy_cannot_take_the_key_back_from_its_successor(self, store: Harness, clock: ManualClock) -> None:
        key, owner, successor = fresh("lock/late-copy"), fresh("owner"), fresh("successor")
        store.one(Acquire(key, owner, ttl=1))
        clock.advance(1)
        store.perform(Acquire(key, successor, 1), Release(key, successor))
        late = store.one(Acquire(key, owner, ttl=1))
        assert (late.owner, late.gone) == ("", Gone.EXPIRED)

    def test_a_revoke_that_arrives_before_its_acquire_refuses_it(self, store: Harness) -> None:
        key, owner, other = fresh("lock/overtaken"), fresh("owner"), fresh("other")
        assert store.one(Release(key, owner, revoke=True)) is Released.RELEASED
        late = store.one(Acquire(key, owner, ttl=10, client="c"))
        assert (late.owner, late.gone, late.waiters) == ("", Gone.REVOKED, 0)
        assert store.one(Release(key, owner)) is Released.RELEASED
        assert store.one(Acquire(key, other, ttl=10)).owner == other

    def test_a_release_without_revoke_lets_the_owner_acquire_again(self, store: Harness) -> None:
        key, owner = fresh("lock/again"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Release(key, owner))
        assert store.one(Acquire(key, owner, 10)).owner == owner

    def test_the_lock_delay_closes_the_key_after_an_expiry(self, store: Harness, clock: ManualClock) -> None:
        key, owner, other = fresh("lock/delay"), fresh("owner"), fresh("other")
        store.one(Acquire(key, owner, ttl=10, delay=5))
        clock.advance(12)
        entry = store.one(Acquire(key, other, ttl=10))
        assert (entry.state, entry.owner) == (State.CLOSED, "")
        assert abs(entry.left - 3) <= TICK
        assert store.one(Release(key, owner)) is Released.EXPIRED
        assert store.one(Read(key)).state is State.CLOSED
        clock.advance(3)
        assert store.one(Acquire(key, other, ttl=10)).owner == other

    def test_the_lock_delay_does_not_follow_a_release(self, store: Harness) -> None:
        key, owner, other = fresh("lock/no-delay"), fresh("owner"), fresh("other")
        store.perform(Acquire(key, owner, ttl=10, delay=5), Release(key, owner))
        assert store.one(Acquire(key, other, ttl=10)).owner == other

    def test_a_release_with_delay_closes_the_key_for_that_long(self, store: Harness, clock: ManualClock) -> None:
        key, owner, other = fresh("lock/closed"), fresh("owner"), fresh("other")
        store.one(Acquire(key, owner, ttl=10))
        assert store.one(Release(key, owner, delay=5)) is Released.RELEASED
        entry = store.one(Acquire(key, other, ttl=10))
        assert (entry.state, entry.owner, entry.fence) == (State.CLOSED, "", 0)
        assert abs(entry.left - 5) <= TICK
        clock.advance(5)
        assert store.one(Acquire(key, other, ttl=10)).owner == other

    def test_attempts_are_counted_over_expiries(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("claim/attempts")
        for attempt in (1, 2, 3):
            assert store.one(Acquire(key, fresh("owner"), ttl=10)).attempts == attempt
            clock.advance(10)
        assert store.one(Read(key)).attempts == 3

    def test_a_minute_after_its_expiry_a_hold_is_forgotten(self, store: Harness, clock: ManualClock) -> None:
        key, other = fresh("claim/forgotten"), fresh("other")
        store.one(Acquire(key, fresh("owner"), ttl=10, delay=5))
        store.one(Acquire(key, other, ttl=10, client="waiter", counted=True))
        clock.advance(10 + 5 + 60 - TICK)
        remembered = store.one(Read(key))
        assert (remembered.state, remembered.attempts, remembered.refused) == (State.FREE, 1, 1)
        clock.advance(TICK)
        assert store.one(Read(key)) == Entry(key, State.FREE)
        granted = store.one(Acquire(key, other, ttl=10))
        assert (granted.attempts, granted.refused, granted.waiters) == (1, 0, 0)

    def test_attempts_are_forgotten_by_a_release_although_it_revokes(self, store: Harness) -> None:
        key, owner = fresh("claim/revoked"), fresh("owner")
        store.perform(Acquire(key, owner, ttl=10), Release(key, owner, revoke=True))
        assert store.one(Acquire(key, fresh("other"), ttl=10)).attempts == 1

    def test_attempts_are_forgotten_by_a_release_unless_it_keeps_them(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("claim/keep")
        for owner, keep, attempts in (("a", 30.0, 1), ("b", 30.0, 2), ("c", 0.0, 3), ("d", 30.0, 1)):
            assert store.one(Acquire(key, owner, ttl=10)).attempts == attempts
            store.one(Release(key, owner, keep=keep))
            clock.advance(30 - TICK)
        clock.advance(TICK)
        assert store.one(Acquire(key, "e", ttl=10)).attempts == 1

    def test_a_refusal_is_counted_only_if_requested(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("reservation/refused"), fresh("owner")
        store.one(Acquire(key, owner, ttl=10, counted=True))
        assert store.one(Acquire(key, fresh("other"), ttl=10)).refused == 0
        assert store.one(Acquire(key, fresh("other"), ttl=10, counted=True)).refused == 1
        assert store.one(Acquire(key, fresh("other"), ttl=10, counted=True)).refused == 2
        assert store.one(Renew(key, owner, ttl=10)).refused == 2
        store.one(Release(key, owner))
        assert store.one(Acquire(key, fresh("other"), ttl=10)).refused == 0

    def test_fences_grow_through_release_expiry_clear_and_reopening(
        self, connect: Callable[[], Harness], clock: ManualClock
    ) -> None:
        key, store = fresh("lock/fences"), connect()
        fences = [store.one(Acquire(key, "released", ttl=10)).fence]
        store.one(Release(key, "released"))
        fences.append(store.one(Acquire(key, "expired", ttl=10)).fence)
        clock.advance(10)
        fences.append(store.one(Acquire(key, "cleared", ttl=10)).fence)
        store.one(Clear(key, fences[-1], ""))
        fences.append(store.one(Acquire(key, "forgotten", ttl=10)).fence)
        clock.advance(1_000)
        fences.append(store.one(Acquire(key, "closed", ttl=10)).fence)
        store.close()
        clock.advance(11)  # the store may have lost its data now, but not its clock
        fences.append(connect().one(Acquire(key, "reopened", ttl=10)).fence)
        assert all(earlier < later for earlier, later in pairwise(fences)), fences

    def test_two_clients_see_the_same_holder(self, connect: Callable[[], Harness]) -> None:
        key, owner, other = fresh("lock/shared"), fresh("owner"), fresh("other")
        here, there = connect(), connect()
        assert here.client != there.client
        assert here.one(Acquire(key, owner, 10)).owner == owner
        assert there.one(Acquire(key, other, 10)).owner == ""
        here.one(Release(key, owner))
        assert there.one(Acquire(key, other, 10)).owner == other
