"""Pages of dead letters: groups, letters, one letter with its payload."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ..api.dead_letters import LetterRow, group_names, letter_row
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Call, Key, PageSize, Route
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


class LettersView(View):
    """Letters of a group whose last error contains `error`; without a group, the groups."""

    group: Text = ""
    error: Text = ""
    after: Text = ""
    limit: PageSize = 50


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
    """A page of letters in the order of ids, or the groups; and the last replays."""

    group: str
    replayable: bool
    groups: list[LetterGroup]
    letters: list[LetterRow]
    next: str | None
    reruns: list[Rerun]


class LetterDetails(Answer):
    """A letter; a payload of bytes is shown as text."""

    letter: LetterRow
    payload: Any
    replayable: bool


async def letters(call: Call[None, LettersView]) -> object:
    """The groups, or the letters of one."""
    query = call.query
    what = ("letters", query.group, query.error, query.after, query.limit)
    load = _letters if query.group else _groups
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: load(call)))


async def _groups(call: Call[None, LettersView]) -> LettersTable:
    return LettersTable(
        group="", replayable=False, groups=await letter_groups(call), letters=[], next=None, reruns=await _reruns(call)
    )


async def _letters(call: Call[None, LettersView]) -> LettersTable:
    query, service = call.query, call.service
    box = service.once.dead_letters(query.group)
    found = await box.list(
        after=query.after, limit=query.limit + 1, where=lambda letter: query.error in letter.last_error
    )
    shown = found[: query.limit]
    return LettersTable(
        group=query.group,
        replayable=query.group in service.dashboard.replays,
        groups=[],
        letters=[letter_row(letter) for letter in shown],
        next=shown[-1].id if len(found) > query.limit else None,
        reruns=await _reruns(call),
    )


async def letter_groups(call: Call[Any, Any]) -> list[LetterGroup]:
    """The groups that have letters."""
    found = list[LetterGroup]()
    for name in await group_names(call.service.store, "", MOST_GROUPS):
        letters = await call.service.once.dead_letters(name).list(limit=COUNTED)
        if letters:
            found.append(
                LetterGroup(
                    group=name,
                    letters=len(letters),
                    more=len(letters) == COUNTED,
                    oldest=min(letter.first_at for letter in letters).timestamp(),
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
