"""Bugs that schedules could have, each planted where a programmer would make it, for the simulator to find."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from solely.flow import Flow
from solely.leases.hold import Hold
from solely.model import HELD
from solely.ops import Acquire, Finish, Read
from solely.schedules import flow, state
from solely.schedules.state import Misfire, ReplicaState, SchedulePlan
from solely.stores import transitions as t
from tests.planted_bugs import Plant, Planted, register_in

BUGS: dict[str, Plant] = {}
bug = register_in(BUGS)


@bug
def key_opens_as_soon_as_the_tick_is_over() -> Planted:
    """Whoever asks late finds the key open, and runs the same tick again."""
    return patch.object(flow, "Finish", lambda key, owner, value, keep: Finish(key, owner, value, 1e-6))


@bug
def what_others_decided_is_not_read() -> Planted:
    """A replica relies on what it knew at its last look, and runs what others have run since."""
    right = flow._read

    def read(plan: SchedulePlan, known: ReplicaState) -> Flow[None]:
        if known.last < 0:
            yield from right(plan, known)

    return patch.object(flow, "_read", read)


@bug
def end_is_stored_before_what_must_not_be_forgotten() -> Planted:
    """The key is closed until the next tick, but nobody is told that this one is over."""
    right = flow._performed

    def performed(ops: list[Any]) -> Flow[list[Any]]:
        replies = yield from right(ops)
        return [None] if not isinstance(ops[0], Finish) else replies

    def unnoted(key: str, value: bytes) -> Any:
        return Read(key)

    return patch.multiple(flow, _performed=performed, Advance=unnoted)


@bug
def replica_that_was_paused_runs_the_tick_all_the_same() -> Planted:
    """Its hold was lost before the reply came."""
    return patch.object(flow, "_is_safe", lambda hold, run: True)


@bug
def failure_after_the_grant_keeps_the_key() -> Planted:
    """What fails between the grant and the tick leaves the key held."""
    return patch.object(flow, "_releasing_on_error", lambda plan, hold, work: work)


@bug
def nobody_looks_when_the_lease_expires() -> Planted:
    """A tick whose replica died is never taken over."""
    return patch.object(flow, "_patience", lambda plan, known, entry, now: 3_600.0)


@bug
def catching_up_runs_only_the_last() -> Planted:
    """With the policy `all`, ticks that were missed are lost."""
    right = state.chosen

    def chosen(plan: SchedulePlan, last: int, now: int, interrupted: bool = False) -> int:
        return right(plan._replace(misfire=Misfire.ONCE), last, now, interrupted)

    return patch.object(flow, "chosen", chosen)


@bug
def time_of_the_store_is_taken_from_the_replica() -> Planted:
    """A replica decides by its own clock, which is set wrongly."""
    right = flow._granted

    def granted(plan: SchedulePlan, known: ReplicaState, hold: Hold) -> Flow[Any]:
        hold.fence += 5_000_000
        result = yield from right(plan, known, hold)
        return result

    return patch.object(flow, "_granted", granted)


@bug
def key_of_a_tick_is_granted_while_it_is_held() -> Planted:
    """Acquire reads, then writes, and overwrites another owner."""
    right = t.acquire

    def acquire(record: t.StoredRecord, op: Acquire, now: t.Now, next_fence: Any) -> None:
        if record.state is HELD and record.owner != op.owner and record.until - now.lease < 500_000:
            t._set_free(record)
        right(record, op, now, next_fence)

    return patch.object(t, "acquire", acquire)


@bug
def refused_replica_asks_again_only_at_the_next_tick_but_one() -> Planted:
    """A tick that every replica sleeps through is late, or lost."""
    right = flow._rest

    def rest(opens: float) -> float:
        return right(opens) + 0.5

    return patch.object(flow, "_rest", rest)
