"""Dead letters: groups, letters, one letter with its payload; replayed one by one, filtered or all; purged."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from ...dead_letters.flow import Letter
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Body, Call, Key, PageSize, Reason, Route
from .groups import Group, groups
from .rendering import ADMIN_PAGE, READ_PAGE, WRITE_PAGE, Page, View, acted, show
from .reruns import Rerun, Reruns

LIST = Page("Dead letters", "solely:letters.html", "/dead-letters")
ONE = Page("Dead letter", "solely:letter.html", "/dead-letters")
PURGE = Page("Purge dead letters", "solely:purge.html", "/dead-letters")
FRESH = 0.3  # seconds that a list is shared: less than the pause between two looks of a live page
RUNS = 5  # replays of a group, or of all, that are shown
LATELY = 3600.0  # seconds after which a replay is no news: the audit log has it

Text = Annotated[str, msgspec.Meta(max_length=512)]


class LettersQuery(View):
    """Letters of a group whose last error contains `error`; without a group, the groups."""

    group: Text = ""
    error: Text = ""
    after: Text = ""
    limit: PageSize = 50


class LetterQuery(View):
    """One letter."""

    group: Key
    id: Key


class PurgeQuery(View):
    """Which letters: the one of this id, those whose last error contains `error`, or all of the group."""

    group: Key
    id: Text = ""
    error: Text = ""


class Replay(Body):
    """Which letters: the one of this id, those whose last error contains `error`, or all of the group."""

    group: Key
    id: Text = ""
    error: Text = ""


class Purge(Body):
    """Which letters, as for a replay, and why. `key` is what the audit log names."""

    group: Key
    key: Text
    reason: Reason
    id: Text = ""
    error: Text = ""


class LetterRow(Answer):
    """A letter without its payload."""

    id: str
    group: str
    key: str
    attempts: int
    first_error: str
    last_error: str
    first_at: float
    last_at: float
    origin: str


class Letters(Answer):
    """A page of letters in the order of ids, or the groups; and the last replays."""

    group: str
    replayable: bool
    groups: list[Group]
    letters: list[LetterRow]
    next: str | None
    reruns: list[Rerun]


class OneLetter(Answer):
    """A letter; a payload of bytes is shown as text, as far as it is."""

    letter: LetterRow
    payload: Any
    replayable: bool


class Purging(Answer):
    """What is about to be purged."""

    group: str
    id: str
    error: str
    count: int


def _row(letter: Letter) -> LetterRow:
    return LetterRow(
        id=letter.id,
        group=letter.group,
        key=letter.key,
        attempts=letter.attempts,
        first_error=letter.first_error,
        last_error=letter.last_error,
        first_at=letter.first_at.timestamp(),
        last_at=letter.last_at.timestamp(),
        origin=letter.origin,
    )


# -- looking


async def letters(call: Call[None, LettersQuery]) -> object:
    """The groups, or the letters of one."""
    asked = call.query
    what = ("letters", asked.group, asked.error, asked.after, asked.limit)
    look = _letters if asked.group else _groups
    return await show(call, LIST, lambda: call.service.desk.looks.share(what, FRESH, lambda: look(call)))


async def _groups(call: Call[None, LettersQuery]) -> Letters:
    return Letters(
        group="", replayable=False, groups=await groups(call), letters=[], next=None, reruns=await _reruns(call)
    )


async def _letters(call: Call[None, LettersQuery]) -> Letters:
    asked, service = call.query, call.service
    box = service.once.dead_letters(asked.group)
    where = _where("", asked.error)
    found = await box.list(after=asked.after, limit=asked.limit + 1, where=where)
    shown = found[: asked.limit]
    return Letters(
        group=asked.group,
        replayable=asked.group in service.desk.replays,
        groups=[],
        letters=[_row(letter) for letter in shown],
        next=shown[-1].id if len(found) > asked.limit else None,
        reruns=await _reruns(call),
    )


async def _reruns(call: Call[None, LettersQuery]) -> list[Rerun]:
    recent = time.time() - LATELY
    known = await Reruns(call.service).last()
    return [each for each in known if each.at > recent and call.query.group in ("", each.group)][:RUNS]


async def letter(call: Call[None, LetterQuery]) -> object:
    """One letter."""
    asked, service = call.query, call.service

    async def look() -> OneLetter:
        found = await service.once.dead_letters(asked.group).inspect(asked.id)
        if found is None:
            raise Problem(UNKNOWN, "There is no such dead letter any more: it was replayed or purged.")
        payload = found.payload.decode(errors="replace") if isinstance(found.payload, bytes) else found.payload
        return OneLetter(letter=_row(found), payload=payload, replayable=asked.group in service.desk.replays)

    return await show(call, ONE, look)


# -- acting


async def replay(call: Call[Replay, None]) -> Response:
    """Runs one letter now, or begins to run several: the list shows how far that is."""
    wanted, service, who = call.body, call.service, call.principal.name

    async def act() -> str:
        run = service.desk.replays.get(wanted.group)
        if run is None:
            raise Problem(UNKNOWN, f"What runs the letters of {wanted.group!r} is not here.")
        if not wanted.id:
            await Reruns(service).begin(wanted.group, wanted.error, who, run)
            return _back(wanted.group, wanted.error, "replaying")
        await service.audit.record(who, "dead-letters.replay", wanted.group, f"replay of {wanted.id}")
        told = await service.letters(wanted.group).replay(wanted.id, run)
        return _back(wanted.group, "", told.outcome.value)

    return await acted(call, LIST, act)


async def purging(call: Call[None, PurgeQuery]) -> object:
    """Asks why."""
    asked = call.query

    async def look() -> Purging:
        box = call.service.once.dead_letters(asked.group)
        count = await box.count(where=_where(asked.id, asked.error))
        if not count:
            raise Problem(UNKNOWN, "There is no such dead letter any more: it was replayed or purged.")
        return Purging(group=asked.group, id=asked.id, error=asked.error, count=count)

    return await show(call, PURGE, look)


async def purge(call: Call[Purge, None]) -> Response:
    """Removes them for good."""
    wanted = call.body

    async def act() -> str:
        box = call.service.clearing.dead_letters(wanted.group)
        await box.purge(where=_where(wanted.id, wanted.error), reason=wanted.reason)
        return _back(wanted.group, "", "purged")

    return await acted(call, PURGE, act)


def _where(id: str, error: str) -> Any:
    return lambda letter: letter.id == id if id else error in letter.last_error


def _back(group: str, error: str, note: str) -> str:
    query = {"group": group, **({"error": error} if error else {}), "note": note}
    return f"/dead-letters?{urlencode(query)}"


ROUTES = [
    Route("GET", "/dead-letters", READ_PAGE, letters, LIST.title, hidden=True),
    Route("GET", "/dead-letters/letter", READ_PAGE, letter, ONE.title, hidden=True),
    Route("POST", "/dead-letters/replay", WRITE_PAGE, replay, "Replay", form=True, hidden=True),
    Route("GET", "/dead-letters/purge", ADMIN_PAGE, purging, PURGE.title, hidden=True),
    Route("POST", "/dead-letters/purge", ADMIN_PAGE, purge, PURGE.title, form=True, hidden=True),
]
