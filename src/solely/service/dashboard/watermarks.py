"""Watermarks: how far the work has come, how far behind the clock that is, and its way back."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

import msgspec
from starlette.responses import Response

from ...errors import InvalidInput
from ..api.watermarks import KIND, ListedWatermark, Number, Time, Value, listed_as
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Body, Call, Key, Reason, Route
from .rendering import ADMIN_PAGE, READ_PAGE, Page, View, acted, show
from .rows import ListQuery

LIST = Page("Watermarks", "solely:watermarks.html", "/watermarks")
REWIND = Page("Rewind watermark", "solely:rewind.html", "/watermarks")
FRESH = 0.3  # seconds that a list is shared: less than the pause between two looks of a live page


class RewindQuery(View):
    """Which one."""

    key: Key


class Rewind(Body):
    """To where, as text: a whole number, or a time with a zone."""

    key: Key
    to: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    reason: Reason


class Mark(Answer):
    """A watermark; if it is a time, `stands` is that in seconds, and its lag is what the clock is ahead of it. One that
    cannot be read has no value, and `unreadable` says why."""

    key: str
    value: Value | None
    stands: float | None
    lag: float | None
    unreadable: str


class Marks(Answer):
    """In key order. If `next` is not null there may be more: ask for those after it."""

    watermarks: list[Mark]
    next: str | None


def _mark(known: ListedWatermark) -> Mark:
    value = known.value
    stands = value.timestamp() if isinstance(value, datetime) else None
    lag = None if stands is None else max(0.0, time.time() - stands)
    return Mark(key=known.key, value=value, stands=stands, lag=lag, unreadable=known.unreadable)


async def watermarks(call: Call[None, ListQuery]) -> object:
    """The list."""
    asked = call.query
    what = ("watermarks", asked.prefix, asked.after, asked.limit)
    return await show(call, LIST, lambda: call.service.desk.looks.share(what, FRESH, lambda: _look(call)))


async def _look(call: Call[None, ListQuery]) -> Marks:
    asked, service = call.query, call.service
    found = await service.store.scan(KIND + asked.prefix, KIND + asked.after if asked.after else "", asked.limit)
    marks = [_mark(listed_as(entry.name, entry.value)) for entry in found if entry.value is not None]
    return Marks(watermarks=marks, next=found[-1].name if len(found) == asked.limit else None)


async def rewinding(call: Call[None, RewindQuery]) -> object:
    """Asks to where, and why."""

    async def look() -> Mark:
        value = await call.service.once.watermark(call.query.key).read()
        if value is None:
            raise Problem(UNKNOWN, "There is no such watermark.")
        return _mark(ListedWatermark(key=call.query.key, value=value))

    return await show(call, REWIND, look)


async def rewind(call: Call[Rewind, None]) -> Response:
    """Takes it back."""
    wanted = call.body

    async def act() -> str:
        await call.service.once.watermark(wanted.key).rewind(_value(wanted.to), reason=wanted.reason)
        return "/watermarks?note=rewound"

    return await acted(call, REWIND, act)


def _value(text: str) -> Value:
    """The text as a value; InvalidInput if it is none."""
    try:
        if text.removeprefix("-").isdecimal():
            return msgspec.convert(int(text), Number)
        return msgspec.convert(text.strip(), Time)
    except msgspec.ValidationError:
        wanted = "give a whole number, or a time such as 2026-03-01T12:00:00Z"
        raise InvalidInput(f"{text!r} is no watermark: {wanted}") from None


ROUTES = [
    Route("GET", "/watermarks", READ_PAGE, watermarks, LIST.title, hidden=True),
    Route("GET", "/watermarks/rewind", ADMIN_PAGE, rewinding, REWIND.title, hidden=True),
    Route("POST", "/watermarks/rewind", ADMIN_PAGE, rewind, REWIND.title, form=True, hidden=True),
]
