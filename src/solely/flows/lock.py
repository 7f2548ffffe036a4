"""Lock: take keys, wait for them in turn, let them go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import Busy, Interrupted, SolelyError, StoreError
from ..holder import describe
from ..model import Entry, Released, State
from ..ops import Acquire, Read, Release, Renew
from ..rules import LOOK_AGAIN, POLL, REMEMBER, deadline, renewal
from .requests import Ask, Flow, Join, Sending, Wait


class Terms(NamedTuple):
    """How a key is to be taken. `client` is queued as a waiter if the key is held; `polls` if no push can wake it."""

    ttl: float
    wait: float = 0.0
    info: str = ""
    delay: float = 0.0
    client: str = ""
    polls: bool = False


class Grant(NamedTuple):
    """A key that was taken: until the local `deadline` nobody else has it. `doubtful`: a copy of the request may still
    be under way, so the release must revoke."""

    key: str
    owner: str
    fence: int
    ttl: float
    sent: float
    deadline: float
    doubtful: bool = False
    attempts: int = 1
    waited: float = 0.0


def acquire(key: str, terms: Terms, held: list[Grant] | None = None) -> Flow[Grant]:
    """Takes the key within terms.wait, in the order of arrival; raises Busy, which says who has it, if it cannot.

    `held` are keys taken before, by the same caller, that are renewed while this one is waited for.
    """
    start: float = yield Ask.NOW
    owner: str = yield Ask.OWNER
    asked = False
    looks = 0
    try:
        if terms.wait and not (yield Join(key, terms.wait)):
            raise busy((yield Read(key)), terms.wait)
        while True:
            asked = True
            entry: Entry = yield Acquire(
                key, owner, terms.ttl, terms.info, terms.client if terms.wait else "", terms.delay
            )
            sent: Sending = yield Ask.SENT
            now: float = yield Ask.NOW
            if entry.owner == owner and now < deadline(sent.at, entry.left):
                return _grant(entry, owner, terms, sent, now - start)
            if entry.owner == owner or entry.gone:  # the answer came too late to be of use: this attempt is over
                yield Release(key, owner, revoke=True)
                entry = entry._replace(state=State.FREE) if entry.owner else entry
                owner = yield Ask.OWNER
            if now - start >= terms.wait:
                break
            yield Wait(key, min(terms.wait - (now - start), _look_again(entry, looks, terms)))
            looks += 1
            if held:
                yield from _tend(held)
    except Interrupted as why:
        if asked:
            yield Release(key, owner, revoke=why.unanswered)
        raise
    if terms.wait:
        yield Release(key, owner)  # leaves the queue of the entry, or passes the offer on
    raise busy(entry, now - start)


def _grant(entry: Entry, owner: str, terms: Terms, sent: Sending, waited: float) -> Grant:
    until = deadline(sent.at, entry.left)
    return Grant(entry.key, owner, entry.fence, terms.ttl, sent.at, until, sent.doubtful, entry.attempts, waited)


def _look_again(entry: Entry, looks: int, terms: Terms) -> float:
    """When to look without a hint: when the holder's time is up, and soon enough that a lost hint hurts nobody."""
    longest = min(POLL[1], POLL[0] * 2.0 ** min(looks, 8)) if terms.polls else LOOK_AGAIN
    if entry.state is State.FREE:
        return POLL[0]
    return min(longest, entry.left + POLL[0], max(POLL[0], terms.ttl / 4))


def busy(entry: Entry, waited: float) -> Busy:
    """The error that says who blocks the caller."""
    holder = describe(entry.info)
    if entry.state is State.HELD:
        text = f"is held by {holder or 'another owner'} for another {entry.left:.1f} s unless renewed"
    elif entry.state is State.CLOSED:
        text = f"is closed for another {entry.left:.3f} s (a delay after an expiry, or it is offered to a waiter)"
    elif entry.state is State.DONE:
        text = "is finished"
    else:
        text = "could not be taken in time: others were ahead, or the store answered later than the ttl allows"
    text = f"{entry.kind} {entry.name!r} {text}; waited {waited:.1f} s"
    return Busy(text, key=entry.name, holder=holder, left=entry.left)


def release(grant: Grant, *, delay: float = 0.0) -> Flow[Released]:
    """Lets go; answers truthfully whether the key was still held, also when repeated."""
    revoke = grant.doubtful
    try:
        outcome: Released = yield Release(grant.key, grant.owner, revoke, delay)
    except Interrupted:
        yield Release(grant.key, grant.owner, True, delay)
        raise
    return (yield from _truthful(outcome, grant))


def release_all(grants: Sequence[Grant]) -> Flow[list[Released]]:
    """Lets go of all, in one batch; the first error is raised after all were tried."""
    ops = [Release(g.key, g.owner, g.doubtful) for g in grants]
    try:
        outcomes = yield ops
    except Interrupted:
        yield [op._replace(revoke=True) for op in ops]
        raise
    released: list[Released] = whole(outcomes)  # type: ignore[assignment]
    answers = []
    for outcome, grant in zip(released, grants, strict=True):
        answers.append((yield from _truthful(outcome, grant)))
    return answers


def _truthful(outcome: Released, grant: Grant) -> Flow[Released]:
    now: float = yield Ask.NOW
    forgotten = outcome is Released.RELEASED and now > grant.deadline + REMEMBER
    return Released.UNKNOWN if forgotten else outcome


def whole(replies: list[object]) -> list[Entry] | list[Released] | list[bool]:
    """The replies of a batch; raises the first error among them."""
    for reply in replies:
        if isinstance(reply, StoreError):
            raise reply
    return replies  # type: ignore[return-value]


def acquire_all(keys: Iterable[str], terms: Terms) -> Flow[list[Grant]]:
    """Takes all keys or none: all in one batch; if refused, one by one in sorted order, so that nobody deadlocks."""
    start: float = yield Ask.NOW
    ordered = sorted(set(keys))
    grants, refusal = yield from _all_at_once(ordered, terms)
    if grants:
        return grants
    held: list[Grant] = []
    try:
        for key in ordered:
            left = terms.wait - ((yield Ask.NOW) - start)
            if left <= 0:
                raise busy(refusal, terms.wait)
            held.append((yield from acquire(key, terms._replace(wait=left), held)))
        yield from _tend(held)
    except (Interrupted, SolelyError):
        if held:
            yield [Release(g.key, g.owner, True) for g in held]
        raise
    return held


def _all_at_once(keys: list[str], terms: Terms) -> Flow[tuple[list[Grant], Entry]]:
    """(the grants, _) if every key was free, else ([], the first refusal) with nothing held."""
    owner: str = yield Ask.OWNER
    try:
        replies = yield [Acquire(key, owner, terms.ttl, terms.info, "", terms.delay) for key in keys]
        sent: Sending = yield Ask.SENT
        now: float = yield Ask.NOW
        mine = [isinstance(r, Entry) and r.owner == owner and now < deadline(sent.at, r.left) for r in replies]
        if all(mine):
            return [_grant(entry, owner, terms, sent, 0.0) for entry in replies], replies[0]
    except Interrupted as why:
        yield [Release(key, owner, revoke=why.unanswered) for key in keys]
        raise
    yield [Release(key, owner, revoke=True) for key in keys]
    entries: list[Entry] = whole(replies)  # type: ignore[assignment]
    return [], next(entry for entry, ok in zip(entries, mine, strict=True) if not ok)


def _tend(held: list[Grant]) -> Flow[None]:
    """Renews, in place, the keys taken so far whose half time has passed; raises Busy if one of them was lost."""
    now: float = yield Ask.NOW
    due = [n for n, grant in enumerate(held) if now >= renewal(grant.sent, grant.ttl)]
    if not due:
        return
    entries: list[Entry] = whole((yield [Renew(held[n].key, held[n].owner, held[n].ttl) for n in due]))  # type: ignore[assignment]
    sent: Sending = yield Ask.SENT
    for n, entry in zip(due, entries, strict=True):
        if entry.owner != held[n].owner:
            raise busy(entry, 0.0)
        held[n] = held[n]._replace(sent=sent.at, deadline=deadline(sent.at, entry.left))


def resume(key: str, owner: str, ttl: float) -> Flow[Grant]:
    """Goes on with a lease that another process took; raises Busy if it is no longer this owner's."""
    entry: Entry = yield Renew(key, owner, ttl)
    if entry.owner != owner:
        raise busy(entry, 0.0)
    sent: Sending = yield Ask.SENT
    return _grant(entry, owner, Terms(ttl), sent, 0.0)
