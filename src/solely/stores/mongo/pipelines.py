"""What each op does to a document, as update pipelines: stores/transitions.py in MongoDB's own language.

The pipelines are constants. What belongs to one op comes in as variables (`$$now`, `$$owner`, `$$ttl`, …), which are
values and never parsed: no key, owner, info or payload can become an operator. Times are µs of the server's clock.
"""

from __future__ import annotations

from ...model import Gone, State
from ...rules import MAX_WAITERS
from ..transitions import NEVER
from .expressions import (
    ALL_NOTIFIED,
    BEFORE_END,
    CURRENT,
    DONE,
    EXPIRED_UNDER_ME,
    FREE,
    GONE,
    HELD,
    HOLDER_DISPLACED,
    IS_ITEM,
    KEEP,
    LIVE,
    MINE,
    NEXT_FENCE,
    NO_ITEM,
    NO_OFFER,
    NO_VALUE,
    OFFERED,
    PURGE,
    REMEMBERED_US,
    SET_FREE,
    Expression,
    Pipeline,
    among_the_gone,
    become,
    changed,
    displaced,
    either,
    every,
    without,
)

# -- ops on entries


def _acquire() -> Pipeline:
    """Grants the key under the next fence; else queues the client and counts the refusal, as the op says."""
    offered_to_me = every({"$ne": ["$$client", ""]}, {"$eq": ["$offered.client", "$$client"]})
    closed = every(FREE, {"$lt": ["$$now", "$opens"]}, {"$not": [offered_to_me]})
    delayed = every(HELD, {"$lt": ["$$now", {"$add": ["$until", "$delay"]}]})
    counted_on = {"$or": [HELD, every(FREE, {"$lt": ["$$now", "$kept"]})]}
    refused = changed(
        refused={"$add": ["$refused", either("$$counted", 1, 0)]},
        waiters=either({"$or": [{"$eq": ["$$client", ""]}, DONE]}, "$waiters", _queued()),
    )
    granted = changed(
        state=State.HELD.value,
        owner="$$owner",
        fence=NEXT_FENCE,
        until={"$add": ["$$now", "$$ttl"]},
        delay="$$delay",
        attempts={"$add": [either(counted_on, "$attempts", 0), 1]},
        refused=either(counted_on, "$refused", 0),
        fingerprint="$$fingerprint",
        info="$$info",
        gone=HOLDER_DISPLACED,
        waiters=without("$waiters", "client"),
        kept=0,
        **NO_VALUE,
        **NO_OFFER,
    )
    same = {"$or": [GONE, every(LIVE, MINE)]}  # gone for good; or a repeat: still mine, nothing moves
    busy = {"$or": [LIVE, closed, delayed]}
    return [CURRENT, become((same, "$$ROOT"), (busy, refused), otherwise=granted), *KEEP]


def _queued() -> Expression:
    """The waiters with this client, once; a newer attempt of it keeps its place."""
    me = {"client": "$$client", "owner": "$$owner"}
    in_place = {"$map": {"input": "$waiters", "in": either({"$eq": ["$$this.client", "$$client"]}, me, "$$this")}}
    at_the_end = either(
        {"$lt": [{"$size": "$waiters"}, MAX_WAITERS]}, {"$concatArrays": ["$waiters", [me]]}, "$waiters"
    )
    return either({"$in": ["$$client", "$waiters.client"]}, in_place, at_the_end)


def _renew() -> Pipeline:
    """Extends the hold if it is this owner's and has not run out; never shortens it."""
    longer = {"$max": ["$until", {"$add": ["$$now", "$$ttl"]}]}
    return [become((every(HELD, MINE, BEFORE_END), changed(until=longer))), *KEEP]


def _resume() -> Pipeline:
    """Passes the hold on from this owner to its successor, under the next fence; an item keeps its fence."""
    may = every({"$ne": ["$$successor", "$$owner"]}, {"$not": [among_the_gone("$$successor")]})
    passed_on = changed(
        owner="$$successor",
        until={"$add": ["$$now", "$$ttl"]},
        fence=either(IS_ITEM, "$fence", NEXT_FENCE),
        info=either(IS_ITEM, "$info", "$$info"),
        gone=displaced("$owner", "$fence", Gone.RESUMED, "$until"),
    )
    return [become((every(HELD, MINE, BEFORE_END, may), passed_on)), *KEEP]


def _finish() -> Pipeline:
    """Finishes the hold if this owner is its last, even after its time ran out; notifies all waiters."""
    until = {"$add": ["$$now", "$$keep"]}
    done = changed(state=State.DONE.value, value="$$value", delay=0, until=until, queue=None, **ALL_NOTIFIED)
    return [become((every(HELD, MINE, {"$lt": ["$$now", "$forget"]}), done)), *KEEP]


def _release() -> Pipeline:
    """Releases the hold, the place in the queue, or the mark of this owner; changes nothing when repeated."""
    mine, over = every(HELD, MINE), {"$gte": ["$$now", "$until"]}
    opens = either(over, {"$add": ["$until", "$delay"]}, {"$add": ["$$now", "$$delay"]})
    kept = {"$add": ["$$now", either(over, REMEMBERED_US, "$$keep")]}
    under = either(mine, "$fence", 0)
    offer_is_mine = every({"$eq": ["$offered.owner", "$$owner"]}, {"$lt": ["$$now", "$opens"]})
    gone = {
        "$switch": {
            "branches": [
                {"case": EXPIRED_UNDER_ME, "then": displaced("$owner", "$fence", Gone.EXPIRED)},
                {"case": every("$$revoke", {"$not": [GONE]}), "then": displaced("$$owner", under, Gone.REVOKED)},
            ],
            "default": "$gone",
        }
    }
    released = become(
        (every(mine, {"$gt": [opens, "$$now"]}), changed(**SET_FREE, **NO_VALUE, kept=kept, opens=opens)),
        (mine, changed(**SET_FREE, **NO_VALUE, **OFFERED, kept=kept)),
        (every(DONE, MINE, {"$eq": ["$value", None]}), changed(**SET_FREE)),
        (offer_is_mine, changed(**OFFERED)),
    )
    return [CURRENT, {"$set": {"gone": gone}}, released, {"$set": {"waiters": without("$waiters", "owner")}}, *KEEP]


def _mark(**seen: Expression) -> Pipeline:
    """Marks a free key; any other gets the fields of `seen`, and a mark is extended if the op says so."""
    extends = every("$$extend", DONE, LIVE, {"$eq": ["$value", None]})
    longer = {"$max": ["$until", {"$add": ["$$now", "$$ttl"]}]}
    same = changed(**seen) if seen else "$$ROOT"
    marked = changed(
        **(SET_FREE | {"state": State.DONE.value, "owner": "$$owner", "until": {"$add": ["$$now", "$$ttl"]}}),
        **NO_VALUE,
        **NO_OFFER,
        fence=NEXT_FENCE,
        attempts=0,
        refused=0,
        kept=0,
        gone=HOLDER_DISPLACED,
    )
    cases = (GONE, same), (extends, changed(until=longer, **seen)), (LIVE, same)
    return [CURRENT, become(*cases, otherwise=marked), *KEEP]


def _clear() -> Pipeline:
    """Removes what carries the fence, and nothing that came after it."""
    this = every({"$eq": ["$fence", "$$fence"]}, {"$or": [IS_ITEM, LIVE]})
    cleared = changed(
        **SET_FREE,
        **NO_VALUE,
        **OFFERED,
        attempts=0,
        refused=0,
        kept=0,
        gone=displaced("$owner", "$fence", Gone.CLEARED),
    )
    return [become((this, cleared)), *KEEP]


def _advance() -> Pipeline:
    """Moves a watermark forward, never back. Compared by `height`, the value in hex: binaries compare by length."""
    not_less = every(DONE, {"$gte": ["$height", "$$height"]})
    higher = changed(
        **(SET_FREE | {"state": State.DONE.value}), fence=NEXT_FENCE, value="$$value", height="$$height", queue=None
    )
    return [CURRENT, become((not_less, "$$ROOT"), otherwise=higher), *KEEP]


# -- limits

_IN_WINDOW = {"$filter": {"input": "$hits", "cond": {"$gt": ["$$this.at", {"$subtract": ["$$now", "$$per"]}]}}}


def _hit() -> Pipeline:
    """Counts this owner once, if there is room in the window."""
    room = every({"$not": [{"$in": ["$$owner", "$hits.owner"]}]}, {"$lt": [{"$size": "$hits"}, "$$limit"]})
    one_more = {"$concatArrays": ["$hits", [{"owner": "$$owner", "at": "$$now"}]]}
    last = {"$ifNull": [{"$max": "$hits.at"}, 0]}
    return [
        {"$set": {"hits": {"$ifNull": [_IN_WINDOW, []]}}},
        {"$set": {"hits": either(room, one_more, "$hits")}},
        {"$set": {"fence": 0, "forget": {"$max": ["$forget", {"$add": [last, "$$per"]}]}}},
        {"$set": {"purge": PURGE}},
    ]


def _unhit() -> Pipeline:
    """Gives back what this owner took."""
    return [{"$set": {"hits": {"$ifNull": [without("$hits", "owner"), []]}}}]


# -- queues


def _push() -> Pipeline:
    """Makes the document a queue item unless it is one. `pusher` shows afterwards whose push it was."""
    item = changed(
        **SET_FREE,
        value="$$value",
        fence=NEXT_FENCE,
        attempts=0,
        offered=None,
        opens={"$add": ["$$now", "$$delay"]},
        queue="$$queue",
        pushed="$$now",
        serial="$$serial",
        pusher="$$by",
    )
    return [CURRENT, become((IS_ITEM, "$$ROOT"), otherwise=item), *KEEP]


def _take() -> Pipeline:
    """Leases the item that the filter found to this owner."""
    until = {"$add": ["$$now", "$$ttl"]}
    leased = changed(state=State.HELD.value, owner="$$owner", until=until, attempts={"$add": ["$attempts", 1]})
    return [{"$replaceWith": leased}, *KEEP]


def _join_line() -> Pipeline:
    """Puts the client in the line of a queue, once; writes only what is new, or old enough to be forgotten soon."""
    here = {"$in": [{"client": "$$client", "owner": "$$owner"}, "$waiters"]}
    lately = {"$gte": [{"$add": ["$opens", REMEMBERED_US // 2]}, "$$now"]}
    joined = changed(waiters=_queued(), opens="$$now")
    return [CURRENT, become((every(here, lately), "$$ROOT"), otherwise=joined), *KEEP]


def _call_first() -> Pipeline:
    """Notifies as many of the first clients in the line of a queue as it got items."""
    names = {
        "$reduce": {
            "input": {"$slice": ["$waiters", "$$items"]},
            "initialValue": "$$by",
            "in": {"$concat": ["$$value", " ", "$$this.client"]},
        }
    }
    return [{"$set": {"notified": names, "waiters": {"$slice": ["$waiters", "$$items", MAX_WAITERS]}}}, *KEEP]


_LAST_TAKEN_BY_ME = every(IS_ITEM, HELD, MINE)


def _ack() -> Pipeline:
    """Removes the item if this owner was the last to take it, and no later item has its id."""
    this = {"$in": ["$$fence", [0, "$fence"]]}
    return [become((every(_LAST_TAKEN_BY_ME, this), NO_ITEM)), *KEEP]


def _return() -> Pipeline:
    """Puts the item back for anyone, from the delay on."""
    opens = {"$add": ["$$now", "$$delay"]}
    attempts = {"$subtract": ["$attempts", either("$$uncounted", 1, 0)]}
    back = changed(state=State.FREE.value, owner="", until=NEVER, opens=opens, attempts=attempts)
    return [become((_LAST_TAKEN_BY_ME, back)), *KEEP]


def _amend() -> Pipeline:
    """Replaces the item's bytes if they are as expected; without a value, removes it unless it is taken."""
    expected = every(IS_ITEM, {"$eq": ["$value", "$$expected"]})
    removed = every(expected, {"$eq": ["$$value", None]})
    amended = become(
        (every(removed, HELD, BEFORE_END), "$$ROOT"), (removed, NO_ITEM), (expected, changed(value="$$value"))
    )
    return [amended, *KEEP]


ACQUIRE, RENEW, RESUME, FINISH, RELEASE, MARK = _acquire(), _renew(), _resume(), _finish(), _release(), _mark()
CLEAR, ADVANCE, HIT, UNHIT = _clear(), _advance(), _hit(), _unhit()
JOIN_LINE, CALL_FIRST = _join_line(), _call_first()
PUSH, TAKE, ACK, RETURN, AMEND = _push(), _take(), _ack(), _return(), _amend()
# In a transaction, whose snapshot may be old: it writes also where it answers "seen", so that the server finds out if
# the mark was forgotten since. What it writes is read by nobody.
MARK_INSIDE = _mark(seen_by="$$owner")
