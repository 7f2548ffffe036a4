"""Live pages: a page as a stream of its changes, and the changes of several pages in one stream. A browser shares that
one between its tabs, since it opens at most six connections of HTTP/1.1 to a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import structlog

from ...errors import SolelyError
from ..problems import NOT_FOUND, TOO_MANY, Problem
from ..routes import READ, Body, Call, Route
from ..streams import EventStream, merged, message

log = structlog.get_logger("solely.http")

MOST = 20  # pages of one stream: more windows than people look at
LONGEST = 8192  # characters of an address, as many as proxies accept
AGAIN = 5.0  # seconds until a page that was refused is tried again: its user may have closed other tabs


class Update(NamedTuple):
    """A change of a page: its region as HTML; or `away`, while that cannot be loaded."""

    event: Literal["region", "away"]
    html: str = ""


class LiveView(EventStream):
    """A page as a stream of its changes. Each message has the whole region."""

    def __init__(self, call: Call[Any, Any], updates: AsyncGenerator[Update, None]) -> None:
        super().__init__(call, _messages(updates), compressed=True)
        self.updates = updates

    async def aclose(self) -> None:
        """Ends it, also if it was never sent."""
        await super().aclose()
        await self.updates.aclose()


async def _messages(updates: AsyncGenerator[Update, None]) -> AsyncGenerator[bytes, None]:
    async for event, html in updates:
        facts: dict[str, object] = {"now": time.time()}
        yield message(event, {**facts, "html": html} if event == "region" else facts)


# -- several pages in one stream


class LiveQuery(Body):
    """The addresses of the pages."""

    page: Annotated[list[Annotated[str, msgspec.Meta(max_length=LONGEST)]], msgspec.Meta(min_length=1, max_length=MOST)]


async def live(call: Call[None, LiveQuery]) -> EventStream:
    """Sends the changes of several pages, which messages call by their place in the query. `region` has the lines of a
    page, as new lines and ranges of those before; `away` says that it cannot be loaded, `refused` that there is no such
    page for this caller, or that too many are followed."""
    pages = [_followed(call, number, address) for number, address in enumerate(call.query.page)]
    return EventStream(call, merged(pages), compressed=True)


async def _followed(call: Call[None, LiveQuery], number: int, address: str) -> AsyncGenerator[bytes, None]:
    """The messages of one page. Whatever goes wrong with it ends no other."""
    while True:
        try:
            async with aclosing(await _view(call, address)) as view:
                shown: list[str] = []
                async for event, html in view.updates:
                    facts: dict[str, object] = {"page": number, "now": time.time()}
                    if event == "region":
                        before, shown = shown, html.split("\n")
                        facts["lines"] = changed_lines(before, shown)
                    yield message(event, facts)
        except (Problem, SolelyError):
            pass  # the reader is told
        except Exception:
            log.exception("failed", page=address.partition("?")[0])
        yield message("refused", {"page": number, "now": time.time()})
        await asyncio.sleep(AGAIN)


async def _view(call: Call[None, LiveQuery], address: str) -> LiveView:
    view = await call.page(address)
    if not isinstance(view, LiveView):
        raise Problem(NOT_FOUND, "this page is not live")
    return view


def changed_lines(before: Sequence[str], after: Sequence[str]) -> list[list[int] | str]:
    """How to make the lines `after` of those `before`: each part is a new line, or a range [first, end) of old ones."""
    places = {line: place for place, line in enumerate(before)}
    parts: list[list[int] | str] = []
    last: list[int] = []  # the range before this line, if there is one
    for line in after:
        if last and last[1] < len(before) and before[last[1]] == line:
            last[1] += 1
            continue
        place = places.get(line)
        last = [] if place is None else [place, place + 1]
        parts.append(last or line)
    return parts


ROUTES = [Route("GET", "/live", READ, live, media="text/event-stream", refusals=(TOO_MANY,), hidden=True)]
