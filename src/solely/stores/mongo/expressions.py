"""What update pipelines are made of: what a document is now, parts of a change, the first and the last stages.

An op that changes nothing leaves the document byte for byte as it was, and then the server writes nothing. Beside the
fields of a StoredRecord a document has: `born`, when it was made; `forget`, from when on it is treated as absent;
`purge`, when the TTL index may remove it; `notified`, which op notified which waiting clients; `seen_by`, the last that
saw a mark in a transaction; a watermark's `height`; and, if it is a queue item, its `queue`, `available` (since when),
`pushed` and `serial` (its turn), and `pusher` (which op pushed it).
"""

from __future__ import annotations

from typing import Any

from ...model import Gone, State
from ...rules import MAX_GONE, MAX_WAITERS, OFFER, REMEMBER
from ..transitions import NEVER, US

Expression = Any
Pipeline = list[dict[str, Any]]

FOREVER = 1 << 62  # as `forget`: never
REMEMBERED_US = int(REMEMBER * US)
_OFFER = int(OFFER * US)

# The document of a key stays for an hour after it answers nothing more, and at least until the clock has passed its
# last fence, so that the next fence, which then comes from the clock alone, is greater. Another primary's clock may be
# behind by less than that. In whole hours: an acquire and its release then seldom move the key within the TTL index.
_HOUR_MS = 3_600_000

NOW = {"$multiply": [{"$toLong": "$$NOW"}, 1_000]}  # µs on the server's clock, which ticks in ms


def either(condition: Expression, yes: Expression, no: Expression) -> Expression:
    return {"$cond": [condition, yes, no]}


def every(*conditions: Expression) -> Expression:
    return {"$and": list(conditions)}


def changed(**fields: Expression) -> Expression:
    return {"$mergeObjects": ["$$ROOT", fields]}


def become(*cases: tuple[Expression, Expression], otherwise: Expression = "$$ROOT") -> dict[str, Any]:
    """The stage that makes the document what the first true case says."""
    branches = [{"case": condition, "then": document} for condition, document in cases]
    return {"$replaceWith": {"$switch": {"branches": branches, "default": otherwise}}}


def without(waiters: Expression, field: str) -> Expression:
    """The waiters that do not carry this op's client or owner."""
    return {"$filter": {"input": waiters, "cond": {"$ne": [f"$$this.{field}", f"$${field}"]}}}


# -- what a document is now

HELD = {"$eq": ["$state", State.HELD.value]}
DONE = {"$eq": ["$state", State.DONE.value]}
FREE = {"$eq": ["$state", State.FREE.value]}
MINE = {"$eq": ["$owner", "$$owner"]}
BEFORE_END = {"$lt": ["$$now", "$until"]}
LIVE = {"$or": [every(HELD, BEFORE_END), every(DONE, {"$or": [{"$eq": ["$until", NEVER]}, BEFORE_END]})]}
EXPIRED_UNDER_ME = every(HELD, MINE, {"$gte": ["$$now", "$until"]})
IS_ITEM = {"$gt": ["$queue", ""]}  # absent and null come before any text
_HAS_WAITERS = {"$ne": ["$waiters", []]}

_REMEMBERED = {"$gt": ["$$this.until", "$$now"]}


def among_the_gone(owner: Expression) -> Expression:
    """True if this owner is known to have lost the key."""
    gone = every({"$eq": ["$$this.owner", owner]}, _REMEMBERED)
    return {"$anyElementTrue": {"$map": {"input": "$gone", "in": gone}}}


GONE = {"$or": [among_the_gone("$$owner"), EXPIRED_UNDER_ME]}

# -- parts of a change

NEXT_FENCE = {"$max": [{"$add": ["$fence", 1]}, "$$now"]}
BLANK: dict[str, Any] = {
    "state": State.FREE.value, "owner": "", "until": NEVER, "delay": 0, "opens": 0, "offered": None, "attempts": 0,
    "kept": 0, "refused": 0, "fingerprint": "", "info": "", "value": None, "waiters": [], "gone": [], "notified": "",
}  # fmt: skip
# When this document was made: no smaller fence was ever granted by it. Unknown (0) of one that an older version made.
BORN = either({"$eq": [{"$type": "$fence"}, "missing"]}, "$$now", {"$ifNull": ["$born", 0]})


def _anew(**kept: Expression) -> Expression:
    """A blank document of this key, but for its fence and what is kept."""
    own = {"_id": "$_id", "fence": {"$ifNull": ["$fence", 0]}, "born": BORN} | kept
    return {"$mergeObjects": [own, {"$literal": {name: value for name, value in BLANK.items() if name not in kept}}]}


AS_NEW = _anew()
NO_ITEM = _anew(gone="$gone")  # of an item: nothing is left but the memory of who lost it
SET_FREE: dict[str, Expression] = {
    "state": State.FREE.value, "owner": "", "until": NEVER, "delay": 0, "fingerprint": "", "info": "",
}  # fmt: skip
NO_VALUE: dict[str, Expression] = {"value": None, "queue": None}
NO_OFFER: dict[str, Expression] = {"offered": None, "opens": 0}

# Offers a key that was just released to the first waiter, and notifies only that one.
OFFERED: dict[str, Expression] = {
    "offered": {"$ifNull": [{"$first": "$waiters"}, None]},
    "opens": either(_HAS_WAITERS, {"$add": ["$$now", _OFFER]}, 0),
    "waiters": {"$slice": ["$waiters", 1, MAX_WAITERS]},
    "notified": either(_HAS_WAITERS, {"$concat": ["$$by", " ", {"$first": "$waiters.client"}]}, "$notified"),
}
ALL_NOTIFIED: dict[str, Expression] = {
    "waiters": [],
    "notified": either(
        _HAS_WAITERS,
        {
            "$reduce": {
                "input": "$waiters",
                "initialValue": "$$by",
                "in": {"$concat": ["$$value", " ", "$$this.client"]},
            }
        },
        "$notified",
    ),
}


def displaced(owner: Expression, fence: Expression, how: Gone, ends: Expression = "$$now") -> Expression:
    """The gone, and one more, which relied on the key until `ends` at the latest."""
    another = {"$or": [{"$ne": ["$$this.owner", owner]}, {"$eq": [owner, ""]}]}
    kept = {"$filter": {"input": "$gone", "cond": every(_REMEMBERED, another)}}
    one = {"owner": owner, "fence": fence, "how": how.value, "until": {"$add": [ends, REMEMBERED_US]}}
    return {"$slice": [{"$concatArrays": [kept, [one]]}, -MAX_GONE]}


HOLDER_DISPLACED = either(HELD, displaced("$owner", "$fence", Gone.EXPIRED), "$gone")

# -- the first and the last stages

# A document that answers nothing more is treated as absent, but for its fence; an absent one has no `forget`, and what
# is absent comes before every number.
CURRENT = become(({"$lte": ["$forget", "$$now"]}, AS_NEW))
_FORGET = {
    "$max": [
        {
            "$switch": {
                "branches": [
                    {"case": {"$or": [IS_ITEM, every(DONE, {"$eq": ["$until", NEVER]})]}, "then": FOREVER},
                    {"case": HELD, "then": {"$add": ["$until", "$delay", REMEMBERED_US]}},
                    {"case": DONE, "then": "$until"},
                ],
                "default": {"$add": [{"$max": ["$opens", "$kept"]}, either(_HAS_WAITERS, REMEMBERED_US, 0)]},
            }
        },
        {"$max": "$gone.until"},
    ]
}
_HOURS = {"$add": [1, {"$ceil": {"$divide": [{"$max": ["$forget", "$fence"]}, _HOUR_MS * 1_000]}}]}
PURGE = either(
    every("$$sweeps", {"$lt": ["$forget", FOREVER]}), {"$toDate": {"$multiply": [_HOURS, _HOUR_MS]}}, "$$REMOVE"
)
KEEP: Pipeline = [
    {"$set": {"forget": _FORGET, "available": either(IS_ITEM, either(HELD, "$until", "$opens"), "$$REMOVE")}},
    {"$set": {"purge": PURGE}},
]
