"""Events over HTTP: the last ones, and those to come as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec

from ..feed import Told
from ..problems import TOO_MANY
from ..routes import READ, Answer, Body, Call, Route
from ..streams import EventStream, message

EventPrefix = Annotated[str, msgspec.Meta(max_length=2100, description="of the stored key, kind/name")]
EventId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="of the last event that is known already")]
EventCount = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class FollowQuery(Body):
    """Events of stored keys that begin with `prefix`; first those after the id `after`, as far as they are known."""

    prefix: EventPrefix = ""
    after: EventId | None = None


class LastQuery(Body):
    """The last `count` events of stored keys that begin with `prefix`."""

    prefix: EventPrefix = ""
    count: EventCount = 50


class LastEvents(Answer):
    """Newest first, of the worker that answers."""

    events: list[Told]


async def follow(call: Call[None, FollowQuery]) -> EventStream:
    """Tells events as they happen; a reader that comes back with Last-Event-ID misses nothing that is still known."""
    after, last = call.query.after, call.header("last-event-id")
    if after is None and last.isdecimal() and last.isascii():
        after = int(last[:19])
    return EventStream(call, _events(call, after))


async def _events(call: Call[None, FollowQuery], after: int | None) -> AsyncGenerator[bytes, None]:
    yield b": from now on\n\n"
    async for told in call.service.feed.follow(after, call.query.prefix):
        yield message(told.event, told, told.id)


async def last(call: Call[None, LastQuery]) -> LastEvents:
    """The last events."""
    return LastEvents(events=call.service.feed.last(call.query.count, call.query.prefix))


ROUTES = [
    Route(
        "GET",
        "/v1/events",
        READ,
        follow,
        "Follow what happens, as server-sent events",
        media="text/event-stream",
        refusals=(TOO_MANY,),
    ),
    Route("GET", "/v1/events/last", READ, last, "Tell what happened last"),
]
