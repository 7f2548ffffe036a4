"""Pages of locks, claims, reservations and marks: who holds what, since when and for how long; and the forms with which
an admin ends an entry, for a reason."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.responses import Response

from ... import values
from ...errors import NotKept, Unreadable, WorkFailed
from ...holder import describe, facts_of
from ...model import Entry, State
from ...ops import Clear, Op, Read, Reply
from ..api.entries import Fence
from ..problems import UNKNOWN, Problem
from ..reserved_names import clearing
from ..routes import Answer, Body, Call, Key, PageSize, Prefix, Reason, Route
from .rendering import ADMIN_PAGE, READ_PAGE, Page, View, acted, show

FRESH = 0.3  # seconds that a list is shared: less than the interval of a live page
PREVIEW = 160  # characters of a result in a list: what fits on a line
EVENTS = 1000  # events in which the refusals of a key are counted: all that the feed keeps
SCANS = 10  # pages of the store that are read to fill a page of the list: the rest is behind "next"


class EntriesPage(NamedTuple):
    """The page of a kind of entry, and how an admin ends one: the verb, and its consequence for others."""

    kind: str
    page: Page
    verb: str
    means: str


LOCKS = EntriesPage(
    "lock",
    Page("Locks", "solely:locks.html", "/locks"),
    "release",
    "Its holder notices at its next renewal and must stop; until then, only the fence blocks its writes. The next "
    "waiter gets the lock.",
)
CLAIMS = EntriesPage(
    "claim",
    Page("Claims", "solely:claims.html", "/claims"),
    "expire",
    "The next caller runs the work again. A published result is removed; if the work is still running, its result is "
    "not accepted once somebody else has taken the claim.",
)
RESERVATIONS = EntriesPage(
    "reservation",
    Page("Reservations", "solely:reservations.html", "/reservations"),
    "expire",
    "The hold or the quiet window ends: the next caller may send at once.",
)
MARKS = EntriesPage(
    "mark",
    Page("Dedup", "solely:dedup.html", "/dedup"),
    "forget",
    "The next caller is first again, and does the work once more.",
)


class ListQuery(View):
    """Entries whose name begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Annotated[str, msgspec.Meta(max_length=2100)] = ""
    limit: PageSize = 50


class EntryQuery(View):
    """An entry as it was listed."""

    key: Key
    fence: Fence


class EndEntryForm(Body):
    """An entry as it was listed, and why it is to end."""

    key: Key
    fence: Fence
    reason: Reason


class EntryRow(Answer):
    """An entry. `ends` and `since` are on the wall clock of the service; `full` is the most time that it had left, as
    far as was seen; `contended` counts callers that gave up waiting, lately and in this worker. Null is unknown, or
    unlimited."""

    kind: str
    key: str
    state: State
    holder: str
    purpose: str
    since: float | None
    fence: int
    left: float | None
    ends: float | None
    full: float | None
    attempts: int
    refused: int
    waiters: int
    contended: int
    result: str | None


class EntryRows(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    kind: str
    rows: list[EntryRow]
    next: str | None


class EndEntryPage(Answer):
    """The entry that is about to end."""

    row: EntryRow
    verb: str
    means: str
    path: str


# -- rows


async def performed(call: Call[Any, Any], op: Op) -> Reply:
    """The store's reply to one op of an admin; raises its error."""
    clearing(op)
    (reply,) = await call.service.perform(op)
    return reply


async def rows(call: Call[Any, Any], kind: str) -> EntryRows:
    """A page of the held and finished entries of this kind."""
    query: ListQuery = call.query
    chosen = (kind, query.prefix, query.after, query.limit)
    return await call.service.dashboard.views.share(("rows", *chosen), FRESH, lambda: _rows(call, *chosen))


async def _rows(call: Call[Any, Any], kind: str, prefix: str, after: str, limit: int) -> EntryRows:
    found: list[Entry] = []
    last = f"{kind}/{after}" if after else ""
    for _ in range(SCANS):
        page = await call.service.store.scan(f"{kind}/{prefix}", last, limit)
        last = page[-1].key if len(page) == limit else ""
        found += [entry for entry in page if entry.state is not State.FREE]
        if not last or len(found) >= limit:
            break
    shown = found[:limit]
    following = (shown[-1].name if len(found) > limit else last.partition("/")[2]) or None
    contended, watched = _refusals(call), call.service.dashboard.durations.watched((kind, prefix, after, limit))
    listed = [row(call, entry, contended[entry.key], watched) for entry in shown]
    return EntryRows(kind=kind, rows=listed, next=following)


def _refusals(call: Call[Any, Any]) -> Counter[str]:
    """How often callers gave up waiting for each stored key, among the last events of this worker."""
    last = call.service.feed.last(EVENTS)
    return Counter(f"{each.kind}/{each.key}" for each in last if each.event in ("contended", "timed_out"))


def row(call: Call[Any, Any], entry: Entry, contended: int = 0, watched: bool = False) -> EntryRow:
    """The entry as a row; `watched` if the list was loaded a moment ago, too."""
    holder, now = _holder(entry.info), time.time()
    left = entry.left if math.isfinite(entry.left) and entry.left > 0 else None
    since = holder.get("since")
    age = now - since if since is not None and not watched else None
    durations = call.service.dashboard.durations
    return EntryRow(
        kind=entry.kind,
        key=entry.name,
        state=entry.state,
        holder=f"{holder['host']} pid {holder['pid']}" if holder else entry.info,
        purpose=str(holder.get("purpose", "")),
        since=since,
        fence=entry.fence,
        left=left,
        ends=now + left if left is not None else None,
        full=durations.full(entry.key, entry.fence, left, age) if left is not None else None,
        attempts=entry.attempts,
        refused=entry.refused,
        waiters=entry.waiters,
        contended=contended,
        result=result(entry, PREVIEW),
    )


def _holder(info: str) -> dict[str, Any]:
    """The facts that the library stored about the holder; empty for info of another form."""
    return {} if describe(info) == info else facts_of(info)


def result(entry: Entry, most: int) -> str | None:
    """The result of a finished claim as text of at most so many characters; None if there is none."""
    if entry.kind != "claim" or entry.state is not State.DONE:
        return None
    try:
        value = values.decode(entry.value, entry.name)
    except WorkFailed as failure:
        text = f"failed permanently: {failure.kind}: {failure.text}"
    except NotKept as instead:
        text = str(instead)
    except Unreadable as why:
        text = f"unreadable: {why}"
    else:
        text = f"{len(value)} bytes" if isinstance(value, bytes) else _json(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "unreadable: it is nested too deep"


# -- routes


def _list_route(of: EntriesPage) -> Route:
    async def list_entries(call: Call[None, ListQuery]) -> object:
        return await show(call, of.page, lambda: rows(call, of.kind))

    return Route("GET", of.page.place, READ_PAGE, list_entries, hidden=True)


def _end_routes(of: EntriesPage) -> list[Route]:
    """The form on which an admin gives a reason, and its action."""
    path = f"{of.page.place}/{of.verb}"
    page = Page(f"{of.verb.capitalize()} {of.kind}", "solely:end.html", of.page.place)

    async def form(call: Call[None, EntryQuery]) -> object:
        async def load() -> EndEntryPage:
            entry: Any = await performed(call, Read(f"{of.kind}/{call.query.key}"))
            found = row(call, entry)
            if found.state is State.FREE or found.fence != call.query.fence:
                raise Problem(UNKNOWN, "It no longer exists, or somebody else holds it now: reload the list.")
            return EndEntryPage(row=found, verb=of.verb, means=of.means, path=path)

        return await show(call, page, load)

    async def end(call: Call[EndEntryForm, None]) -> Response:
        async def clear() -> str:
            form = call.body
            cleared = await performed(call, Clear(f"{of.kind}/{form.key}", form.fence, form.reason))
            return f"{of.page.place}?note={'ended' if cleared is True else 'moved-on'}"

        return await acted(call, page, clear)

    return [
        Route("GET", path, ADMIN_PAGE, form, hidden=True),
        Route("POST", path, ADMIN_PAGE, end, form=True, hidden=True),
    ]


ROUTES = [route for of in (LOCKS, CLAIMS, RESERVATIONS) for route in (_list_route(of), *_end_routes(of))]
ROUTES += _end_routes(MARKS)
