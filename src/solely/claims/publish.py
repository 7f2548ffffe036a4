"""Publish: how a claim that was won ends, by its result, by its failure, or by an admin's reset. Always by its owner:
who lost the claim meanwhile changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Interrupted, Mismatch, StoreError, StoreUnavailable
from ..flow import NOW, Flow, undo
from ..leases.flow import LeaseTerms, release
from ..leases.hold import ELSEWHERE, PUBLISHED, Hold
from ..model import DONE, FREE, RELEASED, Entry, Gone, Released
from ..ops import Clear, Finish, Push, Read, Release
from ..rules import DAY, REMEMBER, seconds, ttl_seconds
from .flights import Done, Flights, settled
from .flow import claim, refuse_other
from .policy import Failing, Outcome, Park, Replay, RetryAfter


def finish(hold: Hold, kept: bytes, keep: float, flights: Flights) -> Flow[Entry]:
    """The entry: this hold's own, whose outcome everyone of this process now knows; or the one that won over it.

    An interrupted caller's outcome is finished all the same: the work is done, and nobody else can tell its result.
    """
    op = Finish(hold.key, hold.owner, kept, keep)
    interrupted: Interrupted | None = None
    try:
        entry: Entry | None = yield op
    except Interrupted as why:
        if isinstance(why.cause, StoreUnavailable):  # it was tried for as long as the client tries
            raise
        interrupted, entry = why, (yield op)
        if entry is None:  # nor was this one answered
            raise
    assert entry is not None
    if entry.owner == hold.owner:
        flights.keeper.remove(hold)
        hold.lost = PUBLISHED
    else:
        how = hold.gone(entry.gone)
        flights.keeper.lose(hold, how)
        hold.lost = hold.lost or how
    if entry.state is DONE and flights.cares_for(entry.key):
        yield from settled(entry, flights)
    if hold.doubtful and keep < REMEMBER:  # a late copy of its try must not take the key once the outcome is forgotten
        yield from undo([Release(hold.key, hold.owner, True)])
    if interrupted is not None:
        raise interrupted
    return entry


def publish(
    hold: Hold, kept: bytes, keep: float, terms: LeaseTerms, flights: Flights, info: Callable[[], str]
) -> Flow[tuple[bool, Done | Entry]]:
    """(True, _) if this outcome stands; else (False, what stands instead), waited for within terms.wait.

    What this claim ended with first is final: its holder's next outcome does not stand. If nobody has the claim any
    more, or a later holder lets go of it while we wait, this outcome is published under a claim of its own: the work
    was done, so nobody need do it again.
    """
    entry = yield from finish(hold, kept, keep, flights)
    if entry.owner == hold.owner:
        return (True, entry) if entry.value == kept else (False, _done(entry))
    if entry.gone == Gone.CLEARED:
        return False, entry._replace(state=FREE)  # what an admin took away is not put back
    try:
        refuse_other(hold.key, hold.fingerprint, entry.fingerprint)
        if entry.state is DONE:
            return False, _done(entry)
        result, _ = yield from claim(hold.key, terms, flights, hold.fingerprint, info())
    except Mismatch:  # the key is another payload's by now: there is nothing to converge to
        return False, entry._replace(state=FREE)
    if not isinstance(result, Hold):
        return False, result
    try:
        entry = yield from finish(result, kept, keep, flights)
    except (Interrupted, StoreError):  # nobody else knows of this claim
        yield from undo([Release(result.key, result.owner, True)])
        raise
    return entry.owner == result.owner, entry


def fail(
    hold: Hold, what: Outcome, kept: bytes, keep: float, flights: Flights, letter: Callable[[Park], Push]
) -> Flow[Failing]:
    """Ends the claim as the policy says; `kept` is the failure, `keep` how long the count of attempts is remembered.

    LOST if another outcome stands: a later holder's, or the one that this holder's claim ended with before.
    """
    ended = hold.lost == PUBLISHED
    if isinstance(what, Park) and hold.attempts >= what.after and (ended or not hold.how((yield NOW))):
        if not ended:
            yield letter(what)
        entry = yield from finish(hold, kept, ttl_seconds(what.keep), flights)
        return Failing.PARKED if _stands(kept, entry, hold) else Failing.LOST
    if isinstance(what, Replay):
        entry = yield from finish(hold, kept, ttl_seconds(what.keep), flights)
        return Failing.REPLAYED if _stands(kept, entry, hold) else Failing.LOST
    if ended:
        return Failing.LOST
    delay = seconds("seconds", what.seconds, least=0.0, most=DAY) if isinstance(what, RetryAfter) else 0.0
    released = yield from release_claim(hold, flights, delay, max(delay, keep))
    if released is not RELEASED:
        return Failing.LOST
    return Failing.DELAYED if delay else Failing.RELEASED


def _stands(kept: bytes, entry: Entry, hold: Hold) -> bool:
    """True if this is what the hold ended with, now or before; not if it had ended with something else."""
    return entry.owner == hold.owner and entry.value == kept


def _done(entry: Entry) -> Done:
    return Done(entry.value, entry.fingerprint, entry.fence, entry.attempts)


def release_claim(hold: Hold, flights: Flights, delay: float = 0.0, keep: float = 0.0) -> Flow[Released]:
    """Lets go of the claim, and of nothing that came after it."""
    if hold.lost in ELSEWHERE:
        return Released.UNKNOWN  # it is another process's, which may hold it still
    flights.keeper.remove(hold)
    return (yield from release(hold, delay, keep))


def reset(key: str, is_expected: Callable[[bytes | None], bool]) -> Flow[bool]:
    """Removes the finished claim that is there now, if its outcome is the expected one, and none that comes after."""
    entry: Entry = yield Read(key)
    if entry.state is not DONE or not is_expected(entry.value):
        return False
    cleared: bool = yield Clear(key, entry.fence, "reset")
    return cleared
