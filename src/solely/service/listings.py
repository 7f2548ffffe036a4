"""Lists: the API route and the page of a declaration (`Listing`), from which `cli/acts.py` makes the command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ..acts import Listing
from .dashboard.rendering import READ_PAGE, Page, View, show
from .routes import READ, Answer, Call, Route

T = TypeVar("T")
Q = TypeVar("Q")


class Rows(NamedTuple, Generic[T]):
    """Rows of a list in its order. If `next` is not null there may be more: the query takes it as `after`."""

    rows: list[T]
    next: str | None = None


def list_route(listing: Listing, find: Callable[[Q], Awaitable[Rows[T] | list[T]]]) -> Route:
    """The route of a list. `find` is annotated: `async def find(query: Query) -> Rows[T]`, or `-> list[T]` if the list
    has no pages. The rows are the field `listing.rows` of the answer."""
    query, answer = _types(listing, find)

    async def listed(call: Any) -> Any:
        return _answer(answer, await find(call.query))

    listed.__annotations__ = {"call": Call[None, query], "return": answer}  # type: ignore[valid-type]  # a run-time type
    return Route("GET", listing.path, READ, listed, listing.summary)


def list_page(listing: Listing, find: Callable[[Q], Awaitable[Rows[T] | list[T]]], path: str, page: Page) -> Route:
    """The list as a page at this path, whose template gets the answer of the API as `view`, and the query."""
    asked, answer = _types(listing, find)
    fields = [(each.name, each.type, each.default) for each in msgspec.structs.fields(View)]
    query: Any = msgspec.defstruct(f"{asked.__name__}View", fields, bases=(asked,), kw_only=True)

    async def shown(call: Any) -> object:
        async def load() -> Any:
            return _answer(answer, await find(call.query))

        return await show(call, page, load)

    shown.__annotations__ = {"call": Call[None, query], "return": object}
    return Route("GET", path, READ_PAGE, shown, page.title, hidden=True)


def _types(listing: Listing, find: Callable[[Q], Awaitable[object]]) -> tuple[Any, Any]:
    """The types of the query and of the answer."""
    hints = get_type_hints(find, include_extras=True)
    found, (query,) = hints.pop("return"), hints.values()
    paged = get_origin(found) is Rows
    fields: list[tuple[str, Any]] = [(listing.rows, list[get_args(found)[0]])]  # type: ignore[misc]  # a run-time type
    fields += [("next", str | None)] if paged else []
    answer: Any = msgspec.defstruct(_name(listing.path), fields, bases=(Answer,))
    answer.__doc__ = Rows.__doc__ if paged else "Rows of the list, in its order."
    return query, answer


def _answer(answer: Any, page: Rows[T] | list[T]) -> Any:
    return answer(*page) if isinstance(page, Rows) else answer(page)


def _name(path: str) -> str:
    """The name of the answer in the API's document: ListedAlertsHistory for /api/alerts/history."""
    words = path.removeprefix("/api/").replace("-", "/").split("/")
    return f"Listed{''.join(word.capitalize() for word in words)}"
