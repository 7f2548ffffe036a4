"""Bugs that reservations, limits and the shared breaker could have, each planted where a programmer would make it.

`python -m solely.testing.simulator --of reservations --seed 0 --seeds 50 --bug tests.planted_reservation_bugs:NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from solely.breakers import flow as breaker
from solely.breakers.flow import SharedPass
from solely.drivers.simulated import SimulatedRun
from solely.flow import RUN, Ask, Flow
from solely.holder import Signer
from solely.leases.hold import Hold
from solely.model import Allowance, Entry, State
from solely.ops import Finish, Hit, Op, Read, Release, Unhit
from solely.reservations import flow as reservation
from solely.reservations.flow import QUIET, RESERVED, ReservationTerms, ReservationTicket, ReserveReply
from solely.stores import transitions as t
from solely.stores.memory import Memory
from solely.testing.simulator import reservations
from solely.testing.simulator.network import Network
from tests.planted_bugs import Plant, Planted, cancelled_without_undoing, register_in, release_without_owner

BUGS: dict[str, Plant] = {
    "release_by_bare_key": release_without_owner,
    "cancelled_without_undoing": cancelled_without_undoing,
}
bug = register_in(BUGS)


@bug
def check_outside_the_step() -> Planted:
    """Reserve reads whether the key is free, then continues: two callers that read at the same time both send."""
    right = reservation.reserve

    def reserve(key: str, terms: ReservationTerms, info: str) -> Flow[ReserveReply]:
        entry: Entry = yield Read(key)
        if entry.state is not State.FREE:
            return ReserveReply(reason=QUIET if entry.state is State.DONE else RESERVED, retry_after=entry.left)
        answer = yield from right(key, terms, info)
        if answer.reason != RESERVED:
            return answer
        owner: str = yield Ask.OWNER
        run = yield RUN
        hold = Hold(key, owner, terms.hold, entry._replace(left=terms.hold), run.sent, False, run.now)
        return ReserveReply(hold, ReservationTicket(key, owner, entry.fence, terms.quiet, (), terms.hold, owner))

    return patch.object(reservations, "reserve", reserve)


@bug
def limit_checked_outside_the_step() -> Planted:
    """A hit counts the others, then adds itself 20 ms later: hits in between do not see it."""
    right = Memory._hit

    def hit(self: Memory, op: Hit, now: t.Now, hints: list[tuple[str, str]]) -> Allowance:
        seen = self._hits.get(op.key, {})
        late = {owner: at for owner, at in seen.items() if at > now.wall - 20_000 and owner != op.owner}
        self._hits[op.key] = {owner: at for owner, at in seen.items() if owner not in late}
        allowance = right(self, op, now, hints)
        self._hits.setdefault(op.key, {}).update(late)
        return allowance

    return patch.object(Memory, "_hit", hit)


@bug
def fixed_windows() -> Planted:
    """A limit counts in fixed windows: twice the limit fits around the end of one."""
    right = Memory._hit

    def hit(self: Memory, op: Hit, now: t.Now, hints: list[tuple[str, str]]) -> Allowance:
        start = now.wall - now.wall % t.us(op.per)
        self._hits[op.key] = {owner: at for owner, at in self._hits.get(op.key, {}).items() if at >= start}
        return right(self, op, now, hints)

    return patch.object(Memory, "_hit", hit)


@bug
def repeated_hit_counts_twice() -> Planted:
    """A hit without an answer counts again when it is repeated."""
    right = Memory._hit

    def hit(self: Memory, op: Hit, now: t.Now, hints: list[tuple[str, str]]) -> Allowance:
        hits = self._hits.get(op.key, {})
        if op.owner in hits:
            hits[f"{op.owner} {len(hits)}"] = hits[op.owner]
        return right(self, op, now, hints)

    return patch.object(Memory, "_hit", hit)


@bug
def group_per_key() -> Planted:
    """The limit of a group counts each of its keys separately."""
    right = ReservationTerms.hits

    def hits(self: ReservationTerms, key: str, owner: str) -> list[Hit]:
        group = None if self.group is None else (f"{self.group[0]}:{key}", *self.group[1:])
        return right(self._replace(group=group), key, owner)

    return patch.object(ReservationTerms, "hits", hits)


@bug
def hit_not_given_back() -> Planted:
    """A caller that is cancelled or refused by one limit releases the key but leaves its other hit behind."""

    def undoing(key: str, owners: list[str], hits: list[Hit], doubtful: bool, keep: float = 0.0) -> list[Any]:
        return [Release(key, owner, doubtful, keep=keep) for owner in owners]

    return patch.object(reservation, "_undoing", undoing)


@bug
def release_keeps_the_hit() -> Planted:
    """A reservation that is released for a retry still counts in its limit."""
    right = reservation._free

    def free(ticket: ReservationTicket, revoke: bool) -> Flow[bool]:
        return (yield from right(ticket._replace(hits=()), revoke))

    return patch.object(reservation, "_free", free)


@bug
def record_releases() -> Planted:
    """Recording only releases the key: there is no quiet window."""

    def record(ticket: ReservationTicket, now: str) -> Flow[bool]:
        yield Release(ticket.key, ticket.owner)
        return True

    return patch.object(reservations, "record", record)


@bug
def record_by_bare_key() -> Planted:
    """Recording finishes the current reservation, even that of another owner."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        right(record, op._replace(owner=record.owner or op.owner), now, notified)

    return patch.object(t, "finish", finish)


@bug
def recorded_twice() -> Planted:
    """A repeated record counts again."""
    return patch.object(reservation, "sent_of", lambda entry: _sent_of(entry)._replace(fence=0))


_sent_of = reservation.sent_of


@bug
def quiet_is_forgotten_by_expiry_of_the_hold() -> Planted:
    """The quiet window ends when the hold would have expired."""
    right = t.finish

    def finish(record: t.StoredRecord, op: Finish, now: t.Now, notified: list[str]) -> None:
        until = record.until
        right(record, op, now, notified)
        if record.state is State.DONE and record.owner == op.owner:
            record.until = min(record.until, until)

    return patch.object(t, "finish", finish)


@bug
def limits_before_the_hold() -> Planted:
    """Limits are hit first, so a caller that then finds the key reserved leaves a hit behind."""
    right = reservation.reserve

    def reserve(key: str, terms: ReservationTerms, info: str) -> Flow[ReserveReply]:
        owner: str = yield Ask.OWNER
        if terms.own or terms.group:
            yield terms.hits(key, owner)
        return (yield from right(key, terms, info))

    return patch.object(reservations, "reserve", reserve)


@bug
def breaker_per_process() -> Planted:
    """Each process has its own breaker: together they exceed the threshold, and each runs a trial."""
    right = Network.send

    def send(self: Network, run: SimulatedRun, turn: int, ops: Sequence[Op]) -> None:
        right(self, run, turn, [_own(op, run.driver.name) for op in ops])

    return patch.object(Network, "send", send)


def _own(op: Any, process: str) -> Any:
    shared = op.key.startswith(("breaker/", "failures/", "trial/"))
    return op._replace(key=f"{op.key}:{process}") if shared else op


@bug
def several_trials_at_once() -> Planted:
    """A half-open breaker admits all calls, not one at a time."""
    right = breaker.admit

    def admit(name: str, granted: Any, info: Signer) -> Flow[SharedPass]:
        current = yield from breaker._read(name)
        if current.closed:
            return (yield from right(name, granted, info))
        owner: str = yield Ask.OWNER
        entry: Entry = yield Read(breaker._trial(name, current))
        if entry.info == breaker.COOLDOWN:
            return (yield from right(name, granted, info))
        run = yield RUN
        own = entry._replace(left=breaker.TRIAL, fence=entry.fence or 1)
        return SharedPass(
            current, Hold(breaker._trial(name, current), owner, breaker.TRIAL, own, run.sent, False, run.now)
        )

    return patch.object(breaker, "admit", admit)


@bug
def trial_key_reopens_too_early() -> Planted:
    """A caller that read the state before a verdict runs a trial for that old state after it."""
    return patch.object(breaker, "REMEMBER", 0.0)


@bug
def failures_are_not_counted_together() -> Planted:
    """All failures share one owner id and count as one: the breaker opens late or never."""

    def too_many(name: str, rule: Any, current: Any) -> Flow[bool]:
        allowance: Allowance = yield Hit(f"failures/{name}@{current.number}", "somebody", rule.threshold, rule.per)
        return bool(allowance.hits >= rule.threshold)

    return patch.object(breaker, "_too_many", too_many)


@bug
def one_success_closes() -> Planted:
    """The first successful trial closes the breaker."""
    return patch.object(breaker.BreakerState, "after_success", lambda self, n: breaker.BreakerState(self.number + 1))


@bug
def unhit_without_owner() -> Planted:
    """Unhit removes another owner's hit: the limit then grants one too many."""
    right = Memory._unhit

    def unhit(self: Memory, op: Unhit, now: t.Now, hints: list[tuple[str, str]]) -> bool:
        others = [owner for owner in self._hits.get(op.key, {}) if owner != op.owner]
        return right(self, op._replace(owner=others[0]) if others else op, now, hints)

    return patch.object(Memory, "_unhit", unhit)
