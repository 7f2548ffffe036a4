"""Bugs that a lock library could have, each planted where it would really be made, for the simulator to find.

Each is a context manager: `python -m solely.testing.simulator --seed 0 --seeds 50 --bug tests.planted_bugs:no_revoke`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest.mock import patch

from solely.drivers.lines import Lines, Waiter
from solely.drivers.simulated import Run
from solely.errors import StoreError
from solely.leases import flow as lock
from solely.leases import hold
from solely.locks import flow as locks
from solely.model import Entry, Released, State
from solely.ops import Acquire, Clear, Mark, Op, Release, Renew, Reply
from solely.stores import transitions as t
from solely.stores.memory import Memory
from solely.testing.simulator.network import START, Network

Planted = AbstractContextManager[object]
Plant = Callable[[], Planted]
BUGS: dict[str, Plant] = {}


def into(bugs: dict[str, Plant]) -> Callable[[Plant], Plant]:
    """Enters what it decorates there."""

    def bug(plant: Plant) -> Plant:
        bugs[plant.__name__] = plant
        return plant

    return bug


bug = into(BUGS)


@bug
def get_then_set() -> Planted:
    """Acquire reads, then writes 5 ms later: who took the key in between is overwritten."""
    right = Memory._acquire

    def acquire(self: Memory, op: Acquire, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._records.get(op.key)
        if record is not None and record.state is State.HELD and now.wall - record.fence < 5_000:
            t._let_go(record)
        return right(self, op, now, hints)

    return patch.object(Memory, "_acquire", acquire)


@bug
def release_without_owner() -> Planted:
    """Release deletes the key, whoever holds it."""
    right = t.release

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        return right(record, op._replace(owner=record.owner or op.owner), now, told, born)

    return patch.object(t, "release", release)


@bug
def client_clock() -> Planted:
    """Clients send "now", and their clocks are some seconds apart."""
    right = Network._arrive

    def arrive(self: Network, run: Run, turn: int, ops: Sequence[Op], gives_up: float) -> None:
        skew = run.driver._start % 4.0
        self.memory.clock = lambda: START + skew + self.timeline.now
        right(self, run, turn, ops, gives_up)

    return patch.object(Network, "_arrive", arrive)


@bug
def fence_in_the_expiring_key() -> Planted:
    """The fence is a field of the entry, and begins at 1 again when that is gone."""

    def acquire(self: Memory, op: Acquire, now: t.Now, hints: list[tuple[str, str]]) -> Entry:
        record = self._get(op.key, now)
        t.acquire(record, op, now, lambda: record.fence + 1)
        self._keep(op.key, record, now)
        return t.view(op.key, record, now, op.owner)

    return patch.object(Memory, "_acquire", acquire)


@bug
def no_revoke() -> Planted:
    """A compensating release does not revoke: the late acquire that it overtook takes the key."""
    right = t.release

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        return right(record, op._replace(revoke=False), now, told, born)

    return patch.object(t, "release", release)


@bug
def clear_removes_the_successor() -> Planted:
    """Clear compares no fence."""
    right = t.clear

    def clear(record: t.Record, op: Clear, now: t.Now, told: list[str]) -> bool:
        return right(record, op._replace(fence=record.fence), now, told)

    return patch.object(t, "clear", clear)


@bug
def false_release_answer() -> Planted:
    """Release says "released" although the time had run out."""
    right = t.release

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        right(record, op, now, told, born)
        return Released.RELEASED

    return patch.object(t, "release", release)


@bug
def loss_is_told_as_released() -> Planted:
    """An owner that is neither current nor gone was released: also where all data was lost since."""
    right = t.release

    def release(record: t.Record, op: Release, now: t.Now, told: list[str], born: Callable[[], int]) -> Released:
        return right(record, op._replace(fence=0), now, told, born)

    return patch.object(t, "release", release)


@bug
def nobody_knows_how_old_the_data_is() -> Planted:
    """A release that is repeated after no answer finds nothing: that is taken for its first copy's success, although
    the store has lost its data in between."""
    return patch.object(t, "is_lost", lambda fence, born: False)


@bug
def hint_before_the_wait_is_lost() -> Planted:
    """A wake-up is not remembered for who does not sleep yet."""
    right = Run.wake

    def wake(self: Run) -> None:
        if self._sleeping:
            right(self)

    return patch.object(Run, "wake", wake)


@bug
def error_spoils_its_neighbours() -> Planted:
    """A batch stops at its first error: all ops behind it fail alike."""

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
    """Renew extends a lease that has run out."""

    def renew(record: t.Record, op: Renew, now: t.Now) -> None:
        if record.state is State.HELD and record.owner == op.owner:
            record.until = now.lease + t.us(op.ttl)

    return patch.object(t, "renew", renew)


@bug
def renewal_shortens() -> Planted:
    """Renew sets the time, even to less than the holder relies on."""

    def renew(record: t.Record, op: Renew, now: t.Now) -> None:
        if record.state is State.HELD and record.owner == op.owner and now.lease < record.until:
            record.until = now.lease + t.us(op.ttl)

    return patch.object(t, "renew", renew)


@bug
def deadline_from_the_reply() -> Planted:
    """The holder counts its time from when the answer came."""
    right = Run.answered

    def answered(self: Run, turn: int, answer: Any) -> None:
        if turn == self.turn:
            self.sent = self.driver.clock()
        right(self, turn, answer)

    return patch.object(Run, "answered", answered)


@bug
def no_drift_allowance() -> Planted:
    """The holder trusts its clock to run as fast as the store's."""
    return patch.multiple(hold, deadline=lambda sent, left: sent + left)


@bug
def repeat_is_granted_anew() -> Planted:
    """A repeated acquire of the holder gets a new fence and more time."""
    right = t.acquire

    def acquire(record: t.Record, op: Acquire, now: t.Now, next_fence: Callable[[], int]) -> None:
        if record.state is State.HELD and record.owner == op.owner:
            t._let_go(record)
        right(record, op, now, next_fence)

    return patch.object(t, "acquire", acquire)


@bug
def never_looks_again() -> Planted:
    """A waiter relies on its hint alone."""
    return patch.object(lock, "look_again", lambda *looking: 3600.0)


@bug
def offer_never_lapses() -> Planted:
    """A key that was offered to a waiter stays closed to all others, even if that one is dead."""
    return patch.object(t, "_OFFER", t.us(3600.0))


@bug
def lock_all_in_any_order() -> Planted:
    """Several keys are taken in whatever order they come."""
    calls = count()
    return patch.object(locks, "sorted", lambda keys: sorted(keys, reverse=next(calls) % 2 == 0), create=True)


@bug
def mark_without_owner() -> Planted:
    """A repeated mark of the first caller is answered as seen: nobody does the work."""
    right = t.mark

    def mark(record: t.Record, op: Mark, now: t.Now, next_fence: Callable[[], int]) -> bool:
        return t._over(record, now) and right(record, op, now, next_fence)

    return patch.object(t, "mark", mark)


@bug
def check_then_insert_mark() -> Planted:
    """Mark looks, then inserts 5 ms later: two who look at the same time are both first."""
    right = t.mark

    def mark(record: t.Record, op: Mark, now: t.Now, next_fence: Callable[[], int]) -> bool:
        if record.state is State.DONE and now.wall - record.fence < 5_000:
            t._let_go(record)
        return right(record, op, now, next_fence)

    return patch.object(t, "mark", mark)


@bug
def cancelled_without_undoing() -> Planted:
    """A cancelled flow just ends."""

    def cancel(self: Run, cause: BaseException) -> None:
        if not self.over:
            self._flow.close()
            self.turn += 1
            self._end(None, cause)

    return patch.object(Run, "cancel", cancel)


@bug
def turn_is_not_passed_on() -> Planted:
    """Who leaves the line of a process does not wake the next."""

    def leave(self: Lines, key: str, waiter: Waiter) -> None:
        others = self._others.get(key)
        if self._first[key] is not waiter and others:
            others.remove(waiter)
        elif others:
            self._first[key] = others.popleft()
        else:
            del self._first[key]
        if others is not None and not others:
            del self._others[key]

    return patch.object(Lines, "leave", leave)


@bug
def displaced_owners_are_forgotten() -> Planted:
    """The store remembers only the last owner that it displaced."""
    return patch.object(t, "MAX_GONE", 1)
