"""Marks over HTTP: which keys are new and which were seen before, for many keys at once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from ..routes import KIB, READ, WRITE, Answer, Body, Call, Key, PrefixQuery, Route, Ttl

AT_ONCE = 1000  # keys in one request: some batches of the store, and a body that stays small
CAP = AT_ONCE * KIB  # bytes: that many of the longest keys, with room to spare
SomeKeys = Annotated[list[Key], msgspec.Meta(max_length=AT_ONCE)]


class MarkBody(Body):
    """Marks keys for `ttl` seconds. With `extend`, existing marks are extended to at least that long, too: to record
    work that was done, whoever was first."""

    keys: SomeKeys
    ttl: Ttl = 86_400.0
    extend: bool = False


class SeenBody(Body):
    """Looks keys up without marking them."""

    keys: SomeKeys


class ForgetBody(Body):
    """Removes the marks of keys."""

    keys: SomeKeys


class Firsts(Answer):
    """In the order of the keys given: true for exactly one caller per key and ttl."""

    first: list[bool]


class SeenKeys(Answer):
    """In the order of the keys given."""

    seen: list[bool]


class Forgotten(Answer):
    """In the order of the keys given: false if there was no mark."""

    forgotten: list[bool]


async def mark(call: Call[MarkBody, None]) -> Firsts:
    """Marks keys, and returns which of them were new."""
    once, wanted = call.service.once, call.body
    if wanted.extend:
        return Firsts(first=await asyncio.gather(*(once.mark(key, ttl=wanted.ttl) for key in wanted.keys)))
    return Firsts(first=await once.first_many(wanted.keys, ttl=wanted.ttl))


async def seen(call: Call[SeenBody, None]) -> SeenKeys:
    """Returns which keys are marked."""
    return SeenKeys(seen=await asyncio.gather(*map(call.service.once.seen, call.body.keys)))


async def forget(call: Call[ForgetBody, None]) -> Forgotten:
    """Removes marks, so that the next caller is first again."""
    return Forgotten(forgotten=await asyncio.gather(*map(call.service.once.forget, call.body.keys)))


class ListedMark(Answer):
    """A mark: the key counts as seen for `left` more seconds."""

    key: str
    left: float
    fence: int


class ListedMarks(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    marks: list[ListedMark]
    next: str | None


async def list_marks(call: Call[None, PrefixQuery]) -> ListedMarks:
    """Lists marks in key order."""
    query = call.query
    found = await call.service.once.marks(query.prefix, after=query.after, limit=query.limit)
    return ListedMarks(marks=[ListedMark(**info._asdict()) for info in found], next=query.following(found))


ROUTES = [
    Route("GET", "/v1/marks", READ, list_marks),
    Route(
        "POST",
        "/v1/marks",
        WRITE,
        mark,
        cap=CAP,
        grants=True,
        again="The repeat reports the keys as seen. Where a response can be lost, send an Idempotency-Key: then every "
        "copy gets the first response.",
        keyed=True,
    ),
    Route("POST", "/v1/marks/seen", READ, seen, cap=CAP, again="Safe: it changes nothing."),
    Route("POST", "/v1/marks/forget", WRITE, forget, cap=CAP, again="Safe: nothing is left to remove."),
]
