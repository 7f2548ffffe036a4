"""The page of events: the last ones of this worker, of a kind or of some keys, live until it is paused."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...events import Event
from ..feed import KEPT, EventRecord, word
from ..routes import Answer, Call, Route
from .lists import Text, Word
from .rendering import READ_PAGE, Page, View, show
from .sentences import EventLine, event_lines

PAGE = Page("Events", "solely:events.html", "/events")
LINES = 100  # that are shown
# A set: each of these classes is there twice, since a dataclass with slots replaces one without, which stays.
NAMES = sorted({word(each) for each in Event.__subclasses__()})


class EventsView(View):
    """Events with this name, of this kind of key, whose key contains `key`."""

    event: Word = ""
    kind: Word = ""
    key: Text = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=KEPT)] = LINES


class EventsPage(Answer):
    """The last events, newest first, where many of the same sort are one line. `read` events were searched, of which
    `matching` are asked for. `kinds` are the kinds of keys and `names` the events that can be chosen."""

    lines: list[EventLine]
    read: int
    matching: int
    kinds: list[str]
    names: list[str]


async def events(call: Call[None, EventsView]) -> object:
    """The page of events."""

    async def load() -> EventsPage:
        return _page(call.service.feed.last(KEPT), call.query)

    return await show(call, PAGE, load)


def _page(last: list[EventRecord], query: EventsView) -> EventsPage:
    wanted = query.key.casefold()
    found = [
        each
        for each in last
        if query.event in ("", each.event) and query.kind in ("", each.kind) and wanted in each.key.casefold()
    ]
    kinds = {each.kind for each in last} | ({query.kind} - {""})
    lines = event_lines(found)[: query.limit]
    return EventsPage(
        lines=lines,
        read=len(last),
        matching=len(found),
        kinds=sorted(kinds),
        names=NAMES,
    )


ROUTES = [Route("GET", "/events", READ_PAGE, events, hidden=True)]
