"""Lists that people filter and sort. A store lists in the order of keys, from a key on: a list in that order reads
about as much as it shows. In any other order the first MOST_SORTED rows are read and sorted, and the page says if there
are more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec

from ...names import RESERVED
from ..parts import ListPart as ListPart
from ..parts import Read, in_parts
from ..problems import INVALID, Problem
from ..routes import PageSize, Prefix
from .rendering import View

R = TypeVar("R")

ROWS = 25  # of a page: about two screens of a phone
MOST_SORTED = 1000  # rows that are read to sort them: one page of every store
SCANS = 10  # pages of the store that are read to fill a page of the list: the rest is behind "Next"
KEY = "key"  # the order of the store

Text = Annotated[str, msgspec.Meta(max_length=512)]
Word = Annotated[str, msgspec.Meta(max_length=40)]
Orders = Mapping[str, Callable[[Any], Any]]  # name of a column → what its rows are sorted by


class ListQuery(View):
    """Rows whose key begins with `prefix`, contains `text`, and comes after `after`; keys of applications only if
    `internal`. `sort` names a column, after a minus for the reverse order; `skip` rows come before the page then."""

    prefix: Prefix = ""
    text: Text = ""
    internal: bool = False
    sort: Word = ""
    skip: Annotated[int, msgspec.Meta(ge=0, le=MOST_SORTED)] = 0
    after: Annotated[str, msgspec.Meta(max_length=2100)] = ""
    limit: PageSize = ROWS


class Selection(NamedTuple, Generic[R]):
    """The rows of a page. In the order of keys, there may be more after `next`; in any other order `total` rows were
    found, among the first MOST_SORTED if it is `cut`. `hidden` counts keys of applications that were left out."""

    rows: list[R]
    next: str | None
    total: int | None
    cut: bool
    hidden: int


async def select(
    query: ListQuery,
    read: Read[R],
    orders: Orders,
    *,
    default: str = KEY,
    most: int = MOST_SORTED,
    internal: bool = False,
    matches: Callable[[R], bool] = lambda row: True,
    name: Callable[[R], str] = lambda row: row.key,  # type: ignore[attr-defined]  # rows of most lists have a key
) -> Selection[R]:
    """The page of the list that the query asks for, sorted by `default` unless it names a column; at most `most` rows
    are sorted. With `internal`, names that look like those of applications are listed like all others. Raises Problem
    if there is no such column."""
    sort = query.sort or default
    column = sort.removeprefix("-")
    if column != KEY and column not in orders:
        raise Problem(INVALID, f"sort: {sort!r:.60} is not one of {', '.join((KEY, *orders))}")
    picked = _Picked(query, internal, matches, name)
    if sort == KEY:
        return await _in_key_order(query, read, picked, name)
    part = await in_parts(read, "", most)
    found = _sorted([row for row in part.rows if picked(row)], orders.get(column, name), sort.startswith("-"))
    shown = found[query.skip : query.skip + query.limit]
    return Selection(shown, None, len(found), bool(part.last), picked.hidden)


async def _in_key_order(query: ListQuery, read: Read[R], picked: _Picked[R], name: Callable[[R], str]) -> Selection[R]:
    found, last = list[R](), query.after
    for _ in range(SCANS):
        part = await in_parts(read, last, query.limit)
        last = part.last
        found += [row for row in part.rows if picked(row)]
        if not last or len(found) >= query.limit:
            break
    shown = found[: query.limit]
    following = name(shown[-1]) if len(found) > query.limit else last
    return Selection(shown, following or None, None, False, picked.hidden)


class _Picked(Generic[R]):
    """Whether the query asks for a row; counts the keys of applications that are left out."""

    def __init__(
        self, query: ListQuery, internal: bool, matches: Callable[[R], bool], name: Callable[[R], str]
    ) -> None:
        self._text = query.text.casefold()
        self._internal = internal or query.internal or query.prefix.startswith(RESERVED)
        self._matches = matches
        self._name = name
        self.hidden = 0

    def __call__(self, row: R) -> bool:
        key = self._name(row)
        if self._text not in key.casefold() or not self._matches(row):
            return False
        if key.startswith(RESERVED) and not self._internal:
            self.hidden += 1
            return False
        return True


def _sorted(rows: list[R], by: Callable[[R], Any], reverse: bool) -> list[R]:
    """The rows in this order; those of the same rank in the order of keys, those without a value last."""
    ranked = [(by(row), row) for row in rows]
    known = [(rank.casefold() if isinstance(rank, str) else rank, row) for rank, row in ranked if rank is not None]
    known.sort(key=lambda pair: pair[0], reverse=reverse)
    return [row for _, row in known] + [row for rank, row in ranked if rank is None]


def chosen(query: ListQuery) -> tuple[object, ...]:
    """What the query selects, as the key under which views of it are shared."""
    return tuple(value for name, value in msgspec.structs.asdict(query).items() if name not in View.__struct_fields__)
