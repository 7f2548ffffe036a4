"""MongoDB: an update of a stale holder matches nothing, because the fence is a field of the document it protects.

`fenced` and `with_fence` are the two halves of any guarded write; `fenced_update` combines them and
distinguishes a stale holder from a missing document. A deleted document loses its fence: mark it as deleted instead.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bson.regex import Regex
from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError

from ..errors import InvalidInput
from .order import stale, valid_fence

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.collection import Collection
    from pymongo.results import UpdateResult

Document = Mapping[str, Any]
Update = Document | Sequence[Document]

# One loses the race of an upsert, one finds the winner; more only if the document is also deleted in between.
TRIES = 5
_READ_OPTIONS = ("session", "collation", "hint", "let", "comment")  # options of an update that apply to a read too
_PATTERNS = (Mapping, re.Pattern, Regex)


def fenced(filter: Document, fence: int, *, field: str = "fence") -> dict[str, Any]:
    """The filter, limited to documents that no later holder wrote. A document without a fence matches."""
    return {"$and": [dict(filter), {field: {"$not": {"$gt": valid_fence(fence)}}}]}


def with_fence(update: Update, fence: int, *, field: str = "fence") -> Any:
    """The update (operators or a pipeline), extended to set the fence."""
    if not isinstance(update, Mapping):
        return [*update, {"$set": {field: valid_fence(fence)}}]
    return {**update, "$set": {**update.get("$set", {}), field: valid_fence(fence)}}


def fenced_update(
    collection: Collection[Any],
    filter: Document,
    update: Update,
    *,
    fence: int,
    upsert: bool = False,
    field: str = "fence",
    **options: Any,
) -> UpdateResult:
    """As `collection.update_one`; StaleFence if a later holder wrote the document, and nothing is done.

    An upsert needs a filter with a plain `_id`, and a text as `_id` no collation: else a refused update would insert a
    second document. In a transaction, who loses a race gets pymongo's error with the label TransientTransactionError:
    run it again.
    """
    collection = collection.with_options(read_preference=ReadPreference.PRIMARY)
    flow = _updating(filter, update, fence, upsert, field, options)
    try:
        call = next(flow)
        while True:
            try:
                answer = getattr(collection, call.method)(*call.arguments, **call.options)
            except DuplicateKeyError as error:
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as done:
        result: UpdateResult = done.value
        return result


async def fenced_update_async(
    collection: AsyncCollection[Any],
    filter: Document,
    update: Update,
    *,
    fence: int,
    upsert: bool = False,
    field: str = "fence",
    **options: Any,
) -> UpdateResult:
    """As `fenced_update`, awaited."""
    collection = collection.with_options(read_preference=ReadPreference.PRIMARY)
    flow = _updating(filter, update, fence, upsert, field, options)
    try:
        call = next(flow)
        while True:
            try:
                answer = await getattr(collection, call.method)(*call.arguments, **call.options)
            except DuplicateKeyError as error:
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as done:
        result: UpdateResult = done.value
        return result


class _Call(NamedTuple):
    """A call of a method of the collection."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def _updating(
    filter: Document, update: Update, fence: int, upsert: bool, field: str, options: dict[str, Any]
) -> Generator[_Call, Any, UpdateResult]:
    """Yields calls of the collection, receives the results, and returns the outcome: for threads and asyncio."""
    session = options.get("session")
    inside = session is not None and session.in_transaction  # which a duplicate key aborts
    look = _look(filter, fence, field, options)
    if upsert:
        _check_id(filter.get("_id"), options)
        look = _look({"_id": filter["_id"]}, fence, field, {**options, "hint": None})
        if inside:
            _refuse((yield look), fence, field)
    guarded = (fenced(filter, fence, field=field), with_fence(update, fence, field=field))
    tries = 0
    while True:
        tries += 1
        result: UpdateResult | None = None
        try:
            result = yield _Call("update_one", guarded, {**options, "upsert": upsert})
            if result is not None and (result.matched_count or result.upserted_id is not None):
                return result
        except DuplicateKeyError:  # the document exists: a later holder's, or one that won the race to insert it
            if inside or tries == TRIES:
                raise
        _refuse((yield look), fence, field)
        if result is not None:
            return result


def _check_id(id: Any, options: Document) -> None:
    """InvalidInput unless an upsert with this `_id` finds the document that it would otherwise insert."""
    if id is None or isinstance(id, _PATTERNS):
        raise InvalidInput("a fenced upsert needs a plain _id in its filter: else it could insert a second document")
    if isinstance(id, str) and options.get("collation") is not None:
        raise InvalidInput("a fenced upsert by a text as _id takes no collation: it could insert a second document")


def _look(filter: Document, fence: int, field: str, options: Document) -> _Call:
    """Matches what the filter matches and a later holder wrote: the complement of `fenced`."""
    refused = {"$and": [dict(filter), {field: {"$gt": valid_fence(fence)}}]}
    given = {name: options[name] for name in _READ_OPTIONS if options.get(name) is not None}
    return _Call("find_one", (refused,), {"projection": {field.partition(".")[0]: True}, **given})


def _refuse(found: Document | None, fence: int, field: str) -> None:
    """StaleFence if the read found a document."""
    if found is not None:
        raise stale(str(found["_id"]), fence, _greatest(found, field.split(".")))


def _greatest(found: Any, path: list[str]) -> Any:
    """The greatest fence at the path, which goes through arrays as in a filter: by index, or to each element."""
    if isinstance(found, list):
        by_place = found[int(path[0]) :][:1] if path and path[0].isdecimal() else []
        fences = [_greatest(each, path) for each in found] + [_greatest(each, path[1:]) for each in by_place]
        return max(fences, default=0)
    if path:
        return _greatest(found.get(path[0]), path[1:]) if isinstance(found, Mapping) else 0
    return found if isinstance(found, int | float) else 0
