"""Pages of locks, claims, reservations and marks: who holds what, since when and for how long; and the acts with which
an admin ends an entry, for a reason."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ... import values
from ...errors import NotKept, Unreadable, WorkFailed
from ...holder import describe, facts_of, who_of
from ...model import Entry, State
from ...ops import Op, Read, Reply
from ..acts import Act, Affected, Field, act_routes
from ..api.entries import ClearedEntry, Fence, clear_entry
from ..reserved_names import clearing
from ..routes import Answer, Body, Call, Key, Reason, Route
from .formatting import span
from .lists import KEY, ListPart, Orders, Selection, Text, chosen, select
from .lists import ListQuery as ListQuery
from .rendering import READ_PAGE, Page, show

FRESH = 0.3  # seconds that a list is shared: less than the interval of a live page
PREVIEW = 160  # characters of a result in a list: what fits on a line
EVENTS = 1000  # events in which the refusals of a key are counted: all that the feed keeps
FIRST = {State.HELD: 0, State.CLOSED: 1, State.DONE: 2}  # the order of states: what runs comes first
ORDERS: Orders = {
    "state": lambda row: FIRST[row.state],
    "holder": lambda row: row.holder or None,
    "since": lambda row: row.since,
    "left": lambda row: float("inf") if row.left is None else row.left,
    "attempts": lambda row: row.attempts,
    "refused": lambda row: row.refused,
    "waiters": lambda row: row.waiters,
    "contended": lambda row: row.contended,
    "fence": lambda row: row.fence,
}


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


class EntryFilters(ListQuery):
    """Also only those in this state, whose holder, host or purpose contains `holder`."""

    holder: Text = ""
    state: Literal["", "held", "closed", "done"] = ""


class EndEntry(Body):
    """An entry as it was listed, and why it is to end."""

    key: Key
    fence: Fence
    reason: Reason


class EntryRow(Answer):
    """An entry. `ends` and `since` are on the wall clock of the service; `full` is the most time that it had left, as
    far as was seen; `contended` counts callers that gave up waiting, lately and in this worker; `host` is where the
    holder runs. Null is unknown, or unlimited."""

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
    host: str


class EntryRows(Answer):
    """A page of entries, what runs first; or in the order that was asked for: in that of keys, there may be more after
    `next`; in any other, `total` entries were found, among the first thousand if it is `cut`. `hidden` counts keys of
    applications that were left out."""

    kind: str
    rows: list[EntryRow]
    next: str | None
    total: int | None
    cut: bool
    hidden: int


# -- rows


async def performed(call: Call[Any, Any], op: Op) -> Reply:
    """The store's reply to one op of an admin; raises its error."""
    clearing(op)
    (reply,) = await call.service.perform(op)
    return reply


async def rows(call: Call[Any, Any], kind: str) -> EntryRows:
    """A page of the held and finished entries of this kind."""
    what = (kind, *chosen(call.query))
    return await call.service.dashboard.views.share(("rows", *what), FRESH, lambda: _rows(call, kind, what))


async def _rows(call: Call[Any, Any], kind: str, what: tuple[object, ...]) -> EntryRows:
    query: ListQuery = call.query
    contended, watched = _refusals(call), call.service.dashboard.durations.watched(what)

    async def read(after: str, limit: int) -> ListPart[EntryRow]:
        page = await call.service.store.scan(f"{kind}/{query.prefix}", f"{kind}/{after}" if after else "", limit)
        found = [row(call, each, contended[each.key], watched) for each in page if each.state is not State.FREE]
        return ListPart(found, page[-1].name if len(page) == limit else "")

    default = KEY if kind == "mark" else "state"  # all marks have the same state
    return entry_rows(kind, await select(query, read, ORDERS, default=default, matches=_filter(query)))


def entry_rows(kind: str, found: Selection[EntryRow]) -> EntryRows:
    """The selection as an answer."""
    return EntryRows(kind=kind, **found._asdict())


def _filter(query: ListQuery) -> Callable[[EntryRow], bool]:
    """Whether an entry has the state and the holder that the query asks for."""
    if not isinstance(query, EntryFilters):
        return lambda row: True
    state, holder = query.state, query.holder.casefold()
    return lambda row: state in ("", row.state) and holder in f"{row.holder} {row.purpose}".casefold()


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
        host=str(holder.get("host", "")) if entry.state is State.HELD else "",
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
    async def list_entries(call: Call[None, EntryFilters]) -> object:
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
