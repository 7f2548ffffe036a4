"""Pages of dead letters: groups, letters, one letter with its payload."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ..api.dead_letters import LetterRow, group_names, letter_row, rows_of
from ..parts import ListPart, in_parts
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Call, Key, Route
from .lists import ListQuery, Orders, chosen, select
from .rendering import READ_PAGE, Page, View, show
from .reruns import Rerun, Reruns

LIST = Page("Dead letters", "solely:letters.html", "/dead-letters")
ONE = Page("Dead letter", "solely:letter.html", "/dead-letters")
FRESH = 0.3  # seconds that a list is shared: less than the interval of a live page
COUNTED = 200  # letters of a group that are read for its count and its oldest; if there are more, it says so
MOST_GROUPS = 100  # that are listed
RERUNS = 5  # replays of a group, or of all groups, that are shown
RECENT = 3600.0  # seconds that a replay is shown: the audit log keeps it

GONE = "There is no such dead letter any more: it was replayed or purged."
Text = Annotated[str, msgspec.Meta(max_length=512)]


ORDERS: Orders = {
    "error": lambda row: row.last_error,
    "attempts": lambda row: row.attempts,
    "first": lambda row: row.first_at,
    "last": lambda row: row.last_at,
}


class LettersView(ListQuery):
    """Letters of a group whose last error contains `error`; without a group, the groups."""

    group: Text = ""
    error: Text = ""


class LetterView(View):
    """One letter."""

    group: Key
    id: Key


class LetterGroup(Answer):
    """A group of letters. With `more`, not all were counted, and there may be older ones; `replayable` if this service
    can run them."""

    group: str
    letters: int
    more: bool
    oldest: float
    replayable: bool
    link: str


class LettersTable(Answer):
    """A page of letters, or the groups; and the last replays. In the order of ids there may be more after `next`; in
    any other order `total` letters were found, among the first thousand if it is `cut`."""

    group: str
    replayable: bool
    groups: list[LetterGroup]
    letters: list[LetterRow]
    reruns: list[Rerun]
    next: str | None = None
    total: int | None = None
    cut: bool = False
    hidden: int = 0


class LetterDetails(Answer):
    """A letter; a payload of bytes is shown as text."""

    letter: LetterRow
    payload: Any
    replayable: bool


async def letters(call: Call[None, LettersView]) -> object:
    """The groups, or the letters of one."""
    what = ("letters", *chosen(call.query))
    load = _letters if call.query.group else _groups
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: load(call)))


async def _groups(call: Call[None, LettersView]) -> LettersTable:
    return LettersTable(
        group="", replayable=False, groups=await letter_groups(call), letters=[], reruns=await _reruns(call)
    )


async def _letters(call: Call[None, LettersView]) -> LettersTable:
    query, service = call.query, call.service
    box = service.once.dead_letters(query.group)

    async def read(after: str, limit: int) -> ListPart[LetterRow]:
        found = await box.list(after=after, limit=limit + 1, where=lambda letter: query.error in letter.last_error)
        rows = [letter_row(letter) for letter in found[:limit]]
        return ListPart(rows, rows[-1].id if len(found) > limit else "")

    found = await select(query, read, ORDERS, internal=True, name=lambda row: row.id)
    return LettersTable(
        group=query.group,
        replayable=query.group in service.dashboard.replays,
        groups=[],
        letters=found.rows,
        reruns=await _reruns(call),
        next=found.next,
        total=found.total,
        cut=found.cut,
    )


async def letter_groups(call: Call[Any, Any]) -> list[LetterGroup]:
    """The groups that have letters."""
    found = list[LetterGroup]()
    for name in await group_names(call.service.store, "", MOST_GROUPS):
        letters = (await in_parts(rows_of(call.service.once.dead_letters(name)), "", COUNTED)).rows
        if letters:
            found.append(
                LetterGroup(
                    group=name,
                    letters=len(letters),
                    more=len(letters) == COUNTED,
                    oldest=min(letter.first_at for letter in letters),
                    replayable=name in call.service.dashboard.replays,
                    link=f"/dead-letters?{urlencode({'group': name})}",
                )
            )
    return found


async def _reruns(call: Call[None, LettersView]) -> list[Rerun]:
    recent = time.time() - RECENT
    known = await Reruns(call.service).last()
    return [each for each in known if each.at > recent and call.query.group in ("", each.group)][:RERUNS]


async def letter(call: Call[None, LetterView]) -> object:
    """One letter."""
    query, service = call.query, call.service

    async def load() -> LetterDetails:
        found = await service.once.dead_letters(query.group).inspect(query.id)
        if found is None:
            raise Problem(UNKNOWN, GONE)
        payload = found.payload.decode(errors="replace") if isinstance(found.payload, bytes) else found.payload
        return LetterDetails(
            letter=letter_row(found), payload=payload, replayable=query.group in service.dashboard.replays
        )

    return await show(call, ONE, load)


ROUTES = [
    Route("GET", "/dead-letters", READ_PAGE, letters, hidden=True),
    Route("GET", "/dead-letters/letter", READ_PAGE, letter, hidden=True),
]
