"""Watermarks over HTTP: how far work has progressed. Values are 64-bit integers, or times with a zone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from ..problems import UNREADABLE
from ..routes import READ, WRITE, Answer, Body, Call, Key, PrefixQuery, Reason, Route

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Value = Number | Time


class AdvanceWatermark(Body):
    """Advances the watermark to `value`, and never back."""

    key: Key
    value: Value


class RewindWatermark(Body):
    """Rewinds the watermark to `to`."""

    key: Key
    to: Value
    reason: Reason


class WatermarkAnswer(Answer):
    """The current value."""

    key: str
    value: Value


class ListedWatermark(Answer):
    """The current value; null if it is unreadable, and `unreadable` says why."""

    key: str
    value: Value | None
    fence: int
    unreadable: str = ""


class ListedWatermarks(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    watermarks: list[ListedWatermark]
    next: str | None


async def advance(call: Call[AdvanceWatermark, None]) -> WatermarkAnswer:
    """Advances a watermark; returns the given value, or a higher one that was reached before."""
    wanted = call.body
    return WatermarkAnswer(key=wanted.key, value=await call.service.once.watermark(wanted.key).advance(wanted.value))


async def rewind(call: Call[RewindWatermark, None]) -> WatermarkAnswer:
    """Rewinds a watermark."""
    wanted = call.body
    current = await call.service.once.watermark(wanted.key).rewind(wanted.to, reason=wanted.reason)
    return WatermarkAnswer(key=wanted.key, value=current)


async def list_watermarks(call: Call[None, PrefixQuery]) -> ListedWatermarks:
    """Lists watermarks in key order."""
    query = call.query
    found = await call.service.once.watermarks(query.prefix, after=query.after, limit=query.limit)
    rows = [ListedWatermark(**info._asdict()) for info in found]
    return ListedWatermarks(watermarks=rows, next=query.following(found))


ROUTES = [
    Route("GET", "/v1/watermarks", READ, list_watermarks),
    Route(
        "POST",
        "/v1/watermarks/advance",
        WRITE,
        advance,
        refusals=(UNREADABLE,),
        again="Safe: it has that value already.",
    ),
]
