"""Promises after data loss: no store reports the release of a hold that it does not have."""

from __future__ import annotations

from ...model import Entry, Released, State
from ...ops import Ack, Acquire, Clear, Finish, Push, Read, Release, Renew, Take
from ..clock import ManualClock
from ..harness import Harness, fresh

_OLD = 1  # a fence older than the data of any store: that of a hold which was granted and then lost with all data
_NO_LONGER_HELD = (Released.RELEASED, Released.ABSENT)  # valid replies if the hold ended, but not by data loss


class LossPromises:
    """Release and Ack with the fence of the grant."""

    def test_release_with_its_fence_frees_the_key(self, store: Harness) -> None:
        key, owner = fresh("lock/fenced-release"), fresh("owner")
        fence = store.one(Acquire(key, owner, ttl=10)).fence
        assert store.one(Release(key, owner, fence=fence)) is Released.RELEASED
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Release(key, owner, fence=fence)) in _NO_LONGER_HELD
        store.one(Acquire(key, fresh("successor"), ttl=10))
        assert store.one(Release(key, owner, fence=fence)) in _NO_LONGER_HELD

    def test_release_with_a_fence_older_than_the_data_returns_lost(self, store: Harness) -> None:
        free, held, successor = fresh("lock/lost"), fresh("lock/lost-and-taken"), fresh("successor")
        store.one(Acquire(held, successor, ttl=10))
        for key in (free, held):
            owner = fresh("owner")
            assert store.one(Release(key, owner, fence=_OLD)) is Released.LOST
            assert store.one(Release(key, owner, fence=_OLD)) is Released.LOST
            assert store.one(Release(key, owner, revoke=True, fence=_OLD)) is Released.LOST
            assert store.one(Release(key, owner, revoke=True, fence=_OLD)) is Released.LOST
        assert store.one(Renew(held, successor, 10)).owner == successor

    def test_each_release_in_a_batch_returns_its_own_outcome(self, store: Harness) -> None:
        keys = [fresh("lock/of-many") for _ in range(4)]
        entries = store.perform(*(Acquire(key, f"owner of {key}", 10) for key in keys[:3]))
        first, second, third = (entry.fence for entry in entries if isinstance(entry, Entry))
        *outcomes, taken = store.perform(
            Release(keys[0], f"owner of {keys[0]}", fence=first),
            Release(keys[3], "somebody", fence=_OLD),
            Release(keys[1], f"owner of {keys[1]}", revoke=True, fence=second),
            Acquire(fresh("lock/of-many"), "another", 10),
        )
        assert outcomes == [Released.RELEASED, Released.LOST, Released.RELEASED]
        assert isinstance(taken, Entry)
        assert taken.owner == "another"
        *outcomes, taken = store.perform(
            Release(keys[3], "somebody", fence=_OLD),
            Release(keys[2], f"owner of {keys[2]}", fence=third),
            Acquire(keys[2], "next", 10),
        )
        assert outcomes == [Released.LOST, Released.RELEASED]
        assert isinstance(taken, Entry)
        assert taken.owner == "next"

    def test_a_key_can_be_acquired_in_the_batch_that_reports_its_loss(self, store: Harness) -> None:
        key, owner = fresh("lock/passed-on"), fresh("owner")
        lost, taken = store.perform(Release(key, fresh("before"), fence=_OLD), Acquire(key, owner, 10))
        assert lost is Released.LOST
        assert isinstance(taken, Entry)
        assert taken.owner == owner
        released, taken = store.perform(Release(key, owner, fence=taken.fence), Acquire(key, "next", 10))
        assert released is Released.RELEASED
        assert isinstance(taken, Entry)
        assert taken.owner == "next"

    def test_release_of_a_lost_hold_returns_lost_even_if_a_late_copy_took_the_key_again(self, store: Harness) -> None:
        key, owner = fresh("lock/again"), fresh("owner")
        for revoke in (False, True):
            store.one(Acquire(key, owner, ttl=10))
            assert store.one(Release(key, owner, revoke=revoke, fence=_OLD)) is Released.LOST
            assert store.one(Read(key)).state is State.FREE

    def test_the_store_remembers_that_a_revoked_owner_held_the_key(self, store: Harness) -> None:
        key, owner = fresh("lock/revoked"), fresh("owner")
        fence = store.one(Acquire(key, owner, ttl=10)).fence
        assert store.one(Release(key, owner, revoke=True, fence=fence)) is Released.RELEASED
        assert store.one(Release(key, owner, fence=fence)) is Released.RELEASED
        assert store.one(Release(key, owner, revoke=True, fence=fence)) is Released.RELEASED

    def test_release_with_its_fence_returns_expired_or_cleared(self, store: Harness, clock: ManualClock) -> None:
        expired, cleared, owner = fresh("lock/expired"), fresh("lock/cleared"), fresh("owner")
        first, second = (store.one(Acquire(key, owner, ttl=10)).fence for key in (expired, cleared))
        assert store.one(Clear(cleared, second, "stuck"))
        clock.advance(10)
        for _ in range(2):
            assert store.one(Release(expired, owner, fence=first)) is Released.EXPIRED
            assert store.one(Release(cleared, owner, fence=second)) is Released.CLEARED

    def test_release_after_finish_does_not_return_lost(self, store: Harness) -> None:
        key, owner = fresh("claim/kept"), fresh("owner")
        fence = store.one(Acquire(key, owner, ttl=10)).fence
        store.one(Finish(key, owner, b"bresult", 60))
        assert store.one(Release(key, owner, fence=fence)) is Released.RELEASED
        assert store.one(Read(key)).value == b"bresult"

    def test_an_ack_of_a_lost_item_is_refused(self, store: Harness) -> None:
        queue = fresh("lost")
        assert store.one(Ack(queue, "lost", "owner", fence=_OLD)) is False
        store.one(Push(queue, "job", b""))
        item = store.one(Take(queue, "owner", 10))
        assert item is not None
        assert store.perform(Ack(queue, "lost", "owner", fence=_OLD), Ack(queue, "job", "owner", fence=item.fence)) == [
            False,
            True,
        ]
        assert store.one(Ack(queue, "job", "owner", fence=item.fence)) is True
