"""Lock: take keys, wait for them in turn, let them go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..errors import Busy, Interrupted, SolelyError, StoreError, first_error
from ..holder import describe
from ..model import ABSENT, CLOSED, DONE, FREE, HELD, RELEASED, Entry, Released
from ..ops import Acquire, Clear, Read, Release, Renew, make
from ..rules import LOOK_AGAIN, MIN_TTL, POLL, deadline, renewal
from .hold import ELSEWHERE, Hold
from .requests import RUN, Ask, Flow, Join, Run, Wait

T = TypeVar("T")
Here = Mapping[str, Hold]
NOWHERE: Here = {}
_ENDS = frozenset((Released.EXPIRED, Released.CLEARED))  # that an owner's being gone and a release's answer both know


def itself(hold: Any) -> Any:
    """The hold as it is."""
    return hold


class Terms(NamedTuple):
    """How a key is to be taken. `client` is queued as a waiter if the key is held; `polls` if no push can wake it."""

    ttl: float
    wait: float = 0.0
    delay: float = 0.0
    client: str = ""
    polls: bool = False


def acquire(
    key: str,
    terms: Terms,
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
                yield from _tend(held)
    except Interrupted as why:
        if asked and (answered or why.unanswered):  # else nothing was sent
            yield Release(key, owner, why.unanswered)
        raise
    except SolelyError:  # the store's own, or that one of `held` was lost
        if asked:
            yield from let_go([Release(key, owner, run.doubtful)])  # type: ignore[union-attr] # who has asked has one
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


def release_token(key: str, owner: str, fence: int, forgotten: bool) -> Flow[Released]:
    """Lets go by owner alone. `forgotten`: had it expired, the store might not remember, so it is asked first.

    Whoever has the token may have let go before: what is not there was released, unless the store lost its data.
    """
    if forgotten:
        entry: Entry = yield Renew(key, owner, MIN_TTL)  # which does not shorten it
        if entry.owner != owner:
            return Released(entry.gone) if entry.gone in _ENDS else Released.UNKNOWN
    op = Release(key, owner, fence=fence)
    try:
        outcome: Released = yield op
    except Interrupted:
        yield op._replace(revoke=True)
        raise
    return RELEASED if outcome is ABSENT else outcome


def release_all(holds: Sequence[Hold]) -> Flow[list[Released]]:
    """Lets go of all, in one batch; the first error is raised after all were tried."""
    mine = [hold for hold in holds if hold.owner and hold.lost not in ELSEWHERE and hold.released is None]
    if mine:
        yield from _release_all(mine)
    return [Released.UNKNOWN if hold.released is None else hold.released for hold in holds]


def _release_all(holds: list[Hold]) -> Flow[None]:
    now: float = yield Ask.NOW
    ops, before = list[Release](), list[tuple[str, bool]]()
    for hold in holds:
        lost, repeated, hold.leaving = hold.how(now), hold.leaving, True
        before.append((lost, repeated))
        delay = max(0.0, hold.opens - now)
        ops.append(Release(hold.key, hold.owner, hold.doubtful or lost != "", delay, fence=hold.fence))
    try:
        outcomes: list[Released] = whole((yield ops))  # type: ignore[assignment]
    except Interrupted:
        yield [op._replace(revoke=True) for op in ops]
        raise
    run: Run = yield RUN
    for hold, outcome, (lost, repeated) in zip(holds, outcomes, before, strict=True):
        told = hold.absent(lost, repeated, run.doubtful) if outcome is ABSENT else outcome
        hold.ended(told, lost)


def whole(replies: list[object]) -> list[Entry] | list[Released] | list[bool]:
    """The replies of a batch; raises the first error among them."""
    error = first_error(StoreError, replies)
    if error is not None:
        raise error
    return replies  # type: ignore[return-value]


def acquire_all(keys: Iterable[str], terms: Terms, *, info: str = "") -> Flow[list[Hold]]:
    """Takes all keys or none: all in one batch; if refused, one by one in sorted order, so that nobody deadlocks."""
    start: float = yield Ask.NOW
    ordered = sorted(set(keys))
    holds, refusal = yield from _all_at_once(ordered, terms, info)
    if refusal.owner and not holds:  # granted, but answered too late to be of use: see `acquire`
        holds, refusal = yield from _all_at_once(ordered, terms, info)
    if holds:
        return holds
    held: list[Hold] = []
    try:
        for key in ordered:
            left = terms.wait - ((yield Ask.NOW) - start)
            if left <= 0:
                raise busy(refusal, terms.wait)
            held.append((yield from acquire(key, terms._replace(wait=left), info=info, held=held)))
        yield from _tend(held)
    except (Interrupted, SolelyError):
        if held:
            yield from let_go([Release(g.key, g.owner, g.doubtful) for g in held])
        raise
    return held


def let_go(ops: list[Any]) -> Flow[None]:
    """Undoes; if the caller is interrupted meanwhile, again, so that it is done when the caller hears of it."""
    try:
        yield ops
    except Interrupted:
        yield ops
        raise


def _all_at_once(keys: list[str], terms: Terms, info: str) -> Flow[tuple[list[Hold], Entry]]:
    """(the holds, _) if every key was free, else ([], the first refusal) with nothing held."""
    owner: str = yield Ask.OWNER
    answered = False
    try:
        replies = yield [Acquire(key, owner, terms.ttl, info, "", terms.delay) for key in keys]
        answered = True
        run: Run = yield RUN
        sent, doubtful, now = run.sent, run.doubtful, run.now()
        mine = [isinstance(r, Entry) and r.owner == owner and now < deadline(sent, r.left) for r in replies]
        if all(mine):
            return [Hold(e.key, owner, terms.ttl, e, sent, doubtful, run.now) for e in replies], replies[0]
    except Interrupted as why:
        if answered or why.unanswered:  # else nothing was sent
            yield [Release(key, owner, revoke=why.unanswered) for key in keys]
        raise
    yield from let_go([Release(key, owner, revoke=doubtful) for key in keys])
    entries: list[Entry] = whole(replies)  # type: ignore[assignment]
    refusal = next(entry for entry, ok in zip(entries, mine, strict=True) if not ok)
    return [], refusal._replace(state=FREE) if refusal.owner else refusal


def _tend(held: Sequence[Hold]) -> Flow[None]:
    """Renews the keys taken so far whose half time has passed; raises Busy if one of them was lost."""
    now: float = yield Ask.NOW
    due = [hold for hold in held if now >= renewal(hold.sent, hold.ttl)]
    if not due:
        return
    entries: list[Entry] = whole((yield [Renew(h.key, h.owner, h.ttl) for h in due]))  # type: ignore[assignment]
    run: Run = yield RUN
    for hold, entry in zip(due, entries, strict=True):
        if entry.owner != hold.owner:
            raise busy(entry, 0.0)
        hold.extended(entry, hold.ttl, run.sent)


def clear(key: str, reason: str) -> Flow[Entry | None]:
    """Takes the key from whoever has it now, and from nobody who comes after; what was cleared, if anything."""
    entry: Entry = yield Read(key)
    if entry.state in (FREE, CLOSED):  # what is closed opens by itself: nobody has it
        return None
    cleared: bool = yield Clear(key, entry.fence, reason)
    return entry if cleared else None


def resume(key: str, owner: str, ttl: float) -> Flow[Hold]:
    """Goes on with a lease that another process took; raises Busy if it is no longer this owner's."""
    entry: Entry = yield Renew(key, owner, ttl)
    if entry.owner != owner:
        raise busy(entry, 0.0)
    run: Run = yield RUN
    hold = Hold(key, owner, ttl, entry, run.sent, True, run.now)
    if run.now() >= hold.deadline:  # the answer came too late to be of use
        raise busy(entry._replace(state=FREE), 0.0)
    return hold
