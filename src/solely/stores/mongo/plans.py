"""How each kind of op is performed on the document of its key: pipeline, variables, and the reply that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bson.int64 import Int64

from ...ops import (
    Ack,
    Acquire,
    Advance,
    Amend,
    Clear,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Resume,
    Return,
    Take,
    Unhit,
)
from .. import transitions as t
from ..batches import queue_of
from . import pipelines as p
from . import replies
from .expressions import Pipeline
from .replies import Document

Variables = dict[str, Any]

_ENTRY: dict[str, Any] = {
    "state": 1, "owner": 1, "fence": 1, "until": 1, "delay": 1, "opens": 1, "attempts": 1, "kept": 1, "refused": 1,
    "fingerprint": 1, "info": 1, "gone": 1, "queue": 1, "waiting": {"$size": {"$ifNull": ["$waiters", []]}},
    "now": "$$now",
}  # fmt: skip
ENTRY = _ENTRY | {"value": 1}
_FINISHED = ENTRY | {"notified": 1}
_GONE = {"gone": 1, "notified": 1, "now": "$$now"}
_LIFE = {"fence": 1, "born": 1}
_HITS = {"hits": 1, "now": "$$now"}


class Plan(NamedTuple):
    """All that is to be known of a kind of op. The reply is read from the document as it is after the op."""

    pipeline: Pipeline
    variables: Callable[[Any], Variables]
    reply: Callable[[Any, Document | None, str], Reply]
    fields: dict[str, Any] = _ENTRY  # what the reply needs
    upsert: bool = False
    before: bool = False  # the reply is read from the document as it was before, which only findAndModify can show
    named: bool = False  # leaves its name in the document, because it notifies others or must be known again


def us(seconds: float) -> Int64:
    return Int64(t.us(seconds))


def _acquire(op: Acquire) -> Variables:
    return {
        "owner": op.owner, "ttl": us(op.ttl), "delay": us(op.delay), "client": op.client, "info": op.info,
        "fingerprint": op.fingerprint, "counted": op.counted,
    }  # fmt: skip


def _release(op: Release) -> Variables:
    return {"owner": op.owner, "revoke": op.revoke, "delay": us(op.delay), "keep": us(op.keep)}


def _lease(op: Renew | Take) -> Variables:
    return {"owner": op.owner, "ttl": us(op.ttl)}


def _resume(op: Resume) -> Variables:
    return {"owner": op.owner, "successor": op.successor, "ttl": us(op.ttl), "info": op.info}


def _mark(op: Mark) -> Variables:
    return {"owner": op.owner, "ttl": us(op.ttl), "extend": op.extend}


def _finish(op: Finish) -> Variables:
    return {"owner": op.owner, "value": op.value, "keep": us(op.keep)}


def _hit(op: Hit) -> Variables:
    return {"owner": op.owner, "limit": op.limit, "per": us(op.per)}


def _push(op: Push) -> Variables:
    return {"value": op.payload, "delay": us(op.delay), "queue": queue_of(op)}


def _return(op: Return) -> Variables:
    return {"owner": op.owner, "delay": us(op.delay), "uncounted": op.uncounted}


def _amend(op: Amend) -> Variables:
    return {"value": op.value, "expected": op.expected}


def _ack(op: Ack) -> Variables:
    return {"owner": op.owner, "fence": Int64(op.fence)}


PLANS: dict[type, Plan] = {
    Acquire: Plan(p.ACQUIRE, _acquire, replies.acquired, upsert=True),
    Renew: Plan(p.RENEW, _lease, replies.renewed),
    Resume: Plan(p.RESUME, _resume, replies.resumed, ENTRY),
    Finish: Plan(p.FINISH, _finish, replies.finished, _FINISHED, named=True),
    Release: Plan(p.RELEASE, _release, replies.released, _GONE | _LIFE, named=True),
    Mark: Plan(p.MARK, _mark, replies.marked, upsert=True),
    Clear: Plan(p.CLEAR, lambda op: {"fence": Int64(op.fence)}, replies.cleared, _GONE, named=True),
    Advance: Plan(
        p.ADVANCE, lambda op: {"value": op.value, "height": op.value.hex()}, replies.looked_at, ENTRY, upsert=True
    ),
    Hit: Plan(p.HIT, _hit, replies.hit, _HITS, upsert=True),
    Unhit: Plan(p.UNHIT, lambda op: {"owner": op.owner}, replies.given_back, _HITS, before=True),
    Push: Plan(p.PUSH, _push, replies.pushed, {"pusher": 1}, upsert=True, named=True),
    Take: Plan(p.TAKE, _lease, replies.taken, ENTRY),
    Ack: Plan(p.ACK, _ack, replies.acked, _GONE | _LIFE | {"queue": 1}),
    Return: Plan(p.RETURN, _return, replies.returned, before=True),
    Amend: Plan(p.AMEND, _amend, replies.amended, ENTRY, before=True),
}
READ = Plan([], lambda op: {}, replies.looked_at, ENTRY)


def plan_of(op: Op) -> Plan:
    """The plan, as this very op needs it."""
    kind = type(op)
    if kind is Read:
        return READ
    plan = PLANS[kind]
    if kind is Acquire and op.value:  # type: ignore[union-attr]
        return plan._replace(fields=ENTRY)
    if kind is Release and op.revoke:  # type: ignore[union-attr]
        return plan._replace(upsert=True)  # only then is there something to remember where there is no document
    return plan
