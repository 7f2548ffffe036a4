"""Pages of watermarks: how far work has progressed, how far it lags behind the clock, and the form to rewind one."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

import msgspec
from starlette.responses import Response

from ...errors import InvalidInput
from ...watermarks.flow import WatermarkInfo
from ..api.watermarks import ListedWatermark, Number, Time, Value
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Body, Call, Key, Reason, Route
from .entries import FRESH, ListQuery
from .rendering import ADMIN_PAGE, READ_PAGE, Page, View, acted, show

LIST = Page("Watermarks", "solely:watermarks.html", "/watermarks")
REWIND = Page("Rewind watermark", "solely:rewind.html", "/watermarks")


class RewindView(View):
    """The watermark to rewind."""

    key: Key


class RewindForm(Body):
    """`to` is the new value as text: an integer, or a time with a zone."""

    key: Key
    to: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    reason: Reason


class WatermarkRow(ListedWatermark, kw_only=True):
    """A watermark; if it is a time, `stands` is that time in seconds, and `lag` how far it is behind the clock."""

    stands: float | None
    lag: float | None


class WatermarkRows(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    watermarks: list[WatermarkRow]
    next: str | None


def _row(known: WatermarkInfo) -> WatermarkRow:
    value = known.value
    stands = value.timestamp() if isinstance(value, datetime) else None
    lag = None if stands is None else max(0.0, time.time() - stands)
    return WatermarkRow(**known._asdict(), stands=stands, lag=lag)


async def watermarks(call: Call[None, ListQuery]) -> object:
    """The list of watermarks."""
    query = call.query
    what = ("watermarks", query.prefix, query.after, query.limit)
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: _load(call)))


async def _load(call: Call[None, ListQuery]) -> WatermarkRows:
    query, service = call.query, call.service
    found = await service.once.watermarks(query.prefix, after=query.after, limit=query.limit)
    return WatermarkRows(
        watermarks=[_row(info) for info in found], next=found[-1].key if len(found) == query.limit else None
    )


async def rewind_form(call: Call[None, RewindView]) -> object:
    """The form that asks for the new value and the reason."""

    async def load() -> WatermarkRow:
        key = call.query.key
        value = await call.service.once.watermark(key).read()
        if value is None:
            raise Problem(UNKNOWN, "There is no such watermark.")
        return _row(WatermarkInfo(key, value, fence=0))

    return await show(call, REWIND, load)


async def rewind(call: Call[RewindForm, None]) -> Response:
    """Rewinds the watermark."""
    wanted = call.body

    async def act() -> str:
        await call.service.once.watermark(wanted.key).rewind(_value(wanted.to), reason=wanted.reason)
        return "/watermarks?note=rewound"

    return await acted(call, REWIND, act)


def _value(text: str) -> Value:
    """The text as a value; else InvalidInput."""
    try:
        if text.removeprefix("-").isdecimal():
            return msgspec.convert(int(text), Number)
        return msgspec.convert(text.strip(), Time)
    except msgspec.ValidationError:
        wanted = "give an integer, or a time such as 2026-03-01T12:00:00Z"
        raise InvalidInput(f"{text!r} is not a watermark: {wanted}") from None


ROUTES = [
    Route("GET", "/watermarks", READ_PAGE, watermarks, hidden=True),
    Route("GET", "/watermarks/rewind", ADMIN_PAGE, rewind_form, hidden=True),
    Route("POST", "/watermarks/rewind", ADMIN_PAGE, rewind, form=True, hidden=True),
]
