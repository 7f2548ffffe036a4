"""The common case, cheaply: acquiring a key that nobody uses, and releasing it when nobody waits.

MongoDB spends more time on reading a pipeline than on performing it, so these two say only what this case needs. Their
filters match nothing else: then nothing is performed, and the op goes the long way, by its pipeline.
"""

from __future__ import annotations

from typing import Any

from ...model import HELD, Entry, State
from ...ops import Acquire, Release, Reply
from ..transitions import NEVER, US, us
from .expressions import BLANK, BORN, REMEMBERED_US

Command = dict[str, Any]

MAX_CONTENDED = 10_000  # keys remembered: a megabyte; when there are more, all are forgotten and learned again
_MARGIN = 2 * 3_600_000  # ms: two hours and down to the whole hour are at least the one hour of expressions.py
_FREE = {"state": State.FREE.value, "owner": "", "info": "", "fingerprint": "", "until": NEVER, "forget": 0}


def acquire(op: Acquire, collection: str, let: dict[str, Any]) -> Command:
    """Makes the document, or takes over one that answers nothing more (`forget` is 0). Any other is a duplicate key."""
    lasts = us(op.ttl) + us(op.delay) + REMEMBERED_US
    held: dict[str, Any] = {
        "_id": "$_id",
        "fence": {"$max": [{"$add": [{"$ifNull": ["$fence", 0]}, 1]}, "$$now"]},
        "born": BORN,
        "until": {"$add": ["$$now", us(op.ttl)]},
        "forget": {"$add": ["$$now", lasts]},
    }
    if let["sweeps"]:
        known = {"$max": ["$$NOW", {"$toDate": {"$divide": ["$fence", 1_000]}}]}
        held["purge"] = {"$dateTrunc": {"date": {"$add": [known, lasts // 1_000 + _MARGIN]}, "unit": "hour"}}
    as_asked = BLANK | {
        "state": State.HELD.value, "owner": op.owner, "delay": us(op.delay), "attempts": 1, "info": op.info,
        "fingerprint": op.fingerprint,
    }  # fmt: skip
    del as_asked["until"]
    return {
        "findAndModify": collection,
        "query": {"_id": op.key, "forget": 0},
        "update": [{"$replaceWith": {"$mergeObjects": [held, {"$literal": as_asked}]}}],
        "let": {"now": let["now"]},
        "upsert": True,
        "new": True,
        "fields": {"fence": 1},
    }


def acquired(op: Acquire, result: dict[str, Any]) -> Entry:
    """The entry that was granted."""
    fence = int(result["value"]["fence"])
    return Entry(op.key, HELD, fence, us(op.ttl) / US, op.owner, attempts=1, fingerprint=op.fingerprint, info=op.info)


def release(op: Release, collection: str, let: dict[str, Any]) -> Command:
    """Frees the key if it is this owner's, in time, and nobody waits or must be remembered."""
    mine: dict[str, Any] = {
        "_id": op.key, "state": State.HELD.value, "owner": op.owner, "waiters": [], "gone": [], "queue": None,
        "$expr": {"$lt": ["$$now", "$until"]},
    }  # fmt: skip
    if op.fence:
        mine["fence"] = op.fence
    return {"update": collection, "updates": [{"q": mine, "u": {"$set": _FREE}}], "let": {"now": let["now"]}}


class ContendedKeys:
    """Keys for which the long way was needed of late. Only a guess: it saves a try, and decides nothing."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def learn(self, key: str, reply: Reply) -> None:
        """Learns from the reply to an op on this key: whoever acquired it while nobody waits may release it quickly."""
        if isinstance(reply, Entry) and reply.owner and not reply.waiters:
            self._keys.discard(key)
            return
        if len(self._keys) >= MAX_CONTENDED:
            self._keys.clear()
        self._keys.add(key)
