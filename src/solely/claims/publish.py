"""How a won claim ends: by its result, by its failure, or by an admin's reset. Only the current owner can end it: a
holder that has lost the claim changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Interrupted, Mismatch, StoreError, StoreUnavailable
from ..flow import NOW, Flow, undo
from ..holder import Signer
from ..leases.flow import LeaseTerms, release
from ..leases.hold import ELSEWHERE, PUBLISHED, Hold
from ..model import DONE, FREE, RELEASED, Entry, Gone, Released
from ..ops import Clear, Finish, Push, Read, Release
from ..rules import DAY, REMEMBER, seconds, ttl_seconds
from .flights import Done, Flights, settled
from .flow import claim, refuse_other
from .policy import Failing, Outcome, Park, Replay, RetryAfter


def finish(hold: Hold, kept: bytes, keep: float, flights: Flights) -> Flow[Entry]:
    """Finishes the claim and passes its outcome to all callers of this process; returns the claim's entry, which is
    another owner's if this one lost the claim.

    An interrupted caller still finishes it: the work is done, and only this caller has its result.
    """
    op = Finish(hold.key, hold.owner, kept, keep)
    interrupted: Interrupted | None = None
    try:
        entry: Entry | None = yield op
    except Interrupted as why:
        if isinstance(why.cause, StoreUnavailable):  # it was retried until the timeout
            raise
        interrupted, entry = why, (yield op)
        if entry is None:  # this try failed too
            raise
    assert entry is not None
    if entry.owner == hold.owner:
        flights.keeper.remove(hold)
        hold.lost = PUBLISHED
    else:
        how = hold.gone(entry.gone)
        flights.keeper.lose(hold, how)
        hold.lost = hold.lost or how
    if entry.state is DONE and flights.wants(entry.key):
        yield from settled(entry, flights)
    if hold.doubtful and keep < REMEMBER:  # a late copy of its try must not acquire the key when the outcome expired
        yield from undo([Release(hold.key, hold.owner, True)])
    if interrupted is not None:
        raise interrupted
    return entry


def publish(
    hold: Hold, kept: bytes, keep: float, terms: LeaseTerms, flights: Flights, info: Signer
) -> Flow[tuple[bool, Done | Entry]]:
    """(True, _) if this outcome is published; else (False, the other outcome), after a wait of at most terms.wait.

    The first outcome of a claim is final: a second one of its holder is not published. If the claim is no longer held,
    or a later holder releases it during the wait, the outcome is published under a new claim: the work was done, so it
    need not run again.
    """
    entry = yield from finish(hold, kept, keep, flights)
    if entry.owner == hold.owner:
        return (True, entry) if entry.value == kept else (False, _done(entry))
    if entry.gone == Gone.CLEARED:
        return False, entry._replace(state=FREE)  # an admin's clear is final
    try:
        refuse_other(hold.key, hold.fingerprint, entry.fingerprint)
        if entry.state is DONE:
            return False, _done(entry)
        result, _ = yield from claim(hold.key, terms, flights, hold.fingerprint, info)
    except Mismatch:  # the key now has another payload: there is no outcome to return
        return False, entry._replace(state=FREE)
    if not isinstance(result, Hold):
        return False, result
    try:
        entry = yield from finish(result, kept, keep, flights)
    except (Interrupted, StoreError):  # no other code would release this claim
        yield from undo([Release(result.key, result.owner, True)])
        raise
    return entry.owner == result.owner, entry


def fail(
    hold: Hold, what: Outcome, kept: bytes, keep: float, flights: Flights, letter: Callable[[Park], Push]
) -> Flow[Failing]:
    """Ends the claim according to the policy; `kept` is the failure, `keep` how long attempts are remembered.

    Returns LOST if the claim has another outcome: that of a later holder, or an earlier one of this holder.
    """
    ended = hold.lost == PUBLISHED
    if isinstance(what, Park) and hold.attempts >= what.after and (ended or not hold.how((yield NOW))):
        if not ended:
            yield letter(what)
        entry = yield from finish(hold, kept, ttl_seconds(what.keep), flights)
        return Failing.PARKED if _is_final(kept, entry, hold) else Failing.LOST
    if isinstance(what, Replay):
        entry = yield from finish(hold, kept, ttl_seconds(what.keep), flights)
        return Failing.REPLAYED if _is_final(kept, entry, hold) else Failing.LOST
    if ended:
        return Failing.LOST
    delay = seconds("seconds", what.seconds, least=0.0, most=DAY) if isinstance(what, RetryAfter) else 0.0
    released = yield from release_claim(hold, flights, delay, max(delay, keep))
    if released is not RELEASED:
        return Failing.LOST
    return Failing.DELAYED if delay else Failing.RELEASED


def _is_final(kept: bytes, entry: Entry, hold: Hold) -> bool:
    """True if the hold ended with this outcome, now or before."""
    return entry.owner == hold.owner and entry.value == kept


def _done(entry: Entry) -> Done:
    return Done(entry.value, entry.fingerprint, entry.fence, entry.attempts)


def release_claim(hold: Hold, flights: Flights, delay: float = 0.0, keep: float = 0.0) -> Flow[Released]:
    """Releases this hold of the claim, and no later one."""
    if hold.lost in ELSEWHERE:
        return Released.UNKNOWN  # another process has it, and may still hold it
    flights.keeper.remove(hold)
    return (yield from release(hold, delay, keep))


def reset(key: str, is_expected: Callable[[bytes | None], bool]) -> Flow[bool]:
    """Removes the current finished claim, and no later one, if its outcome is the expected one; else returns False."""
    entry: Entry = yield Read(key)
    if entry.state is not DONE or not is_expected(entry.value):
        return False
    cleared: bool = yield Clear(key, entry.fence, "reset")
    return cleared
