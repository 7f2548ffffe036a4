"""The history over HTTP: what happened to a key, or to all, newest first."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from ...data import Position
from ..history.records import HistoryEvent
from ..history.timeline import TimelineEntry, timeline
from ..problems import DATA_AWAY
from ..routes import READ, Answer, Body, Call, Prefix, Route

EventKind = Annotated[
    str, msgspec.Meta(max_length=16, description="lock, claim, mark, reservation, item, …; empty: all")
]
HistoryCount = Annotated[int, msgspec.Meta(ge=1, le=1000)]
After = Annotated[str, msgspec.Meta(max_length=100, description="the `next` of the page before")]


class HistoryQuery(Body):
    """The events of `key`, of one `kind` or of all; of all keys without a `key`."""

    kind: EventKind = ""
    key: Prefix = ""
    after: After = ""
    limit: HistoryCount = 100


class HistoryPage(Answer):
    """Newest first, of all workers; `timeline` has the events of a key as sentences, with repetitions as one. If `next`
    is not null there may be more, after it. `keep` (seconds) and `most` (events) are the bounds; `dropped` counts what
    this service did not keep for lack of room since it started; `problem` says why nothing is kept at the moment."""

    events: list[HistoryEvent]
    timeline: list[TimelineEntry]
    next: str | None
    keep: float
    most: int
    dropped: int
    problem: str


async def history(call: Call[None, HistoryQuery]) -> HistoryPage:
    """Lists what happened to a key through this service."""
    query, kept = call.query, call.service.history
    found = await kept.events(query.kind, query.key, query.after, query.limit)
    following = str(Position(found[-1].at, found[-1].id)) if len(found) == query.limit else None
    return HistoryPage(
        events=found,
        timeline=timeline(found, time.time()) if query.key else [],
        next=following,
        keep=kept.keep,
        most=kept.most,
        dropped=kept.dropped(),
        problem=kept.problem,
    )


ROUTES = [Route("GET", "/v1/history", READ, history, refusals=(DATA_AWAY,))]
