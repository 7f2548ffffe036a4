"""Locks, claims and reservations: who has what, since when, for how long; and its end by an admin, for a reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.responses import Response

from ...model import State
from ...ops import Clear, Read
from ..api.entries import Fence
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Body, Call, Key, Reason, Route
from .rendering import ADMIN_PAGE, READ_PAGE, Page, View, acted, show
from .rows import ListQuery, Row, performed, row, rows


class Side(NamedTuple):
    """A kind of entry, and how an admin ends one: the verb, and what that means for others."""

    kind: str
    page: Page
    verb: str
    means: str


LOCKS = Side(
    "lock",
    Page("Locks", "solely:locks.html", "/locks"),
    "release",
    "Its holder is told at its next renewal and must stop; until it hears of it, only the fence keeps its writes out. "
    "Whoever waits gets the lock next.",
)
CLAIMS = Side(
    "claim",
    Page("Claims", "solely:claims.html", "/claims"),
    "expire",
    "The next caller runs the work again. If its result was published, it is forgotten; if it is still running, its "
    "result is not accepted once another has taken the claim.",
)
RESERVATIONS = Side(
    "reservation",
    Page("Reservations", "solely:reservations.html", "/reservations"),
    "expire",
    "The next caller may send at once: the hold or the quiet window is over.",
)
MARKS = Side(
    "mark",
    Page("Dedup", "solely:dedup.html", "/dedup"),
    "forget",
    "The next caller is first again, and does the work once more.",
)


class EndQuery(View):
    """An entry as it was seen."""

    key: Key
    fence: Fence


class End(Body):
    """An entry as it was seen, and why it is to end."""

    key: Key
    fence: Fence
    reason: Reason


class Ending(Answer):
    """What is about to end."""

    row: Row
    verb: str
    means: str
    path: str


def listing(side: Side) -> Route:
    """The list of a kind."""

    async def look(call: Call[None, ListQuery]) -> object:
        return await show(call, side.page, lambda: rows(call, side.kind))

    return Route("GET", side.page.place, READ_PAGE, look, side.page.title, hidden=True)


def ending(side: Side) -> list[Route]:
    """The page on which an admin says why, and the act."""
    path = f"{side.page.place}/{side.verb}"
    page = Page(f"{side.verb.capitalize()} {side.kind}", "solely:end.html", side.page.place)

    async def confirm(call: Call[None, EndQuery]) -> object:
        async def look() -> Ending:
            entry: Any = await performed(call, Read(f"{side.kind}/{call.query.key}"))
            known = row(call, entry)
            if known.state is State.FREE or known.fence != call.query.fence:
                raise Problem(UNKNOWN, "It is no longer there, or another has it now: look at the list again.")
            return Ending(row=known, verb=side.verb, means=side.means, path=path)

        return await show(call, page, look)

    async def end(call: Call[End, None]) -> Response:
        wanted = call.body

        async def act() -> str:
            gone = await performed(call, Clear(f"{side.kind}/{wanted.key}", wanted.fence, wanted.reason))
            return f"{side.page.place}?note={'ended' if gone is True else 'moved-on'}"

        return await acted(call, page, act)

    return [
        Route("GET", path, ADMIN_PAGE, confirm, page.title, hidden=True),
        Route("POST", path, ADMIN_PAGE, end, page.title, form=True, hidden=True),
    ]


ROUTES = [route for side in (LOCKS, CLAIMS, RESERVATIONS) for route in (listing(side), *ending(side))] + ending(MARKS)
