"""Acquire a key, wait for it in order, release it: the decisions that all kinds of leases share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..errors import INTERRUPTIONS, Busy, Interrupted, SolelyError, is_unanswered
from ..flow import RUN, Ask, Flow, Join, Run, Wait, replies_or_raise, undo
from ..holder import Signer, describe
from ..model import ABSENT, CLOSED, DONE, FREE, HELD, Entry, Released
from ..ops import Acquire, Read, Release, Renew, Resume, make
from ..rules import LOOK_AGAIN, POLL, renewal
from .hold import ELSEWHERE, Hold
from .token import Token

T = TypeVar("T")
Here = Mapping[str, Hold]
NOWHERE: Here = {}


def identity(hold: Any) -> Any:
    """The hold, unchanged."""
    return hold


class LeaseTerms(NamedTuple):
    """How to acquire a key. If it is held, the store queues `client` as a waiter; `polls`: it sends no hints."""

    ttl: float
    wait: float = 0.0
    delay: float = 0.0
    client: str = ""
    polls: bool = False


def acquire(
    key: str,
    terms: LeaseTerms,
    granted: Callable[[Hold], T] = identity,
    *,
    info: Signer = str,
    held: Sequence[Hold] = (),
    here: Here = NOWHERE,
    lone: bool = True,
) -> Flow[T]:
    """Acquires the key within terms.wait, in the order of arrival; else raises Busy, which names the holder.

    Returns granted(hold). `info` is called for each request, so that what is stored is of the one that was granted;
    `held` are earlier holds of the same caller, to be renewed while it waits; `here` are the
    holds of this process: while one of them has the key, a caller that wants only this key (`lone`) waits without a
    request to the store.
    """
    ttl, wait, delay, client, polls = terms
    requested = answered = late = False
    looks = 0
    try:
        if wait:
            run: Run | None = yield make(Join, (key, wait, None))
            if run is None:
                raise busy((yield Read(key)), wait, here)
            start = run.arrived
            if lone and key in here:
                yield from wait_for_local_holder(key, start + wait, here)
        else:
            run = yield RUN
            start = run.now()
        owner = run.fresh_owner()
        while True:
            requested = True
            queued = client if wait else ""
            entry: Entry = yield make(Acquire, (key, owner, ttl, info(), queued, delay, "", False, False))
            answered = True
            doubtful, now = run.doubtful, run.now()
            if entry.owner == owner:
                hold = Hold(key, owner, ttl, entry, run.sent, doubtful, run.now)
                if now < hold.deadline:
                    hold.waited = now - start
                    return granted(hold)
            if entry.owner == owner or entry.gone:  # the reply came too late: this attempt is over
                yield Release(key, owner, True)
                entry = entry._replace(state=FREE) if entry.owner else entry
                owner = run.fresh_owner()
                if not late:  # it may have waited for the client's first connection; the next one will not
                    late = True
                    continue
            left = start + wait - now
            if left <= 0:
                if wait or doubtful:
                    yield Release(key, owner, doubtful)  # leaves the entry's queue, or passes the offer on
                requested = False
                raise busy(entry, now - start, here)
            yield Wait(key, min(left, look_again(entry, looks, ttl, polls)))
            looks += 1
            if held:
                yield from renew_due(held)
    except SolelyError:  # from the store, or because one of `held` was lost
        if requested:
            yield from undo([Release(key, owner, run.doubtful)])  # type: ignore[union-attr] # set before `requested`
        raise
    except INTERRUPTIONS as why:
        if requested and (answered or is_unanswered(why)):  # else nothing was sent
            yield Release(key, owner, is_unanswered(why))
        raise


def wait_for_local_holder(key: str, until: float, here: Here) -> Flow[None]:
    """Waits while another caller of this process holds the key: its release wakes us, without a request to the store.

    Waits at most LOOK_AGAIN: an admin may have cleared the hold, which this process learns only when it renews.
    """
    now: float = yield Ask.NOW
    hold = here.get(key)
    left = min(until, hold.deadline, now + LOOK_AGAIN) - now if hold is not None else 0.0
    if left > 0:
        yield Wait(key, left)


def look_again(entry: Entry, looks: int, ttl: float, polls: bool) -> float:
    """Seconds until the next poll without a hint: until the hold expires, but short enough to survive a lost hint."""
    longest = min(POLL[1], POLL[0] * 2.0 ** min(looks, 8)) if polls else LOOK_AGAIN
    if entry.state is FREE:
        return POLL[0]
    return min(longest, entry.left + POLL[0], max(POLL[0], ttl / 4))


def busy(entry: Entry, waited: float, here: Here = NOWHERE) -> Busy:
    """The error that names the holder of the key: another process, or the thread or task of this one."""
    hold = here.get(entry.key)
    holder = describe(entry.info, hold.holder() if hold is not None and hold.fence == entry.fence else "")
    late = "could not be acquired in time: others were ahead, or the store answered later than the ttl allows"
    text = f"{entry.kind} {entry.name!r} {_state_of(entry, holder) or late}; waited {waited:.1f} s"
    return Busy(text, key=entry.name, holder=holder, left=entry.left)


def _state_of(entry: Entry, holder: str) -> str:
    """The state of a key that is not free, as a phrase; "" if it is."""
    if entry.state is HELD:
        return f"is held by {holder or 'another owner'} for another {entry.left:.1f} s unless renewed"
    if entry.state is CLOSED:
        return f"is closed for another {entry.left:.3f} s (a delay after the last hold, or an offer to a waiter)"
    return "is finished" if entry.state is DONE else ""


def release(hold: Hold, delay: float = 0.0, keep: float = 0.0) -> Flow[Released]:
    """Releases the hold; returns whether the key was still held, also when repeated."""
    if hold.lost in ELSEWHERE or not hold.owner:
        return Released.UNKNOWN  # another process may still hold it; or it was never held
    if hold.released is not None:
        return hold.released
    now = hold.clock()
    if hold.opens:
        delay = max(0.0, hold.opens - now)
    lost, repeated, hold.leaving = hold.how(now), hold.leaving, True
    # The store remembers whether a revoked owner held the key, so a repeat of a late release gets the same reply.
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


def resume(token: Token, info: Callable[[str], str]) -> Flow[tuple[Hold | None, Entry]]:
    """Takes over the hold of this token, under a fresh owner and the next fence: the hold, and its entry. No hold, and
    who has the key, if the owner in the token no longer holds it.

    `info` makes the info of this holder from that of the former one. An interrupted caller leaves nothing held: what it
    may have taken over is released, and a token that was not resumed stays valid.
    """
    seen: Entry = yield Read(token.key)
    run: Run = yield RUN
    successor, about, answered = run.fresh_owner(), info(seen.info), False
    try:
        entry: Entry = yield Resume(token.key, token.owner, successor, token.ttl, about)
        answered = True
        if entry.owner != successor:  # nor will a late copy of it be granted: that owner never holds the key again
            return None, entry
        hold = Hold(token.key, successor, token.ttl, entry, run.sent, run.doubtful, run.now)
        if run.now() < hold.deadline:
            return hold, entry
        yield Release(token.key, successor, True)  # the reply came too late
        return None, entry._replace(state=FREE)
    except SolelyError:
        yield from undo([Release(token.key, successor, run.doubtful)])
        raise
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):  # else nothing was sent
            yield Release(token.key, successor, is_unanswered(why))
        raise


def not_resumed(entry: Entry) -> Busy:
    """The error of a token that was not resumed; it names the holder of the key, if there is one."""
    holder = describe(entry.info)
    why = _state_of(entry, holder) or "was released, or its lease ended"
    text = f"{entry.kind} {entry.name!r} is not resumed: it {why}; a token is resumed once, while its lease lasts"
    return Busy(text, key=entry.name, holder=holder, left=entry.left)


def renew_due(held: Sequence[Hold]) -> Flow[None]:
    """Renews the holds that are past half their ttl; raises Busy if one of them was lost."""
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
