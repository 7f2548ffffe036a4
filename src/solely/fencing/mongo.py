"""MongoDB: an update of a stale holder matches nothing, because the fence is a field of the document it protects.

`fenced` and `with_fence` are the two halves of any guarded write; `fenced_update` puts them together and tells a
stale holder from a document that is not there. A deleted document forgets its fence: mark it as deleted instead.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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

# One to lose the race of an upsert, one to find what won it; more only if the document is also deleted in between.
TRIES = 5


def fenced(filter: Document, fence: int, *, field: str = "fence") -> dict[str, Any]:
    """The filter, matching only what no later holder wrote. What was never written under a fence is let pass."""
    return {"$and": [dict(filter), {field: {"$not": {"$gt": valid_fence(fence)}}}]}


def with_fence(update: Update, fence: int, *, field: str = "fence") -> Any:
    """The update (of operators, or a pipeline), which also sets the fence."""
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

    An upsert needs a filter with a plain `_id`: with any other, a refused update would insert a second document. In a
    transaction, who loses a race gets pymongo's error with the label TransientTransactionError: run it again.
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
    """A method of the collection to call."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def _updating(
    filter: Document, update: Update, fence: int, upsert: bool, field: str, options: dict[str, Any]
) -> Generator[_Call, Any, UpdateResult]:
    """Yields calls of the collection, gets their answers, and returns the result: one text for threads and asyncio."""
    if upsert and (filter.get("_id") is None or isinstance(filter["_id"], Mapping)):
        raise InvalidInput("a fenced upsert needs a plain _id in its filter: else it could insert a second document")
    guarded = (fenced(filter, fence, field=field), with_fence(update, fence, field=field))
    there = {"_id": filter["_id"]} if upsert else filter
    session = options.get("session")
    look = _Call("find_one", (there,), {"projection": {field: True}, "session": session})
    look_first = upsert and session is not None and session.in_transaction  # which a duplicate key aborts
    if look_first:
        _check((yield look), fence, field)
    tries = 0
    while True:
        tries += 1
        result: UpdateResult | None = None
        try:
            result = yield _Call("update_one", guarded, {**options, "upsert": upsert})
            if result is not None and (result.matched_count or result.upserted_id is not None):
                return result
        except DuplicateKeyError:  # the document is there: a later holder's, or one that won the race to insert it
            if look_first or tries == TRIES:
                raise
        found = yield look
        _check(found, fence, field)
        if result is not None and (found is None or tries == TRIES):
            return result


def _check(found: Document | None, fence: int, field: str) -> None:
    """StaleFence if a later holder wrote what was found."""
    if found is not None and (found.get(field) or 0) > fence:
        raise stale(str(found["_id"]), fence, found[field])
