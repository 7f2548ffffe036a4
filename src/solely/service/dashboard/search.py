"""The search: a key that exists opens its page; for a part of one, the keys that begin with it or contain it, by
kind."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse

from ...errors import InvalidInput
from ...model import Entry, State
from ...ops import Read
from ...rules import stored_key
from ..parts import ListPart, in_parts
from ..routes import Answer, Call, Route
from .links import key_link
from .lists import Text
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Search", "solely:search.html", "/search")
# kind in the store → as people know it, and its list
KINDS = {
    "lock": ("Locks", "/locks"),
    "claim": ("Claims", "/claims"),
    "reservation": ("Reservations", "/reservations"),
    "mark": ("Marks", "/dedup"),
    "limited": ("Limits", "/limits"),
    "tick": ("Schedules", "/schedules"),
    "watermark": ("Watermarks", "/watermarks"),
}
SHOWN = 10  # keys of each kind: the list of the kind has them all
READ = 1000  # entries of each kind that are searched for the text: one page of every store


class SearchView(View):
    """The text to search for."""

    q: Text = ""


class FoundKey(Answer):
    """A key that begins with the text, or contains it."""

    key: str
    state: State


class FoundKind(Answer):
    """Keys of one kind; with `more`, its list, at `link`, has more. If it is `cut`, there are so many keys
    that not all were searched for those that contain it."""

    kind: str
    title: str
    link: str
    begin: list[FoundKey]
    contain: list[FoundKey]
    more: bool
    cut: bool


class SearchPage(Answer):
    """What was found, by kind; kinds without a match are left out."""

    text: str
    kinds: list[FoundKind]
    cut: bool


async def search(call: Call[None, SearchView]) -> object:
    """Redirects to the page of the key; if there is none, lists the keys that are like it."""
    text = call.query.q.strip()
    kinds = await _kinds_of(call, text) if text and call.query.format in ("", "html") else []
    if kinds:  # several: the page of all that is stored under the name
        return RedirectResponse(key_link(text, kinds[0] if len(kinds) == 1 else ""), 303)
    return await show(call, PAGE, lambda: _found(call, text))


async def _kinds_of(call: Call[Any, Any], text: str) -> list[str]:
    """The kinds of what is stored under exactly this name."""
    try:
        replies = await call.service.perform(*(Read(stored_key(kind, text)) for kind in KINDS))
    except InvalidInput:  # it cannot be a key
        return []
    known = zip(KINDS, replies, strict=True)
    return [kind for kind, each in known if isinstance(each, Entry) and each.state is not State.FREE]


async def _found(call: Call[Any, Any], text: str) -> SearchPage:
    kinds = [await _of_kind(call, kind, text) for kind in KINDS] if text else []
    matching = [each for each in kinds if each.begin or each.contain]
    return SearchPage(text=text, kinds=matching, cut=any(each.cut for each in kinds))


async def _of_kind(call: Call[Any, Any], kind: str, text: str) -> FoundKind:
    begin = _known(await call.service.store.scan(f"{kind}/{text}", "", SHOWN + 1))
    store, wanted = call.service.store, text.casefold()

    async def read(after: str, limit: int) -> ListPart[FoundKey]:
        page = await store.scan(f"{kind}/", after, limit)
        found = [each for each in _known(page) if wanted in each.key.casefold() and not each.key.startswith(text)]
        return ListPart(found, page[-1].key if len(page) == limit else "")

    contain, last = await in_parts(read, "", READ)
    title, place = KINDS[kind]
    return FoundKind(
        kind=kind,
        title=title,
        link=f"{place}?{urlencode({'prefix': text}, errors='replace')}",
        begin=begin[:SHOWN],
        contain=contain[:SHOWN],
        more=len(begin) > SHOWN or len(contain) > SHOWN,
        cut=bool(last),
    )


def _known(entries: list[Entry]) -> list[FoundKey]:
    return [FoundKey(key=each.name, state=each.state) for each in entries if each.state is not State.FREE]


ROUTES = [Route("GET", "/search", READ_PAGE, search, hidden=True)]
