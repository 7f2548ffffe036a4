"""Marks over HTTP: what was seen before is told apart from what is new, for many keys at once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from ..routes import KIB, READ, WRITE, Answer, Body, Call, Key, Route, Ttl

AT_ONCE = 1000  # keys in one request: some batches of the store, and a body that stays small
CAP = AT_ONCE * KIB  # bytes: so many keys of the longest kind, with room
SomeKeys = Annotated[list[Key], msgspec.Meta(max_length=AT_ONCE)]


class Mark(Body):
    """Keys to be marked for `ttl` seconds. With `extend`, those that are marked already last at least that long as
    well: to record work that was done, whoever was first."""

    keys: SomeKeys
    ttl: Ttl = 86_400.0
    extend: bool = False


class Seen(Body):
    """Keys to be looked up, without marking them."""

    keys: SomeKeys


class Forget(Body):
    """Keys whose marks are to be removed."""

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


async def mark(call: Call[Mark, None]) -> Firsts:
    """Marks each key, and tells which of them were new."""
    once, wanted = call.service.once, call.body
    if wanted.extend:
        return Firsts(first=await asyncio.gather(*(once.mark(key, ttl=wanted.ttl) for key in wanted.keys)))
    return Firsts(first=await once.first_many(wanted.keys, ttl=wanted.ttl))


async def seen(call: Call[Seen, None]) -> SeenKeys:
    """Tells which keys are marked."""
    return SeenKeys(seen=await asyncio.gather(*map(call.service.once.seen, call.body.keys)))


async def forget(call: Call[Forget, None]) -> Forgotten:
    """Removes marks, so that the next caller is first again."""
    return Forgotten(forgotten=await asyncio.gather(*map(call.service.once.forget, call.body.keys)))


ROUTES = [
    Route(
        "POST",
        "/v1/marks",
        WRITE,
        mark,
        "Mark keys, and learn which were new",
        cap=CAP,
        grants=True,
        again="The repeat is told that the keys were seen. Where an answer can be lost, send an Idempotency-Key: then "
        "every copy gets the first one's answer.",
        keyed=True,
    ),
    Route("POST", "/v1/marks/seen", READ, seen, "Learn which keys are marked", cap=CAP, again="Safe: only looks."),
    Route("POST", "/v1/marks/forget", WRITE, forget, "Remove marks", cap=CAP, again="Safe: nothing is left to remove."),
]
