"""Decisions of locks: several keys at once, release by token, clear. For one key see leases/flow.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import INTERRUPTIONS, Interrupted, SolelyError, is_unanswered
from ..flow import RUN, Ask, Flow, Run, replies_or_raise, undo
from ..holder import Signer
from ..leases.flow import NOWHERE, Here, LeaseTerms, acquire, busy, renew_due
from ..leases.hold import ELSEWHERE, Hold
from ..model import ABSENT, CLOSED, FREE, RELEASED, Entry, Released
from ..ops import Acquire, Clear, Read, Release, Renew
from ..rules import MIN_TTL, deadline

# Values that Gone and Released have in common.
_ENDS = frozenset((Released.EXPIRED, Released.CLEARED, Released.RESUMED))


def acquire_all(
    keys: Iterable[str], terms: LeaseTerms, *, info: Signer = str, here: Here = NOWHERE
) -> Flow[list[Hold]]:
    """Acquires all keys or none: in one batch; if refused, one by one in sorted order, which prevents deadlocks."""
    start: float = yield Ask.NOW
    ordered = sorted(set(keys))
    holds, refusal = yield from _all_at_once(ordered, terms, info)
    if refusal.owner and not holds:  # granted, but the reply came too late: see `acquire`
        holds, refusal = yield from _all_at_once(ordered, terms, info)
    if holds:
        return holds
    held: list[Hold] = []
    try:
        for key in ordered:
            left = terms.wait - ((yield Ask.NOW) - start)
            if left <= 0:
                raise busy(refusal, terms.wait, here)
            held.append(
                (yield from acquire(key, terms._replace(wait=left), info=info, held=held, here=here, lone=False))
            )
        yield from renew_due(held)
    except INTERRUPTIONS:
        if held:
            yield from undo([Release(g.key, g.owner, g.doubtful) for g in held])
        raise
    return held


def _all_at_once(keys: list[str], terms: LeaseTerms, info: Signer) -> Flow[tuple[list[Hold], Entry]]:
    """(the holds, _) if every key was free, else ([], the first refusal) with nothing held."""
    owner: str = yield Ask.OWNER
    answered = False
    try:
        replies = yield [Acquire(key, owner, terms.ttl, info(), "", terms.delay) for key in keys]
        answered = True
        run: Run = yield RUN
        sent, doubtful, now = run.sent, run.doubtful, run.now()
        mine = [isinstance(r, Entry) and r.owner == owner and now < deadline(sent, r.left) for r in replies]
        if all(mine):
            return [Hold(e.key, owner, terms.ttl, e, sent, doubtful, run.now) for e in replies], replies[0]
    except SolelyError:
        raise
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):  # else nothing was sent
            yield [Release(key, owner, revoke=is_unanswered(why)) for key in keys]
        raise
    yield from undo([Release(key, owner, revoke=doubtful) for key in keys])
    entries: list[Entry] = replies_or_raise(replies)
    refusal = next(entry for entry, ok in zip(entries, mine, strict=True) if not ok)
    return [], refusal._replace(state=FREE) if refusal.owner else refusal


def release_all(holds: Sequence[Hold]) -> Flow[list[Released]]:
    """Releases all holds in one batch; raises the first error after all were tried."""
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
        outcomes: list[Released] = replies_or_raise((yield ops))
    except Interrupted:
        yield [op._replace(revoke=True) for op in ops]
        raise
    run: Run = yield RUN
    for hold, outcome, (lost, repeated) in zip(holds, outcomes, before, strict=True):
        hold.ended(hold.absent(lost, repeated, run.doubtful) if outcome is ABSENT else outcome, lost)


def release_token(key: str, owner: str, fence: int, forgotten: bool) -> Flow[Released]:
    """Releases by owner alone. `forgotten`: the store may not remember an expiry, so a renewal checks for one first.

    Another process with the token may have released it before: an absent hold counts as released, unless the store
    lost its data.
    """
    if forgotten:
        entry: Entry = yield Renew(key, owner, MIN_TTL)  # never shortens the hold
        if entry.owner != owner:
            return Released(entry.gone) if entry.gone in _ENDS else Released.UNKNOWN
    op = Release(key, owner, fence=fence)
    try:
        outcome: Released = yield op
    except Interrupted:
        yield op._replace(revoke=True)
        raise
    return RELEASED if outcome is ABSENT else outcome


def clear(key: str, reason: str) -> Flow[Entry | None]:
    """Ends the current hold of the key, and no later one; returns the cleared entry, or None if it was not held."""
    entry: Entry = yield Read(key)
    if entry.state in (FREE, CLOSED):  # a closed key opens by itself
        return None
    cleared: bool = yield Clear(key, entry.fence, reason)
    return entry if cleared else None
