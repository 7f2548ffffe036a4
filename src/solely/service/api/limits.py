"""Limits over HTTP: at most so many hits in any window of time, over all callers."""

from __future__ import annotations

from ..problems import LIMITED
from ..routes import WRITE, Answer, Body, Call, Key, Route, Ttl
from .reservations import Limit


class HitLimit(Body):
    """At most `limit` in any `per` seconds."""

    key: Key
    limit: Limit
    per: Ttl


class Admitted(Answer):
    """The hit is allowed; the window has `hits` now."""

    hits: int


async def hit(call: Call[HitLimit, None]) -> Admitted:
    """Counts one more hit if it is within the limit; else 429 with Retry-After."""
    wanted = call.body
    allowance = await call.service.once.limit(wanted.key, limit=wanted.limit, per=wanted.per)
    return Admitted(hits=allowance.or_raise().hits)


ROUTES = [
    Route(
        "POST",
        "/v1/limits/hit",
        WRITE,
        hit,
        refusals=(LIMITED,),
        grants=True,
        again="Counts again. Where a response can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
]
