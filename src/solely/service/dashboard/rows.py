"""Rows: entries of one kind as the pages list them, read a page at a time and shared by all who look."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from typing import Annotated, Any

import msgspec

from ... import values
from ...errors import NotKept, StoreError, Unreadable, WorkFailed
from ...holder import describe, facts_of
from ...model import Entry, State
from ...ops import Op, Reply
from ..reserved import clearing
from ..routes import Answer, Call, PageSize, Prefix
from .rendering import View

FRESH = 0.3  # seconds that a list is shared: less than the pause between two looks of a live page
PREVIEW = 160  # characters of a result in a list: what fits on a line
SEEN = 1000  # events in which a key's refusals are counted: all that the feed keeps
PAGES = 10  # pages of the store in which a page of ours is looked for: the rest is behind "next"


class ListQuery(View):
    """Entries whose name begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Annotated[str, msgspec.Meta(max_length=2100)] = ""
    limit: PageSize = 50


class Row(Answer):
    """An entry. `ends` and `since` are on the wall clock of the service; `full` is the most that it had left, as far as
    was seen; `contended` counts who gave up waiting for it, lately and here; nulls are not known, or for ever."""

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


class Rows(Answer):
    """In key order. If `next` is not null there may be more: ask for those after it."""

    kind: str
    rows: list[Row]
    next: str | None


async def performed(call: Call[Any, Any], op: Op) -> Reply:
    """The store's reply to one op of an admin; raises its error."""
    clearing(op)
    (reply,) = await call.service.store.perform([op])
    if isinstance(reply, StoreError):
        raise reply
    return reply


async def rows(call: Call[Any, Any], kind: str) -> Rows:
    """A page of what is held or done under this kind."""
    asked: ListQuery = call.query
    desk = call.service.desk
    what = ("rows", kind, asked.prefix, asked.after, asked.limit)
    return await desk.looks.share(what, FRESH, lambda: _rows(call, kind, asked.prefix, asked.after, asked.limit))


async def _rows(call: Call[Any, Any], kind: str, prefix: str, after: str, limit: int) -> Rows:
    found: list[Entry] = []
    last = f"{kind}/{after}" if after else ""
    for _ in range(PAGES):
        page = await call.service.store.scan(f"{kind}/{prefix}", last, limit)
        last = page[-1].key if len(page) == limit else ""
        found += [entry for entry in page if entry.state is not State.FREE]
        if not last or len(found) >= limit:
            break
    shown = found[:limit]
    following = (shown[-1].name if len(found) > limit else last.partition("/")[2]) or None
    contended, watched = refusals(call), call.service.desk.fulls.watched((kind, prefix, after, limit))
    told = [row(call, entry, contended[entry.key], watched) for entry in shown]
    return Rows(kind=kind, rows=told, next=following)


def refusals(call: Call[Any, Any]) -> Counter[str]:
    """How often somebody gave up waiting for each stored key, among the last events of this worker."""
    last = call.service.feed.last(SEEN)
    return Counter(f"{told.kind}/{told.key}" for told in last if told.event in ("contended", "timed_out"))


def row(call: Call[Any, Any], entry: Entry, contended: int = 0, watched: bool = False) -> Row:
    """The entry as a row; `watched` if one that was not known a moment ago has begun since."""
    who, now = _who(entry.info), time.time()
    left = entry.left if math.isfinite(entry.left) and entry.left > 0 else None
    since = who.get("since")
    age = now - since if since is not None and not watched else None
    full = call.service.desk.fulls.full(entry.key, entry.fence, left, age) if left is not None else None
    return Row(
        kind=entry.kind,
        key=entry.name,
        state=entry.state,
        holder=f"{who['host']} pid {who['pid']}" if who else entry.info,
        purpose=str(who.get("purpose", "")),
        since=since,
        fence=entry.fence,
        left=left,
        ends=now + left if left is not None else None,
        full=full,
        attempts=entry.attempts,
        refused=entry.refused,
        waiters=entry.waiters,
        contended=contended,
        result=result(entry, PREVIEW),
    )


def _who(info: str) -> dict[str, Any]:
    """What the holder said of itself; nothing if it did not say it in our way."""
    return {} if describe(info) == info else facts_of(info)


def result(entry: Entry, most: int) -> str | None:
    """The result of a finished claim, as people read it, cut to so many characters; None if there is none."""
    if entry.kind != "claim" or entry.state is not State.DONE:
        return None
    try:
        value = values.decode(entry.value, entry.name)
    except WorkFailed as failure:
        text = f"failed for good: {failure.kind}: {failure.text}"
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
