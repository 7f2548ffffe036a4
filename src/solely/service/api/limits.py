"""Limits over HTTP: so many in any window of time, and not one more, across all who ask."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...ops import MAX_LIMIT
from ..problems import LIMITED
from ..routes import WRITE, Answer, Body, Call, Key, Route, Ttl

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]


class HitLimit(Body):
    """At most `limit` in any `per` seconds."""

    key: Key
    limit: Limit
    per: Ttl


class Admitted(Answer):
    """Allowed; `hits` are in the window now."""

    hits: int


async def hit(call: Call[HitLimit, None]) -> Admitted:
    """Counts one more, if that is within the limit."""
    wanted = call.body
    told = await call.service.once.limit(wanted.key, limit=wanted.limit, per=wanted.per)
    return Admitted(hits=told.or_raise().hits)


ROUTES = [
    Route(
        "POST",
        "/v1/limits/hit",
        WRITE,
        hit,
        "Count one more if it is within the limit; else 429, and when to come again",
        refusals=(LIMITED,),
        grants=True,
        again="Counts again. Where an answer can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
]
