"""How a key is taken, waited for in turn, and released, whatever it is held for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..errors import Busy, Interrupted, SolelyError
from ..flow import RUN, Ask, Flow, Join, Run, Wait, replies_or_raise, undo
from ..holder import describe
from ..model import ABSENT, CLOSED, DONE, FREE, HELD, Entry, Released
from ..ops import Acquire, Read, Release, Renew, make
from ..rules import LOOK_AGAIN, POLL, renewal
from .hold import ELSEWHERE, Hold

T = TypeVar("T")
Here = Mapping[str, Hold]
NOWHERE: Here = {}
_ENDS = frozenset((Released.EXPIRED, Released.CLEARED))  # that an owner's being gone and a release's answer both know


def itself(hold: Any) -> Any:
    """The hold as it is."""
    return hold


class LeaseTerms(NamedTuple):
    """How a key is to be taken. `client` is queued as a waiter if the key is held; `polls` if no push can wake it."""

    ttl: float
    wait: float = 0.0
    delay: float = 0.0
    client: str = ""
    polls: bool = False


def acquire(
    key: str,
    terms: LeaseTerms,
    granted: Callable[[Hold], T] = itself,
    *,
    info: str = "",
    held: Sequence[Hold] = (),
    here: Here = NOWHERE,
) -> Flow[T]:
    """Takes the key within terms.wait, in the order of arrival; raises Busy, which says who has it, if it cannot.

    Answers what `granted` makes of the hold. `held` are keys taken before, by the same caller, that are renewed while
    this one is waited for; `here` are the holds of this process, which are waited for without asking the store.
    """
    ttl, wait, delay, client, polls = terms
    asked = answered = late = False
    looks = 0
    try:
        if wait:
            run: Run | None = yield make(Join, (key, wait, None))
            if run is None:
                raise busy((yield Read(key)), wait)
            start = run.arrived
            if key in here:
                yield from let_pass(key, start + wait, here)
        else:
            run = yield RUN
            start = run.now()
        owner = run.fresh_owner()
        while True:
            asked = True
            entry: Entry = yield make(Acquire, (key, owner, ttl, info, client if wait else "", delay, "", False, False))
            answered = True
            doubtful, now = run.doubtful, run.now()
            if entry.owner == owner:
                hold = Hold(key, owner, ttl, entry, run.sent, doubtful, run.now)
                if now < hold.deadline:
                    hold.waited = now - start
                    return granted(hold)
            if entry.owner == owner or entry.gone:  # the answer came too late to be of use: this attempt is over
                yield Release(key, owner, True)
                entry = entry._replace(state=FREE) if entry.owner else entry
                owner = run.fresh_owner()
                if not late:  # it may have waited for the client's first connection, as the next one does not
                    late = True
                    continue
            left = start + wait - now
            if left <= 0:
                if wait or doubtful:
                    yield Release(key, owner, doubtful)  # leaves the queue of the entry, or passes the offer on
                asked = False
                raise busy(entry, now - start)
            yield Wait(key, min(left, look_again(entry, looks, ttl, polls)))
            looks += 1
            if held:
                yield from renew_due(held)
    except Interrupted as why:
        if asked and (answered or why.unanswered):  # else nothing was sent
            yield Release(key, owner, why.unanswered)
        raise
    except SolelyError:  # the store's own, or that one of `held` was lost
        if asked:
            yield from undo([Release(key, owner, run.doubtful)])  # type: ignore[union-attr] # who has asked has one
        raise


def let_pass(key: str, until: float, here: Here) -> Flow[None]:
    """Waits while another of this process holds the key: its release wakes us, and asking the store would tell nothing.

    But not for longer than LOOK_AGAIN: an admin may have cleared it, which this process learns only when it renews.
    """
    now: float = yield Ask.NOW
    hold = here.get(key)
    left = min(until, hold.deadline, now + LOOK_AGAIN) - now if hold is not None else 0.0
    if left > 0:
        yield Wait(key, left)


def look_again(entry: Entry, looks: int, ttl: float, polls: bool) -> float:
    """When to look without a hint: when the holder's time is up, and soon enough that a lost hint hurts nobody."""
    longest = min(POLL[1], POLL[0] * 2.0 ** min(looks, 8)) if polls else LOOK_AGAIN
    if entry.state is FREE:
        return POLL[0]
    return min(longest, entry.left + POLL[0], max(POLL[0], ttl / 4))


def busy(entry: Entry, waited: float) -> Busy:
    """The error that says who blocks the caller."""
    holder = describe(entry.info)
    if entry.state is HELD:
        text = f"is held by {holder or 'another owner'} for another {entry.left:.1f} s unless renewed"
    elif entry.state is CLOSED:
        text = f"is closed for another {entry.left:.3f} s (a delay after an expiry, or it is offered to a waiter)"
    elif entry.state is DONE:
        text = "is finished"
    else:
        text = "could not be taken in time: others were ahead, or the store answered later than the ttl allows"
    text = f"{entry.kind} {entry.name!r} {text}; waited {waited:.1f} s"
    return Busy(text, key=entry.name, holder=holder, left=entry.left)


def release(hold: Hold, delay: float = 0.0, keep: float = 0.0) -> Flow[Released]:
    """Lets go; answers truthfully whether the key was still held, also when repeated."""
    if hold.lost in ELSEWHERE or not hold.owner:
        return Released.UNKNOWN  # another process may hold it still; or it was never held
    if hold.released is not None:
        return hold.released
    now = hold.clock()
    if hold.opens:
        delay = max(0.0, hold.opens - now)
    lost, repeated, hold.leaving = hold.how(now), hold.leaving, True
    # Of an owner that is revoked the store remembers whether it held the key: so a repeat of a late release is told.
    op = make(Release, (hold.key, hold.owner, hold.doubtful or lost != "", delay, keep, hold.fence))
    try:
        outcome: Released = yield op
    except Interrupted:
        yield op._replace(revoke=True)
        raise
    if outcome is ABSENT:
        run: Run = yield RUN
        outcome = hold.absent(lost, repeated, run.doubtful)
    return hold.ended(outcome, lost)


def renew_due(held: Sequence[Hold]) -> Flow[None]:
    """Renews the keys taken so far whose half time has passed; raises Busy if one of them was lost."""
    now: float = yield Ask.NOW
    due = [hold for hold in held if now >= renewal(hold.sent, hold.ttl)]
    if not due:
        return
    entries: list[Entry] = replies_or_raise((yield [Renew(h.key, h.owner, h.ttl) for h in due]))
    run: Run = yield RUN
    for hold, entry in zip(due, entries, strict=True):
        if entry.owner != hold.owner:
            raise busy(entry, 0.0)
        hold.extended(entry, hold.ttl, run.sent)
