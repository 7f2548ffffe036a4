"""Events over HTTP: the last ones, and new ones as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec

from ..feed import EventRecord
from ..problems import TOO_MANY
from ..routes import READ, Answer, Body, Call, Route
from ..streams import EventStream, message

EventPrefix = Annotated[str, msgspec.Meta(max_length=2100, description="of the stored key, kind/name")]
EventId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="of the last event that the reader has")]
EventCount = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class FollowQuery(Body):
    """Events of stored keys that begin with `prefix`; first those after the id `after`, as far as they are kept."""

    prefix: EventPrefix = ""
    after: EventId | None = None


class LastQuery(Body):
    """The last `count` events of stored keys that begin with `prefix`."""

    prefix: EventPrefix = ""
    count: EventCount = 50


class LastEvents(Answer):
    """Newest first, of the worker that responds."""

    events: list[EventRecord]


async def follow(call: Call[None, FollowQuery]) -> EventStream:
    """Sends events as they happen; a reader that reconnects with Last-Event-ID misses nothing that is still kept."""
    after, last = call.query.after, call.header("last-event-id")
    if after is None and last.isdecimal() and last.isascii():
        after = int(last[:19])
    return EventStream(call, _events(call, after))


async def _events(call: Call[None, FollowQuery], after: int | None) -> AsyncGenerator[bytes, None]:
    yield b": from now on\n\n"
    async for record in call.service.feed.follow(after, call.query.prefix):
        yield message(record.event, record, record.id)


async def last(call: Call[None, LastQuery]) -> LastEvents:
    """Lists the last events."""
    return LastEvents(events=call.service.feed.last(call.query.count, call.query.prefix))


ROUTES = [
    Route("GET", "/v1/events", READ, follow, media="text/event-stream", refusals=(TOO_MANY,)),
    Route("GET", "/v1/events/last", READ, last),
]
