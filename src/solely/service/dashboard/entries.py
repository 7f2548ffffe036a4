"""Pages of locks, claims, reservations and marks: who holds what, since when and for how long; and the acts with which
an admin ends an entry, for a reason."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from typing import Annotated, Any, NamedTuple

import msgspec

from ... import values
from ...errors import NotKept, Unreadable, WorkFailed
from ...holder import describe, facts_of, who_of
from ...model import Entry, State
from ...ops import Op, Read, Reply
from ..acts import Act, Affected, Field, act_routes
from ..api.entries import ClearedEntry, Fence, clear_entry
from ..reserved_names import clearing
from ..routes import Answer, Body, Call, Key, PageSize, Prefix, Reason, Route
from .formatting import span
from .rendering import READ_PAGE, Page, View, show

FRESH = 0.3  # seconds that a list is shared: less than the interval of a live page
PREVIEW = 160  # characters of a result in a list: what fits on a line
EVENTS = 1000  # events in which the refusals of a key are counted: all that the feed keeps
SCANS = 10  # pages of the store that are read to fill a page of the list: the rest is behind "next"


class EntriesPage(NamedTuple):
    """The page of a kind of entry, and the act with which an admin ends one."""

    kind: str
    page: Page
    act: Act


def _entries(kind: str, title: str, template: str, place: str, verb: str, means: str) -> EntriesPage:
    act = Act(
        name=f"{place.strip('/')}.{verb}",
        title=f"{verb.capitalize()} {kind}",
        verb=verb,
        summary=f"{verb.capitalize()} a {kind}",
        nothing="It no longer exists, or somebody else holds it now: reload the list.",
        again="Safe: ends only the entry with this fence.",
        api="",
        page=f"{place}/{verb}",
        means=means,
        fields=(Field("key"), Field("fence")),
        changed="cleared",
    )
    return EntriesPage(kind, Page(title, template, place), act)


LOCKS = _entries(
    "lock",
    "Locks",
    "solely:locks.html",
    "/locks",
    "release",
    "Its holder notices at its next renewal and must stop; until then, only the fence blocks its writes. The next "
    "waiter gets the lock.",
)
CLAIMS = _entries(
    "claim",
    "Claims",
    "solely:claims.html",
    "/claims",
    "expire",
    "The next caller runs the work again. A published result is removed; if the work is still running, its result is "
    "not accepted once somebody else has taken the claim.",
)
RESERVATIONS = _entries(
    "reservation",
    "Reservations",
    "solely:reservations.html",
    "/reservations",
    "expire",
    "The hold or the quiet window ends: the next caller may send at once.",
)
MARKS = _entries(
    "mark",
    "Dedup",
    "solely:dedup.html",
    "/dedup",
    "forget",
    "The next caller is first again, and does the work once more.",
)


class ListQuery(View):
    """Entries whose name begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Annotated[str, msgspec.Meta(max_length=2100)] = ""
    limit: PageSize = 50


class EndEntry(Body):
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
        holder=who_of(entry.info) or entry.info,
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


def _act_routes(of: EntriesPage) -> list[Route]:
    """The routes of the act that ends an entry of this kind."""

    async def affected(call: Call[Any, Any], wanted: EndEntry) -> Affected | None:
        entry: Any = await performed(call, Read(f"{of.kind}/{wanted.key}"))
        if entry.state is State.FREE or entry.fence != wanted.fence:
            return None
        found = row(call, entry)
        who = f"{found.holder} · {found.purpose}" if found.purpose else found.holder
        left = "" if found.left is None else span(found.left)
        facts = {"Key": found.key, "Holder": who, "Fence": str(found.fence), "Left": left}
        return Affected(f"this {of.kind}", {label: text for label, text in facts.items() if text})

    async def end(call: Call[EndEntry, None]) -> ClearedEntry:
        wanted = call.body
        return await clear_entry(call, f"{of.kind}/{wanted.key}", wanted.fence, wanted.reason)

    return act_routes(of.act, end, affected)


ROUTES = [route for of in (LOCKS, CLAIMS, RESERVATIONS) for route in (_list_route(of), *_act_routes(of))]
ROUTES += _act_routes(MARKS)
