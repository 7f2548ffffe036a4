"""Bugs that claims could have, each planted where it would really be made, for the simulator to find.

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
from tests.planted_bugs import Plant, Planted, cancelled_without_undoing, into, no_revoke, release_without_owner

BUGS: dict[str, Plant] = {
    "release_by_bare_key": release_without_owner,  # a late failure deletes its successor's claim
    "no_revoke": no_revoke,
    "cancelled_without_undoing": cancelled_without_undoing,
}
bug = into(BUGS)


@bug
def unfenced_publish() -> Planted:
    """Publish writes the result under the key, whoever has it."""
    right = t.finish

    def finish(record: t.Record, op: Finish, now: t.Now, told: list[str]) -> None:
        right(record, op._replace(owner=record.owner or op.owner), now, told)

    return patch.object(t, "finish", finish)


@bug
def late_publish_overwrites() -> Planted:
    """A displaced owner's publish replaces the result of its successor."""
    right = t.finish

    def finish(record: t.Record, op: Finish, now: t.Now, told: list[str]) -> None:
        if record.state is State.DONE and any(displaced.owner == op.owner for displaced in record.gone):
            record.value = op.value
        right(record, op, now, told)

    return patch.object(t, "finish", finish)


@bug
def publish_only_while_the_lease_lasts() -> Planted:
    """A result that comes after its lease ran out is thrown away, although nobody else took the claim."""
    right = t.finish

    def finish(record: t.Record, op: Finish, now: t.Now, told: list[str]) -> None:
        if not t._over(record, now):
            right(record, op, now, told)

    return patch.object(t, "finish", finish)


@bug
def publish_deletes_and_inserts() -> Planted:
    """Publish replaces the claim by its result in two steps: in between it is anyone's."""
    right = publish.finish

    def finish(hold: Hold, kept: bytes, keep: float, flights: Flights) -> Flow[Entry]:
        yield Clear(hold.key, hold.fence, "published")
        owner: str = yield Ask.OWNER
        entry: Entry = yield Acquire(hold.key, owner, hold.ttl, fingerprint=hold.fingerprint)
        return (yield from right(Hold(hold.key, owner, hold.ttl, entry, 0.0, False, hold.clock), kept, keep, flights))

    return patch.object(publish, "finish", finish)


@bug
def always_published() -> Planted:
    """The winner is told that its result stands, whatever the store says."""
    right = publish.publish

    def publishing(*given: Any) -> Flow[tuple[bool, Done | Entry]]:
        _, result = yield from right(*given)
        return True, result

    return patch.object(claims, "publish", publishing)


@bug
def promoted_twice() -> Planted:
    """When a winner fails, all who wait are told that they are next, and each of them takes the claim."""
    right_release, right_acquire = t.release, t.acquire
    promoted: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    class Remembered(t.Record):
        __slots__ = ("__weakref__",)

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        if record.state is State.HELD and record.owner == op.owner:
            promoted[record] = {waiter.client for waiter in record.waiters}
            told.extend(promoted[record])
        return right_release(record, op, now, told, born)

    def acquire(record: t.Record, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if op.client in promoted.get(record, ()) and record.owner != op.owner:
            promoted[record].discard(op.client)
            record.state = State.FREE
            record.opens = 0
        right_acquire(record, op, now, next_fence)

    return patch.multiple(t, release=release, acquire=acquire, Record=Remembered)


@bug
def owner_is_the_process() -> Planted:
    """All callers of a process ask under one id: the second one's repeat is answered as the first one's."""

    def fresh_owner(self: SimulatedRun) -> str:
        self.owner = f"{self.driver.name}.0"
        self.driver.owners[self.owner] = self
        return self.owner

    return patch.object(SimulatedRun, "fresh_owner", fresh_owner)


@bug
def cache_poisoned_by_a_cancelled_leader() -> Planted:
    """Whoever shares the question of a caller that is cancelled gets nothing, as if that were the result."""
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
    """Who comes later is told what the callers before it were told, however long ago."""

    def settle(self: flight.Flights, key: str, done: Done, left: float) -> bool:
        flight = self._in_flight.get(key)
        if flight is not None:
            flight.done = done
            flight.callers += 1  # of a caller that never leaves
        return flight is not None

    return patch.object(flight.Flights, "settle", settle)


@bug
def cached_beyond_its_time() -> Planted:
    """The local cache remembers a result for as long as it likes."""
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
    """An identical retry is refused as a mismatch while the first is under way."""
    return patch.object(claim, "_differs", lambda one, other: bool(one and other))


@bug
def attempts_are_not_counted() -> Planted:
    """Who takes over from one that died is told that it is the first."""
    right = t.acquire

    def acquire(record: t.Record, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if t._over(record, now):
            record.attempts = 0
        right(record, op, now, next_fence)

    return patch.object(t, "acquire", acquire)


@bug
def waiters_are_not_told_of_the_result() -> Planted:
    """Publish wakes only the first who waits; the others find out when they look again."""
    right = t.finish

    def finish(record: t.Record, op: Finish, now: t.Now, told: list[str]) -> None:
        everyone: list[str] = []
        right(record, op, now, everyone)
        told.extend(everyone[:1])

    return patch.object(t, "finish", finish)


@bug
def followers_are_not_told_of_the_result() -> Planted:
    """What the first of a process's line learns stays with it."""
    return patch.object(Waiters, "wake_all", lambda self, key: None)


@bug
def retry_after_is_ignored() -> Planted:
    """A failure that asks for a delay lets go at once."""
    right = t.release

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        return right(record, op._replace(delay=0.0), now, told, born)

    return patch.object(t, "release", release)


@bug
def reset_whatever_is_there() -> Planted:
    """Reset removes the key, not the result that the admin saw."""

    def reset(key: str, is_expected: Callable[[bytes | None], bool]) -> Flow[bool]:
        entry: Entry = yield Read(key)
        cleared: bool = yield Clear(key, entry.fence, "reset")
        return cleared

    return patch.object(claims, "reset", reset)
