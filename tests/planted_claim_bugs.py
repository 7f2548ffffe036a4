"""Bugs that claims could have, each planted where a programmer would make it, for the simulator to find.

`python -m solely.testing.simulator --of claims --seed 0 --seeds 50 --bug tests.planted_claim_bugs:unfenced_publish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from solely import cache
from solely.claims import calls as claiming
from solely.claims import flights as flight
from solely.claims import flow as claim
from solely.claims import publish
from solely.claims.flights import Done, Flights
from solely.drivers.simulated import SimulatedRun
from solely.drivers.waiters import Waiters
from solely.errors import Interrupted
from solely.flow import Ask, Flow, WakeAll
from solely.leases import flow as lock
from solely.leases.hold import Hold
from solely.model import Entry, Released, State
from solely.ops import Acquire, Clear, Finish, Read, Release
from solely.stores import transitions as t
from solely.testing.simulator import claims
from tests.planted_bugs import Plant, Planted, cancelled_without_undoing, no_revoke, register_in, release_without_owner

BUGS: dict[str, Plant] = {
    "release_by_bare_key": release_without_owner,  # a late failure deletes its successor's claim
    "no_revoke": no_revoke,
    "cancelled_without_undoing": cancelled_without_undoing,
}
bug = register_in(BUGS)


@bug
def unfenced_publish() -> Planted:
    """Publish writes the result under the key, whichever owner holds it."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        right(record, op._replace(owner=record.owner or op.owner), now, notified)

    return patch.object(t, "finish", finish)


@bug
def late_publish_overwrites() -> Planted:
    """A displaced owner's publish replaces the result of its successor."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        if record.state is State.DONE and any(displaced.owner == op.owner for displaced in record.gone):
            record.value = op.value
        right(record, op, now, notified)

    return patch.object(t, "finish", finish)


@bug
def publish_only_while_the_lease_lasts() -> Planted:
    """A result that arrives after its lease expired is discarded, although nobody else took the claim."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        if not t._over(record, now):
            right(record, op, now, notified)

    return patch.object(t, "finish", finish)


@bug
def publish_deletes_and_inserts() -> Planted:
    """Publish replaces the claim by its result in two steps: in between anyone can take it."""
    right = publish.finish

    def finish(hold: Hold, kept: bytes, keep: float, flights: Flights) -> Flow[Entry]:
        yield Clear(hold.key, hold.fence, "published")
        owner: str = yield Ask.OWNER
        entry: Entry = yield Acquire(hold.key, owner, hold.ttl, fingerprint=hold.fingerprint)
        return (yield from right(Hold(hold.key, owner, hold.ttl, entry, 0.0, False, hold.clock), kept, keep, flights))

    return patch.object(publish, "finish", finish)


@bug
def always_published() -> Planted:
    """Publish always reports that the result was accepted, whatever the store replies."""
    right = publish.publish

    def publishing(*given: Any) -> Flow[tuple[bool, Done | Entry]]:
        _, result = yield from right(*given)
        return True, result

    return patch.object(claims, "publish", publishing)


@bug
def promoted_twice() -> Planted:
    """When a winner fails, all waiters are woken, and each of them takes the claim."""
    right_release, right_acquire = t.release, t.acquire
    promoted: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    class Remembered(t.StoredRecord):
        __slots__ = ("__weakref__",)

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        if record.state is State.HELD and record.owner == op.owner:
            promoted[record] = {waiter.client for waiter in record.waiters}
            notified.extend(promoted[record])
        return right_release(record, op, now, notified, born)

    def acquire(record: t.StoredRecord, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if op.client in promoted.get(record, ()) and record.owner != op.owner:
            promoted[record].discard(op.client)
            record.state = State.FREE
            record.opens = 0
        right_acquire(record, op, now, next_fence)

    return patch.multiple(t, release=release, acquire=acquire, StoredRecord=Remembered)


@bug
def owner_is_the_process() -> Planted:
    """All callers of a process share one owner id: the second caller's acquire counts as a repeat of the first."""

    def fresh_owner(self: SimulatedRun) -> str:
        self.owner = f"{self.driver.name}.0"
        self.driver.owners[self.owner] = self
        return self.owner

    return patch.object(SimulatedRun, "fresh_owner", fresh_owner)


@bug
def cache_poisoned_by_a_cancelled_leader() -> Planted:
    """Callers that share the request of a cancelled caller receive None as the result."""
    right = claim.claim

    def claiming_(key: str, terms: lock.LeaseTerms, flights: Flights, *given: Any) -> Flow[Any]:
        try:
            return (yield from right(key, terms, flights, *given))
        except Interrupted:
            flights.settle(key, Done(None, "", 0, 0), 60.0)
            yield WakeAll(key)
            raise

    return patch.object(claiming, "claim", claiming_)


@bug
def flight_is_never_over() -> Planted:
    """Later callers receive the result of earlier callers of the process, however old it is."""

    def settle(self: flight.Flights, key: str, done: Done, left: float) -> bool:
        under_way = self._in_flight.get(key)
        if under_way is not None:
            under_way.done = done
            under_way.callers += 1  # a caller that never leaves
        return under_way is not None

    return patch.object(flight.Flights, "settle", settle)


@bug
def cached_beyond_its_time() -> Planted:
    """The local cache keeps a result longer than the store does."""
    right = cache.Cache.add

    def add(self: cache.Cache, key: str, left: float, *outcome: Any) -> None:
        right(self, key, 3600.0, *outcome)

    return patch.object(cache.Cache, "add", add)


@bug
def fingerprint_is_not_compared() -> Planted:
    """The same key with another payload gets the first one's result."""
    return patch.multiple(claim, refuse_other=lambda *given: None)


@bug
def retry_counts_as_another_payload() -> Planted:
    """An identical retry is refused as a mismatch while the first request is in flight."""
    return patch.object(claim, "_differs", lambda one, other: bool(one and other))


@bug
def attempts_are_not_counted() -> Planted:
    """The successor of a dead winner is counted as the first attempt."""
    right = t.acquire

    def acquire(record: t.StoredRecord, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if t._over(record, now):
            record.attempts = 0
        right(record, op, now, next_fence)

    return patch.object(t, "acquire", acquire)


@bug
def only_the_first_waiter_gets_a_hint_of_the_result() -> Planted:
    """Publish wakes only the first waiter; the others notice when they poll."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        everyone: list[str] = []
        right(record, op, now, everyone)
        notified.extend(everyone[:1])

    return patch.object(t, "finish", finish)


@bug
def result_does_not_wake_other_local_waiters() -> Planted:
    """The result that one waiter of a process receives does not wake its other waiters."""
    return patch.object(Waiters, "wake_all", lambda self, key: None)


@bug
def retry_after_is_ignored() -> Planted:
    """A failure with a delay releases the key at once."""
    right = t.release

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        return right(record, op._replace(delay=0.0), now, notified, born)

    return patch.object(t, "release", release)


@bug
def reset_whatever_is_there() -> Planted:
    """Reset removes the current entry, not only the result that the admin saw."""

    def reset(key: str, is_expected: Callable[[bytes | None], bool]) -> Flow[bool]:
        entry: Entry = yield Read(key)
        cleared: bool = yield Clear(key, entry.fence, "reset")
        return cleared

    return patch.object(claims, "reset", reset)
