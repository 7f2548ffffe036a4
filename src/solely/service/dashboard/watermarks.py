"""The page of watermarks: how far work has progressed, how far it lags behind the clock, and the act to rewind one."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import msgspec

from ...errors import InvalidInput
from ...watermarks.flow import WatermarkInfo
from ..acts import Act, Affected, Field, act_routes
from ..api.watermarks import ListedWatermark, RewindWatermark, Value, rewind
from ..problems import BUSY, RESERVED_NAME, UNREADABLE
from ..routes import Answer, Call, Route
from .entries import FRESH
from .lists import ListPart, ListQuery, Orders, chosen, select
from .rendering import READ_PAGE, Page, show

LIST = Page("Watermarks", "solely:watermarks.html", "/watermarks")
REWIND = Act(
    name="watermarks.rewind",
    title="Rewind watermark",
    verb="rewind",
    summary="Rewind a watermark",
    nothing="There is no such watermark.",
    again="Rewinds it again, if it was advanced in the meantime.",
    api="/v1/watermarks/rewind",
    page="/watermarks/rewind",
    means="Work between the two values is done again by whoever continues from the watermark.",
    fields=(Field("key"), Field("to", "To", "an integer, or a time with a zone", required=True)),
)


class WatermarkRow(ListedWatermark, kw_only=True):
    """A watermark; if it is a time, `stands` is that time in seconds, and `lag` how far it is behind the clock."""

    stands: float | None
    lag: float | None


class WatermarkRows(Answer):
    """In the order of keys there may be more after `next`; in any other order, `total` watermarks were found, among the
    first thousand if it is `cut`. `hidden` counts keys of applications that were left out."""

    watermarks: list[WatermarkRow]
    next: str | None
    total: int | None
    cut: bool
    hidden: int


ORDERS: Orders = {"value": lambda row: None if row.value is None else str(row.value), "lag": lambda row: row.lag}


def _row(known: WatermarkInfo) -> WatermarkRow:
    value = known.value
    stands = value.timestamp() if isinstance(value, datetime) else None
    lag = None if stands is None else max(0.0, time.time() - stands)
    return WatermarkRow(**known._asdict(), stands=stands, lag=lag)


async def watermarks(call: Call[None, ListQuery]) -> object:
    """The list of watermarks."""
    what = ("watermarks", *chosen(call.query))
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: _load(call)))


async def _load(call: Call[None, ListQuery]) -> WatermarkRows:
    async def read(after: str, limit: int) -> ListPart[WatermarkRow]:
        found = await call.service.once.watermarks(call.query.prefix, after=after, limit=limit)
        return ListPart([_row(info) for info in found], found[-1].key if len(found) == limit else "")

    found = await select(call.query, read, ORDERS)
    return WatermarkRows(watermarks=found.rows, next=found.next, total=found.total, cut=found.cut, hidden=found.hidden)


# -- rewinding


async def _to_rewind(call: Call[Any, Any], wanted: RewindWatermark) -> Affected | None:
    value = await call.service.once.watermark(wanted.key).read()
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return Affected(f"the watermark {wanted.key!r}", {"Key": wanted.key, "Value": text}, {"to": text})


def _check_value(text: str) -> None:
    """InvalidInput unless the text is an integer or a time with a zone: the types let other numbers through."""
    try:
        msgspec.convert(int(text) if text.removeprefix("-").isdecimal() else text, Value)
    except msgspec.ValidationError:
        wanted = "give an integer, or a time such as 2026-03-01T12:00:00Z"
        raise InvalidInput(f"{text!r:.80} is not a watermark: {wanted}") from None


ROUTES = [
    Route("GET", "/watermarks", READ_PAGE, watermarks, hidden=True),
    *act_routes(REWIND, rewind, _to_rewind, checks={"to": _check_value}, refusals=(BUSY, UNREADABLE, RESERVED_NAME)),
]
