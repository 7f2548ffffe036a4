"""Bugs that a lock library could have, each planted where a programmer would make it, for the simulator to find.

Each is a context manager: `python -m solely.testing.simulator --seed 0 --seeds 50 --bug tests.planted_bugs:no_revoke`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest.mock import patch

from solely.drivers.simulated import SimulatedRun
from solely.drivers.waiters import Waiter, Waiters
from solely.errors import StoreError
from solely.flow import RUN
from solely.leases import flow as lock
from solely.leases import hold
from solely.leases.token import Token
from solely.locks import flow as locks
from solely.model import Entry, Gone, Released, State
from solely.ops import Acquire, Clear, Mark, Op, Release, Renew, Reply, Resume
from solely.stores import transitions as t
from solely.stores.memory import Memory
from solely.testing.simulator.network import START, Network

Planted = AbstractContextManager[object]
Plant = Callable[[], Planted]
BUGS: dict[str, Plant] = {}


def register_in(bugs: dict[str, Plant]) -> Callable[[Plant], Plant]:
    """Returns a decorator that adds its function to `bugs`."""

    def bug(plant: Plant) -> Plant:
        bugs[plant.__name__] = plant
        return plant

    return bug


bug = register_in(BUGS)


@bug
def get_then_set() -> Planted:
    """Acquire reads, then writes 5 ms later, and overwrites an owner that took the key in between."""
    right = Memory._acquire

    def acquire(self: Memory, op: Acquire, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._records.get(op.key)
        if record is not None and record.state is State.HELD and now.wall - record.fence < 5_000:
            t._set_free(record)
        return right(self, op, now, hints)

    return patch.object(Memory, "_acquire", acquire)


@bug
def release_without_owner() -> Planted:
    """Release deletes the key, whoever holds it."""
    right = t.release

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        return right(record, op._replace(owner=record.owner or op.owner), now, notified, born)

    return patch.object(t, "release", release)


@bug
def client_clock() -> Planted:
    """Clients send "now", and their clocks are some seconds apart."""
    right = Network._arrive

    def arrive(self: Network, run: SimulatedRun, turn: int, ops: Sequence[Op], gives_up: float) -> None:
        skew = run.driver._start % 4.0
        self.memory.clock = lambda: START + skew + self.timeline.now
        right(self, run, turn, ops, gives_up)

    return patch.object(Network, "_arrive", arrive)


@bug
def fence_in_the_expiring_key() -> Planted:
    """The fence is a field of the entry, and starts at 1 again when the entry has expired."""

    def acquire(self: Memory, op: Acquire, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.acquire(record, op, now, lambda: record.fence + 1)
        self._keep(op.key, record, now)
        return t.view(op.key, record, now, op.owner)

    return patch.object(Memory, "_acquire", acquire)


@bug
def no_revoke() -> Planted:
    """A compensating release does not revoke, so a late acquire that it overtook takes the key."""
    right = t.release

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        return right(record, op._replace(revoke=False), now, notified, born)

    return patch.object(t, "release", release)


@bug
def clear_removes_the_successor() -> Planted:
    """Clear compares no fence."""
    right = t.clear

    def clear(record: t.StoredRecord, op: Clear, now: t.Now, notified: list[str]) -> bool:
        return right(record, op._replace(fence=record.fence), now, notified)

    return patch.object(t, "clear", clear)


@bug
def false_release_answer() -> Planted:
    """Release returns "released" although the hold had expired."""
    right = t.release

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        right(record, op, now, notified, born)
        return Released.RELEASED

    return patch.object(t, "release", release)


@bug
def loss_is_reported_as_released() -> Planted:
    """Release returns "released" for every unknown owner, even if the store has lost all data since."""
    right = t.release

    def release(
        record: t.StoredRecord, op: Release, now: t.Now, notified: list[str], born: Callable[[], int]
    ) -> Released:
        return right(record, op._replace(fence=0), now, notified, born)

    return patch.object(t, "release", release)


@bug
def age_of_the_data_is_ignored() -> Planted:
    """A release that is repeated because it got no answer finds nothing, and takes that for the success of its first
    copy, although the store has lost its data in between."""
    return patch.object(t, "is_lost", lambda fence, born: False)


@bug
def hint_before_the_wait_is_lost() -> Planted:
    """A wake-up is lost if its waiter does not sleep yet."""
    right = SimulatedRun.wake

    def wake(self: SimulatedRun) -> None:
        if self._sleeping:
            right(self)

    return patch.object(SimulatedRun, "wake", wake)


@bug
def error_fails_the_rest_of_the_batch() -> Planted:
    """A batch stops at its first error: all later ops get the same error."""

    def perform(self: Memory, batch: Sequence[Op]) -> list[Reply | StoreError]:
        hints: list[tuple[str, str]] = []
        now, replies = self.now(), list[Reply | StoreError]()
        for op in batch:
            failed = bool(replies) and isinstance(replies[-1], StoreError)
            replies.append(replies[-1] if failed else self._one(op, now, hints))
        for client, key in hints:
            self.listeners[client](key)
        return replies

    return patch.object(Memory, "perform", perform)


@bug
def renewal_revives() -> Planted:
    """Renew extends an expired lease."""

    def renew(record: t.StoredRecord, op: Renew, now: t.Now) -> None:
        if record.state is State.HELD and record.owner == op.owner:
            record.until = now.lease + t.us(op.ttl)

    return patch.object(t, "renew", renew)


@bug
def renewal_shortens() -> Planted:
    """Renew sets the expiry, even to an earlier time than the holder relies on."""

    def renew(record: t.StoredRecord, op: Renew, now: t.Now) -> None:
        if record.state is State.HELD and record.owner == op.owner and now.lease < record.until:
            record.until = now.lease + t.us(op.ttl)

    return patch.object(t, "renew", renew)


@bug
def resume_is_a_renewal() -> Planted:
    """Whoever resumes a token shares the owner in it: all of them hold the key, under one fence."""

    def resume(token: Token, info: Callable[[str], str]) -> Generator[Any, Any, tuple[hold.Hold | None, Entry]]:
        entry = yield Renew(token.key, token.owner, token.ttl)
        run = yield RUN
        if entry.owner != token.owner:
            return None, entry
        return hold.Hold(token.key, token.owner, token.ttl, entry, run.sent, True, run.now), entry

    return patch.object(lock, "resume", resume)


@bug
def resumed_twice() -> Planted:
    """Resume takes the key from whoever resumed the token before."""
    right = t.resume

    def resume(record: t.StoredRecord, op: Resume, now: t.Now, next_fence: Callable[[], int]) -> None:
        known = t._how(record, op.owner, now) == Gone.RESUMED and record.owner != op.successor
        right(record, op._replace(owner=record.owner) if known else op, now, next_fence)

    return patch.object(t, "resume", resume)


@bug
def resume_keeps_the_fence() -> Planted:
    """The one who resumes has another owner, but the fence of the former holder."""
    right = t.resume

    def resume(record: t.StoredRecord, op: Resume, now: t.Now, next_fence: Callable[[], int]) -> None:
        right(record, op, now, lambda: record.fence)

    return patch.object(t, "resume", resume)


@bug
def interrupted_resume_is_not_undone() -> Planted:
    """A caller that is canceled while it resumes leaves the key held."""
    right = lock.resume

    def resume(token: Token, info: Callable[[str], str]) -> Generator[Any, Any, tuple[hold.Hold | None, Entry]]:
        flow, reply = right(token, info), None
        while True:
            try:
                reply = yield flow.send(reply)
            except StopIteration as end:
                value: tuple[hold.Hold | None, Entry] = end.value
                return value

    return patch.object(lock, "resume", resume)


@bug
def deadline_from_the_reply() -> Planted:
    """The holder's deadline runs from when the reply arrived."""
    right = SimulatedRun.answered

    def answered(self: SimulatedRun, turn: int, answer: Any) -> None:
        if turn == self.turn:
            self.sent = self.driver.clock()
        right(self, turn, answer)

    return patch.object(SimulatedRun, "answered", answered)


@bug
def no_drift_allowance() -> Planted:
    """The holder assumes that its clock runs as fast as the store's."""
    return patch.multiple(hold, deadline=lambda sent, left: sent + left)


@bug
def repeat_is_granted_anew() -> Planted:
    """A repeated acquire of the holder gets a new fence and a new ttl."""
    right = t.acquire

    def acquire(record: t.StoredRecord, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if record.state is State.HELD and record.owner == op.owner:
            t._set_free(record)
        right(record, op, now, next_fence)

    return patch.object(t, "acquire", acquire)


@bug
def never_looks_again() -> Planted:
    """A waiter relies on its hint alone."""
    return patch.object(lock, "look_again", lambda *looking: 3600.0)


@bug
def offer_never_expires() -> Planted:
    """A key that was offered to a waiter stays closed to all others, even if that waiter is dead."""
    return patch.object(t, "_OFFER", t.us(3600.0))


@bug
def lock_all_in_any_order() -> Planted:
    """Several keys are taken in the order of the call, not sorted."""
    calls = count()
    return patch.object(locks, "sorted", lambda keys: sorted(keys, reverse=next(calls) % 2 == 0), create=True)


@bug
def mark_without_owner() -> Planted:
    """A repeated mark of the first caller returns "seen": nobody does the work."""
    right = t.mark

    def mark(record: t.StoredRecord, op: Mark, now: t.Now, next_fence: Callable[[], int]) -> bool:
        return t._over(record, now) and right(record, op, now, next_fence)

    return patch.object(t, "mark", mark)


@bug
def check_then_insert_mark() -> Planted:
    """Mark checks, then inserts 5 ms later: two callers that check at the same time are both first."""
    right = t.mark

    def mark(record: t.StoredRecord, op: Mark, now: t.Now, next_fence: Callable[[], int]) -> bool:
        if record.state is State.DONE and now.wall - record.fence < 5_000:
            t._set_free(record)
        return right(record, op, now, next_fence)

    return patch.object(t, "mark", mark)


@bug
def cancelled_without_undoing() -> Planted:
    """A cancelled flow ends without compensation."""

    def cancel(self: SimulatedRun, cause: BaseException) -> None:
        if not self.over:
            self._flow.close()
            self.turn += 1
            self._end(None, cause)

    return patch.object(SimulatedRun, "cancel", cancel)


@bug
def next_local_waiter_is_not_woken() -> Planted:
    """A waiter that leaves the local queue of a process does not wake the next."""

    def leave(self: Waiters, key: str, waiter: Waiter) -> None:
        others = self._others.get(key)
        if self._first[key] is not waiter and others:
            others.remove(waiter)
        elif others:
            self._first[key] = others.popleft()
        else:
            del self._first[key]
        if others is not None and not others:
            del self._others[key]

    return patch.object(Waiters, "leave", leave)


@bug
def displaced_owners_are_forgotten() -> Planted:
    """The store remembers only the last owner that it displaced."""
    return patch.object(t, "MAX_GONE", 1)
