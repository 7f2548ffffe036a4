"""What each op does to a document, as update pipelines: stores/transitions.py in MongoDB's own language.

The pipelines are constants. What belongs to one op comes in as variables (`$$now`, `$$owner`, `$$ttl`, …), which are
values and never parsed: no key, owner, info or payload can become an operator. Times are whole µs of the server's clock.

An op that changes nothing leaves the document byte for byte as it was, and then the server writes nothing.
Beside the fields of a Record a document has: `forget`, from when on it answers nothing more; `purge`, when the TTL index
may remove it; `told`, which op told which waiting clients; and, if it is a queue item, `queue`, `available` and `pushed`.
"""

from __future__ import annotations

from typing import Any

from ...model import Gone, State
from ...rules import MAX_GONE, MAX_WAITERS, OFFER, REMEMBER
from ..transitions import NEVER, US

Expression = Any
Pipeline = list[dict[str, Any]]

FOREVER = 1 << 62  # as `forget`: never
_REMEMBER = int(REMEMBER * US)
_OFFER = int(OFFER * US)

# The document of a key stays for an hour after it answers nothing more, and at least until the clock has passed its
# last fence, so that the next fence, which then comes from the clock alone, is greater. Another primary's clock may be
# behind by less than that. In whole hours: an acquire and its release then seldom move the key within the TTL index.
_HOUR_MS = 3_600_000

NOW = {"$multiply": [{"$toLong": "$$NOW"}, 1_000]}  # µs on the server's clock, which ticks in ms


def _if(condition: Expression, yes: Expression, no: Expression) -> Expression:
    return {"$cond": [condition, yes, no]}


def _all(*conditions: Expression) -> Expression:
    return {"$and": list(conditions)}


def _changed(**fields: Expression) -> Expression:
    return {"$mergeObjects": ["$$ROOT", fields]}


def _become(*cases: tuple[Expression, Expression], otherwise: Expression = "$$ROOT") -> dict[str, Any]:
    """The stage that makes the document what the first true case says."""
    branches = [{"case": condition, "then": document} for condition, document in cases]
    return {"$replaceWith": {"$switch": {"branches": branches, "default": otherwise}}}


def _without(waiters: Expression, field: str) -> Expression:
    """The waiters that do not carry this op's client or owner."""
    return {"$filter": {"input": waiters, "cond": {"$ne": [f"$$this.{field}", f"$${field}"]}}}


# -- what a document is now

_HELD = {"$eq": ["$state", State.HELD.value]}
_DONE = {"$eq": ["$state", State.DONE.value]}
_FREE = {"$eq": ["$state", State.FREE.value]}
_MINE = {"$eq": ["$owner", "$$owner"]}
_BEFORE_END = {"$lt": ["$$now", "$until"]}
_LIVE = {"$or": [_all(_HELD, _BEFORE_END), _all(_DONE, {"$or": [{"$eq": ["$until", NEVER]}, _BEFORE_END]})]}
_EXPIRED_UNDER_ME = _all(_HELD, _MINE, {"$gte": ["$$now", "$until"]})
_IS_ITEM = {"$gt": ["$queue", ""]}  # absent and null come before any text
_HAS_WAITERS = {"$ne": ["$waiters", []]}

_REMEMBERED = {"$gt": ["$$this.until", "$$now"]}
_AMONG_THE_GONE = {
    "$anyElementTrue": {"$map": {"input": "$gone", "in": _all({"$eq": ["$$this.owner", "$$owner"]}, _REMEMBERED)}}
}
_GONE = {"$or": [_AMONG_THE_GONE, _EXPIRED_UNDER_ME]}

# -- parts of a change

_NEXT_FENCE = {"$max": [{"$add": ["$fence", 1]}, "$$now"]}
_BLANK: dict[str, Any] = {
    "state": State.FREE.value, "owner": "", "until": NEVER, "delay": 0, "opens": 0, "offered": None, "attempts": 0,
    "kept": 0, "refused": 0, "fingerprint": "", "info": "", "value": None, "waiters": [], "gone": [], "told": "",
}  # fmt: skip
_AS_NEW = {"$mergeObjects": [{"_id": "$_id", "fence": {"$ifNull": ["$fence", 0]}}, {"$literal": _BLANK}]}
_LET_GO: dict[str, Expression] = {
    "state": State.FREE.value, "owner": "", "until": NEVER, "delay": 0, "fingerprint": "", "info": "",
}  # fmt: skip
_NO_VALUE: dict[str, Expression] = {"value": None, "queue": None}
_NO_OFFER: dict[str, Expression] = {"offered": None, "opens": 0}

# Offers a key that was just let go to the first waiter, and tells only that one.
_OFFERED: dict[str, Expression] = {
    "offered": {"$ifNull": [{"$first": "$waiters"}, None]},
    "opens": _if(_HAS_WAITERS, {"$add": ["$$now", _OFFER]}, 0),
    "waiters": {"$slice": ["$waiters", 1, MAX_WAITERS]},
    "told": _if(_HAS_WAITERS, {"$concat": ["$$by", " ", {"$first": "$waiters.client"}]}, "$told"),
}
_ALL_TOLD: dict[str, Expression] = {
    "waiters": [],
    "told": _if(
        _HAS_WAITERS,
        {
            "$reduce": {
                "input": "$waiters",
                "initialValue": "$$by",
                "in": {"$concat": ["$$value", " ", "$$this.client"]},
            }
        },
        "$told",
    ),
}


def _displaced(owner: Expression, fence: Expression, how: Gone) -> Expression:
    """The gone, and one more."""
    another = {"$or": [{"$ne": ["$$this.owner", owner]}, {"$eq": [owner, ""]}]}
    kept = {"$filter": {"input": "$gone", "cond": _all(_REMEMBERED, another)}}
    one = {"owner": owner, "fence": fence, "how": how.value, "until": {"$add": ["$$now", _REMEMBER]}}
    return {"$slice": [{"$concatArrays": [kept, [one]]}, -MAX_GONE]}


_HOLDER_DISPLACED = _if(_HELD, _displaced("$owner", "$fence", Gone.EXPIRED), "$gone")

# -- the first and the last stages

# A document that answers nothing more is treated as absent, but for its fence; an absent one has no `forget`, and what
# is absent comes before every number.
_CURRENT = _become(({"$lte": ["$forget", "$$now"]}, _AS_NEW))
_FORGET = {
    "$max": [
        {
            "$switch": {
                "branches": [
                    {"case": {"$or": [_IS_ITEM, _all(_DONE, {"$eq": ["$until", NEVER]})]}, "then": FOREVER},
                    {"case": _HELD, "then": {"$add": ["$until", "$delay", _REMEMBER]}},
                    {"case": _DONE, "then": "$until"},
                ],
                "default": {"$add": [{"$max": ["$opens", "$kept"]}, _if(_HAS_WAITERS, _REMEMBER, 0)]},
            }
        },
        {"$max": "$gone.until"},
    ]
}
_HOURS = {"$add": [1, {"$ceil": {"$divide": [{"$max": ["$forget", "$fence"]}, _HOUR_MS * 1_000]}}]}
_PURGE = _if(
    _all("$$sweeps", {"$lt": ["$forget", FOREVER]}), {"$toDate": {"$multiply": [_HOURS, _HOUR_MS]}}, "$$REMOVE"
)
_KEEP: Pipeline = [
    {"$set": {"forget": _FORGET, "available": _if(_IS_ITEM, _if(_HELD, "$until", "$opens"), "$$REMOVE")}},
    {"$set": {"purge": _PURGE}},
]


# -- ops on entries


def _acquire() -> Pipeline:
    """Grants the key under the next fence; else queues the client and counts the refusal, as asked."""
    offered_to_me = _all({"$ne": ["$$client", ""]}, {"$eq": ["$offered.client", "$$client"]})
    closed = _all(_FREE, {"$lt": ["$$now", "$opens"]}, {"$not": [offered_to_me]})
    delayed = _all(_HELD, {"$lt": ["$$now", {"$add": ["$until", "$delay"]}]})
    counted_on = {"$or": [_HELD, _all(_FREE, {"$lt": ["$$now", "$kept"]})]}
    refused = _changed(
        refused={"$add": ["$refused", _if("$$counted", 1, 0)]},
        waiters=_if({"$or": [{"$eq": ["$$client", ""]}, _DONE]}, "$waiters", _queued()),
    )
    granted = _changed(
        state=State.HELD.value,
        owner="$$owner",
        fence=_NEXT_FENCE,
        until={"$add": ["$$now", "$$ttl"]},
        delay="$$delay",
        attempts={"$add": [_if(counted_on, "$attempts", 0), 1]},
        refused=_if(counted_on, "$refused", 0),
        fingerprint="$$fingerprint",
        info="$$info",
        gone=_HOLDER_DISPLACED,
        waiters=_without("$waiters", "client"),
        kept=0,
        **_NO_VALUE,
        **_NO_OFFER,
    )
    same = {"$or": [_GONE, _all(_LIVE, _MINE)]}  # gone for good; or a repeat: still mine, nothing moves
    busy = {"$or": [_LIVE, closed, delayed]}
    return [_CURRENT, _become((same, "$$ROOT"), (busy, refused), otherwise=granted), *_KEEP]


def _queued() -> Expression:
    """The waiters with this client, once; a newer attempt of it keeps its place."""
    me = {"client": "$$client", "owner": "$$owner"}
    in_place = {"$map": {"input": "$waiters", "in": _if({"$eq": ["$$this.client", "$$client"]}, me, "$$this")}}
    at_the_end = _if({"$lt": [{"$size": "$waiters"}, MAX_WAITERS]}, {"$concatArrays": ["$waiters", [me]]}, "$waiters")
    return _if({"$in": ["$$client", "$waiters.client"]}, in_place, at_the_end)


def _renew() -> Pipeline:
    """Extends the hold if it is this owner's and has not run out; never shortens it."""
    longer = {"$max": ["$until", {"$add": ["$$now", "$$ttl"]}]}
    return [_become((_all(_HELD, _MINE, _BEFORE_END), _changed(until=longer))), *_KEEP]


def _finish() -> Pipeline:
    """Finishes the hold if this owner is its last, even after its time ran out; tells all waiters."""
    until = {"$add": ["$$now", "$$keep"]}
    done = _changed(state=State.DONE.value, value="$$value", delay=0, until=until, queue=None, **_ALL_TOLD)
    return [_become((_all(_HELD, _MINE, {"$lt": ["$$now", "$forget"]}), done)), *_KEEP]


def _release() -> Pipeline:
    """Lets go of the hold, the place in the queue, or the mark of this owner; changes nothing when repeated."""
    mine, over = _all(_HELD, _MINE), {"$gte": ["$$now", "$until"]}
    opens = _if(over, {"$add": ["$until", "$delay"]}, {"$add": ["$$now", "$$delay"]})
    kept = {"$add": ["$$now", _if(over, _REMEMBER, "$$keep")]}
    offer_is_mine = _all({"$eq": ["$offered.owner", "$$owner"]}, {"$lt": ["$$now", "$opens"]})
    gone = {
        "$switch": {
            "branches": [
                {"case": _EXPIRED_UNDER_ME, "then": _displaced("$owner", "$fence", Gone.EXPIRED)},
                {"case": _all("$$revoke", {"$not": [_GONE]}), "then": _displaced("$$owner", 0, Gone.REVOKED)},
            ],
            "default": "$gone",
        }
    }
    let_go = _become(
        (_all(mine, {"$gt": [opens, "$$now"]}), _changed(**_LET_GO, **_NO_VALUE, kept=kept, opens=opens)),
        (mine, _changed(**_LET_GO, **_NO_VALUE, **_OFFERED, kept=kept)),
        (_all(_DONE, _MINE, {"$eq": ["$value", None]}), _changed(**_LET_GO)),
        (offer_is_mine, _changed(**_OFFERED)),
    )
    return [_CURRENT, {"$set": {"gone": gone}}, let_go, {"$set": {"waiters": _without("$waiters", "owner")}}, *_KEEP]


def _mark() -> Pipeline:
    """Marks a free key."""
    marked = _changed(
        **(_LET_GO | {"state": State.DONE.value, "owner": "$$owner", "until": {"$add": ["$$now", "$$ttl"]}}),
        **_NO_VALUE,
        **_NO_OFFER,
        fence=_NEXT_FENCE,
        attempts=0,
        refused=0,
        kept=0,
        gone=_HOLDER_DISPLACED,
    )
    return [_CURRENT, _become(({"$or": [_GONE, _LIVE]}, "$$ROOT"), otherwise=marked), *_KEEP]


def _clear() -> Pipeline:
    """Removes what carries the fence, and nothing that came after it."""
    this = _all({"$eq": ["$fence", "$$fence"]}, {"$or": [_IS_ITEM, _LIVE]})
    cleared = _changed(
        **_LET_GO,
        **_NO_VALUE,
        **_OFFERED,
        attempts=0,
        refused=0,
        kept=0,
        gone=_displaced("$owner", "$fence", Gone.CLEARED),
    )
    return [_become((this, cleared)), *_KEEP]


def _advance() -> Pipeline:
    """Moves a watermark forward, never back. Compared by `height`, the value in hex: binaries compare by length."""
    not_less = _all(_DONE, {"$gte": ["$height", "$$height"]})
    higher = _changed(
        **(_LET_GO | {"state": State.DONE.value}), fence=_NEXT_FENCE, value="$$value", height="$$height", queue=None
    )
    return [_CURRENT, _become((not_less, "$$ROOT"), otherwise=higher), *_KEEP]


# -- limits

_IN_WINDOW = {"$filter": {"input": "$hits", "cond": {"$gt": ["$$this.at", {"$subtract": ["$$now", "$$per"]}]}}}


def _hit() -> Pipeline:
    """Counts this owner once, if there is room in the window."""
    room = _all({"$not": [{"$in": ["$$owner", "$hits.owner"]}]}, {"$lt": [{"$size": "$hits"}, "$$limit"]})
    one_more = {"$concatArrays": ["$hits", [{"owner": "$$owner", "at": "$$now"}]]}
    last = {"$ifNull": [{"$max": "$hits.at"}, 0]}
    return [
        {"$set": {"hits": {"$ifNull": [_IN_WINDOW, []]}}},
        {"$set": {"hits": _if(room, one_more, "$hits")}},
        {"$set": {"fence": 0, "forget": {"$max": ["$forget", {"$add": [last, "$$per"]}]}}},
        {"$set": {"purge": _PURGE}},
    ]


def _unhit() -> Pipeline:
    """Gives back what this owner took."""
    return [{"$set": {"hits": {"$ifNull": [_without("$hits", "owner"), []]}}}]


# -- queues


def _push() -> Pipeline:
    """Makes the document a queue item unless it is one. `pusher` tells afterwards whose push it was."""
    item = _changed(
        **_LET_GO,
        value="$$value",
        fence=_NEXT_FENCE,
        attempts=0,
        offered=None,
        opens={"$add": ["$$now", "$$delay"]},
        queue="$$queue",
        pushed="$$now",
        serial="$$serial",
        pusher="$$by",
    )
    return [_CURRENT, _become((_IS_ITEM, "$$ROOT"), otherwise=item), *_KEEP]


def _take() -> Pipeline:
    """Leases the item that the filter found to this owner."""
    until = {"$add": ["$$now", "$$ttl"]}
    leased = _changed(state=State.HELD.value, owner="$$owner", until=until, attempts={"$add": ["$attempts", 1]})
    return [{"$replaceWith": leased}, *_KEEP]


_LAST_TAKEN_BY_ME = _all(_IS_ITEM, _HELD, _MINE)


def _ack() -> Pipeline:
    """Forgets the item if this owner was the last to take it."""
    return [_become((_LAST_TAKEN_BY_ME, _AS_NEW)), *_KEEP]


def _return() -> Pipeline:
    """Puts the item back for anyone, from the delay on."""
    opens = {"$add": ["$$now", "$$delay"]}
    back = _changed(state=State.FREE.value, owner="", until=NEVER, opens=opens)
    return [_become((_LAST_TAKEN_BY_ME, back)), *_KEEP]


ACQUIRE, RENEW, FINISH, RELEASE, MARK = _acquire(), _renew(), _finish(), _release(), _mark()
CLEAR, ADVANCE, HIT, UNHIT = _clear(), _advance(), _hit(), _unhit()
PUSH, TAKE, ACK, RETURN = _push(), _take(), _ack(), _return()
