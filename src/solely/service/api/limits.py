"""Limits over HTTP: at most so many hits in any window of time, over all callers."""

from __future__ import annotations

from ..problems import LIMITED
from ..routes import READ, WRITE, Answer, Body, Call, Key, PrefixQuery, Route, Ttl
from .reservations import Limit


class HitLimit(Body):
    """At most `limit` in any `per` seconds."""

    key: Key
    limit: Limit
    per: Ttl


class Admitted(Answer):
    """The hit is allowed; the window has `hits` now."""

    hits: int


class ListedLimit(Answer):
    """A limit that refuses calls: there were `hits` of at most `limit` in the last `per` seconds, and the next one is
    allowed in `left` seconds."""

    key: str
    limit: int
    per: float
    hits: int
    left: float


class ListedLimits(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    limits: list[ListedLimit]
    next: str | None


async def list_limits(call: Call[None, PrefixQuery]) -> ListedLimits:
    """Lists the limits that refuse calls now, in key order."""
    query = call.query
    found = await call.service.once.limits(query.prefix, after=query.after, limit=query.limit)
    return ListedLimits(limits=[ListedLimit(**info._asdict()) for info in found], next=query.following(found))


async def hit(call: Call[HitLimit, None]) -> Admitted:
    """Counts one more hit if it is within the limit; else 429 with Retry-After."""
    wanted = call.body
    allowance = await call.service.once.limit(wanted.key, limit=wanted.limit, per=wanted.per)
    return Admitted(hits=allowance.or_raise().hits)


ROUTES = [
    Route("GET", "/v1/limits", READ, list_limits),
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
