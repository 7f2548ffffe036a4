"""Watermarks over HTTP: how far the work has come. Values are whole numbers of 64 bits, or times with a zone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from ...errors import Unreadable
from ...watermarks.flow import decode
from ..problems import BUSY, RESERVED_NAME, UNREADABLE
from ..routes import ADMIN, READ, WRITE, Answer, Body, Call, Key, PageSize, Prefix, Reason, Route

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Value = Number | Time


class AdvanceWatermark(Body):
    """It goes forward to `value`, and never back."""

    key: Key
    value: Value


class RewindWatermark(Body):
    """It goes back to `to`."""

    key: Key
    to: Value
    reason: Reason


class WatermarkAnswer(Answer):
    """The value that now stands."""

    key: str
    value: Value


class WatermarksQuery(Body):
    """Those whose key begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Prefix = ""
    limit: PageSize = 100


class ListedWatermark(Answer):
    """The value that stands; null if it cannot be read, and `unreadable` says why."""

    key: str
    value: Value | None
    unreadable: str = ""


class ListedWatermarks(Answer):
    """In key order. If `next` is not null there may be more: ask for those after it."""

    watermarks: list[ListedWatermark]
    next: str | None


KIND = "watermark/"


async def advance(call: Call[AdvanceWatermark, None]) -> WatermarkAnswer:
    """The given value, or the one that was further already."""
    wanted = call.body
    return WatermarkAnswer(key=wanted.key, value=await call.service.once.watermark(wanted.key).advance(wanted.value))


async def rewind(call: Call[RewindWatermark, None]) -> WatermarkAnswer:
    """Takes it back."""
    wanted = call.body
    stands = await call.service.once.watermark(wanted.key).rewind(wanted.to, reason=wanted.reason)
    return WatermarkAnswer(key=wanted.key, value=stands)


async def list_watermarks(call: Call[None, WatermarksQuery]) -> ListedWatermarks:
    """A page of them."""
    asked = call.query
    after = KIND + asked.after if asked.after else ""
    found = await call.service.store.scan(KIND + asked.prefix, after, asked.limit)
    listed = [listed_as(entry.name, entry.value) for entry in found if entry.value is not None]
    return ListedWatermarks(watermarks=listed, next=found[-1].name if len(found) == asked.limit else None)


def listed_as(key: str, kept: bytes) -> ListedWatermark:
    """The watermark as it is listed."""
    try:
        return ListedWatermark(key=key, value=decode(kept))
    except Unreadable as why:
        return ListedWatermark(key=key, value=None, unreadable=str(why))


ROUTES = [
    Route("GET", "/v1/watermarks", READ, list_watermarks, "List watermarks in key order"),
    Route(
        "POST",
        "/v1/watermarks/advance",
        WRITE,
        advance,
        "Take a watermark forward",
        refusals=(UNREADABLE,),
        again="Safe: it stands there already.",
    ),
    Route(
        "POST",
        "/v1/watermarks/rewind",
        ADMIN,
        rewind,
        "Take a watermark back",
        refusals=(BUSY, UNREADABLE, RESERVED_NAME),
        again="Takes it back again, if it was advanced meanwhile.",
    ),
]
