"""The page that explains why a key was suppressed: its entries and its last events; and the list of marks."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...model import Entry
from ...ops import Read
from ..api.entries import ExplainedKey, explained
from ..feed import EventRecord
from ..routes import Answer, Call, Route
from .entries import EVENTS, MARKS, EntryRows, ListQuery, performed, result, rows
from .rendering import READ_PAGE, show

LAST_EVENTS = 20  # of the key that are shown
RESULT = 4000  # characters of a result: a screen


class DedupQuery(ListQuery):
    """Explains `key`; without it, lists marks."""

    key: Annotated[str, msgspec.Meta(max_length=512)] = ""


class DedupPage(Answer):
    """The entries of the key, its result, and its last events in this worker; or a page of marks."""

    explained: ExplainedKey | None
    result: str | None
    events: list[EventRecord]
    marks: EntryRows | None


async def dedup(call: Call[None, DedupQuery]) -> object:
    """Explains a key, or lists marks."""
    return await show(call, MARKS.page, lambda: _explained(call) if call.query.key else _marks(call))


async def _marks(call: Call[None, DedupQuery]) -> DedupPage:
    return DedupPage(explained=None, result=None, events=[], marks=await rows(call, "mark"))


async def _explained(call: Call[None, DedupQuery]) -> DedupPage:
    key = call.query.key
    known = explained(await call.service.once.explain(key))
    claim = await performed(call, Read(f"claim/{key}"))
    kept = result(claim, RESULT) if isinstance(claim, Entry) else None
    return DedupPage(explained=known, result=kept, events=events_of(call, key), marks=None)


def events_of(call: Call[None, DedupQuery], key: str) -> list[EventRecord]:
    """The last events of the key, of any kind, newest first, in this worker."""
    return [each for each in call.service.feed.last(EVENTS) if each.key == key][:LAST_EVENTS]


ROUTES = [Route("GET", "/dedup", READ_PAGE, dedup, hidden=True)]
