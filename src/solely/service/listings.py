"""Lists: the API route and the page of a declaration (`Listing`), from which `cli/acts.py` makes the command."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ..acts import Listing
from .dashboard.rendering import READ_PAGE, Page, View, show
from .routes import READ, Answer, Body, Call, Route

T = TypeVar("T")

Find = Callable[..., Awaitable[Any]]


class Rows(NamedTuple, Generic[T]):
    """Rows of a list in its order. If `next` is not null there may be more: the query takes it as `after`."""

    rows: list[T]
    next: str | None = None


def list_route(listing: Listing, find: Find) -> Route:
    """The route of a list. `find` is annotated: `async def find(query: Query) -> Rows[T]`, or `-> list[T]` if the list
    has no pages; instead of the query it may take the fields of one, `async def find(name: str = "", …)`. The rows are
    the field `listing.rows` of the answer."""
    query, load, answer = _types(listing, find)

    async def listed(call: Any) -> Any:
        return _answer(answer, await load(call.query))

    listed.__annotations__ = {"call": Call[None, query], "return": answer}  # type: ignore[valid-type]  # a run-time type
    return Route("GET", listing.path, READ, listed, listing.summary)


def list_page(listing: Listing, find: Find, path: str, page: Page) -> Route:
    """The list as a page at this path, whose template gets the answer of the API as `view`, and the query."""
    asked, load, answer = _types(listing, find)
    fields = [(each.name, each.type, _default(each)) for each in msgspec.structs.fields(View)]
    query: Any = msgspec.defstruct(f"{asked.__name__}View", fields, bases=(asked,), kw_only=True)

    async def shown(call: Any) -> object:
        async def loaded() -> Any:
            return _answer(answer, await load(call.query))

        return await show(call, page, loaded)

    shown.__annotations__ = {"call": Call[None, query], "return": object}
    return Route("GET", path, READ_PAGE, shown, page.title, hidden=True)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made: Any = field.default_factory
    return field.default if made is msgspec.NODEFAULT else msgspec.field(default_factory=made)


def _types(listing: Listing, find: Find) -> tuple[Any, Find, Any]:
    """The type of the query, what finds its rows, and the type of the answer."""
    hints = get_type_hints(find, include_extras=True)
    found = hints.pop("return")
    paged = get_origin(found) is Rows
    fields: list[tuple[str, Any]] = [(listing.rows, list[get_args(found)[0]])]  # type: ignore[misc]  # a run-time type
    fields += [("next", str | None)] if paged else []
    answer: Any = msgspec.defstruct(_name(listing.path), fields, bases=(Answer,))
    answer.__doc__ = Rows.__doc__ if paged else "Rows of the list, in its order."
    kinds = list(hints.values())
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], msgspec.Struct):
        return kinds[0], find, answer
    return _query(listing, find, hints), lambda query: find(**{name: getattr(query, name) for name in hints}), answer


def _query(listing: Listing, find: Find, hints: dict[str, Any]) -> Any:
    """The query whose fields are the parameters of this function, with their defaults."""
    given = inspect.signature(find).parameters
    defaults = {
        name: (given[name].default,) if given[name].default is not inspect.Parameter.empty else () for name in hints
    }
    fields: list[Any] = [(name, kind, *defaults[name]) for name, kind in hints.items()]
    query = msgspec.defstruct(f"{_name(listing.path)}Query", fields, bases=(Body,), kw_only=True)
    query.__doc__ = find.__doc__
    return query


def _answer(answer: Any, page: Rows[T] | list[T]) -> Any:
    return answer(*page) if isinstance(page, Rows) else answer(page)


def _name(path: str) -> str:
    """The name of the answer in the API's document: ListedAlertsHistory for /api/alerts/history."""
    words = path.removeprefix("/api/").replace("-", "/").split("/")
    return f"Listed{''.join(word.capitalize() for word in words)}"
