"""Decisions of limits: never more than `limit` hits in any window of time."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..errors import INTERRUPTIONS, Interrupted, StoreError, StoreUnavailable, is_unanswered
from ..flow import Ask, Flow, replies_or_raise, undo
from ..holder import facts_of
from ..leases.listing import listing
from ..model import HELD, Allowance, Entry
from ..ops import Acquire, Clear, Hit, Read, Unhit
from ..rules import DAY, MIN_TTL

NOTES = "limited"  # the kind of the notes that a limit refuses calls


class LimitInfo(NamedTuple):
    """A limit that refuses calls: there were `hits` of at most `limit` in the last `per` seconds when the last call was
    refused, and the next one is allowed in `left` seconds."""

    key: str
    limit: int
    per: float
    hits: int
    left: float


def hit(key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """(the owner of the hit, the reply): allowed only if there were fewer than `limit` hits in the last `per` seconds.

    An interrupted caller removes its hit. If that fails too, this window allows one hit less.
    """
    owner: str = yield Ask.OWNER
    try:
        allowance: Allowance = yield Hit(key, owner, limit, per)
    except INTERRUPTIONS as why:
        if is_unanswered(why):  # else nothing was sent
            yield from undo([Unhit(key, owner)])
        raise
    return owner, allowance


def note_refusal(key: str, owner: str, limit: int, per: float, refused: Allowance) -> Flow[None]:
    """Notes that the limit refuses calls until the next one is allowed, for people who ask why: a store returns the
    count of hits only to a hit. Never fails: without the note only the explanation is missing."""
    facts = json.dumps({"limit": limit, "per": per, "hits": refused.hits})
    ttl = min(DAY, max(MIN_TTL, refused.retry_after))  # a day is what services allow; the next refusal notes it again
    try:
        yield Acquire(_note(key), owner, ttl, facts)
    except StoreError:
        pass
    except Interrupted as why:
        if not isinstance(why.cause, StoreUnavailable):
            raise


def give_back(key: str, owner: str) -> Flow[bool]:
    """Removes this owner's hit, and the note that the limit refuses calls; False if there was no hit.

    An interrupted caller still removes its hit.
    """
    try:
        replies = yield [Unhit(key, owner), Read(_note(key))]
    except Interrupted:
        yield from undo([Unhit(key, owner)])
        raise
    removed, note = replies_or_raise(replies)
    if removed and note.state is HELD:
        yield Clear(note.key, note.fence, "a hit was given back")
    return bool(removed)


def limits(prefix: str, after: str, limit: int) -> Flow[list[LimitInfo]]:
    """A page of the limits that refuse calls now."""
    return (yield from listing(NOTES, prefix, after, limit, info_of))


def info_of(note: Entry) -> LimitInfo:
    """What the note says."""
    facts = facts_of(note.info)
    return LimitInfo(note.name, facts.get("limit", 0), facts.get("per", 0.0), facts.get("hits", 0), note.left)


def _note(key: str) -> str:
    return f"{NOTES}/{key.partition('/')[2]}"
