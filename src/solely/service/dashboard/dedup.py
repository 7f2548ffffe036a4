"""Dedup: why was this suppressed? All that is known under a key, and what happened to it lately; and the marks."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...model import Entry
from ...ops import Read
from ..api.entries import Explained, explained
from ..feed import Told
from ..routes import Answer, Call, Route
from .entries import MARKS
from .rendering import READ_PAGE, show
from .rows import ListQuery, Rows, performed, result, rows

LATELY = 20  # events of the key that are shown
RESULT = 4000  # characters of a result that are shown: a screen


class DedupQuery(ListQuery):
    """`key` is to be explained; without it, marks are listed."""

    key: Annotated[str, msgspec.Meta(max_length=512)] = ""


class Dedup(Answer):
    """What is known under the key, its result, and its last events here; and a page of marks."""

    explained: Explained | None
    result: str | None
    events: list[Told]
    marks: Rows | None


async def dedup(call: Call[None, DedupQuery]) -> object:
    """Explains a key, or lists marks."""
    return await show(call, MARKS.page, lambda: _explained(call) if call.query.key else _marks(call))


async def _marks(call: Call[None, DedupQuery]) -> Dedup:
    return Dedup(explained=None, result=None, events=[], marks=await rows(call, "mark"))


async def _explained(call: Call[None, DedupQuery]) -> Dedup:
    key = call.query.key
    told = explained(await call.service.once.explain(key))
    claim = await performed(call, Read(f"claim/{key}"))
    kept = result(claim, RESULT) if isinstance(claim, Entry) else None
    return Dedup(explained=told, result=kept, events=events_of(call, key), marks=None)


def events_of(call: Call[None, DedupQuery], key: str) -> list[Told]:
    """The last events of the key, of any kind, newest first, as far as this worker saw them."""
    return [told for told in call.service.feed.last(1000) if told.key == key][:LATELY]


ROUTES = [Route("GET", "/dedup", READ_PAGE, dedup, "Why was this suppressed?", hidden=True)]
