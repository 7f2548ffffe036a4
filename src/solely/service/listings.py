"""Lists: the API route of a declaration (`Listing`), from which `cli/acts.py` makes the command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ..acts import Listing
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
    hints = get_type_hints(find, include_extras=True)
    found, (query,) = hints.pop("return"), hints.values()
    paged = get_origin(found) is Rows
    fields: list[tuple[str, Any]] = [(listing.rows, list[get_args(found)[0]])]  # type: ignore[misc]  # a run-time type
    fields += [("next", str | None)] if paged else []
    answer: Any = msgspec.defstruct(_name(listing.path), fields, bases=(Answer,))
    answer.__doc__ = Rows.__doc__ if paged else "Rows of the list, in its order."

    async def listed(call: Any) -> Any:
        page = await find(call.query)
        return answer(*page) if isinstance(page, Rows) else answer(page)

    listed.__annotations__ = {"call": Call[None, query], "return": answer}  # type: ignore[valid-type]  # a run-time type
    return Route("GET", listing.path, READ, listed, listing.summary)


def _name(path: str) -> str:
    """The name of the answer in the API's document: ListedAlertsHistory for /api/alerts/history."""
    words = path.removeprefix("/api/").replace("-", "/").split("/")
    return f"Listed{''.join(word.capitalize() for word in words)}"
