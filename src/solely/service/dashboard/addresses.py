"""Addresses of views: links that can be shared, and those to the pages of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

import msgspec

MOST_PAGES = 20  # pages before this one that an address remembers; from an earlier one, "From the start" leads back
MOST_TRAIL = 4000  # characters of all of them: an address stays below the 8 KiB that proxies accept

Trail = Annotated[list[Annotated[str, msgspec.Meta(max_length=2100)]], msgspec.Meta(max_length=MOST_PAGES)]

_OF_ONE_ANSWER = ("note", "format")  # they belong to one answer: no link repeats them, unless it says so


class PageLinks(NamedTuple):
    """Links from a page of a list; an empty one leads nowhere."""

    first: str
    previous: str
    next: str


class Address:
    """The address of a view. Called with fields of the query, it is the address with these fields instead."""

    def __init__(self, path: str, query: Any) -> None:
        self._path = path
        self._query = query

    def __call__(self, **other: Any) -> str:
        """The address with some fields of the query replaced; it can be shared."""
        fields = {} if self._query is None else msgspec.structs.asdict(self._query)
        kept = {name: value for name, value in fields.items() if name not in _OF_ONE_ANSWER} | other
        given = {name: _text(value) for name, value in kept.items() if value not in ("", None, False, 0, [])}
        return self._path + (f"?{urlencode(given, doseq=True, errors='replace')}" if given else "")

    def sorted_by(self, column: str) -> str:
        """The address of the same list in this order, from its first page."""
        return self(sort=column, after="", skip=0, trail=[])

    def pages(self, next: str | None) -> PageLinks:
        """The links of a list whose next page begins after `next`, in the order of keys.

        A store lists forwards only: so each address has the beginnings of the pages before it, as a trail."""
        after, trail = self._query.after, self._query.trail
        return PageLinks(
            first=self(after="", trail=[]) if after else "",
            previous=self(after=trail[-1], trail=trail[:-1]) if after and trail else "",
            next=self(after=next, trail=_cut([*trail, after])) if next else "",
        )

    def skips(self, total: int) -> PageLinks:
        """The links of a list of so many rows in any other order, by the number of rows before the page."""
        skip, limit = self._query.skip, self._query.limit
        return PageLinks(
            first=self(skip=0) if skip else "",
            previous=self(skip=max(0, skip - limit)) if skip else "",
            next=self(skip=skip + limit) if skip + limit < total else "",
        )


def _text(value: Any) -> Any:
    return "true" if value is True else value


def _cut(trail: Sequence[str]) -> list[str]:
    """The last beginnings, as many as an address may have."""
    kept = list(trail)[-MOST_PAGES:]
    while sum(map(len, kept)) > MOST_TRAIL:
        del kept[0]
    return kept
