"""Signals in a collection of MongoDB (SIGN4L), as their consumers know them: same documents, same order, `get_next`.

A signal that was written keeps its `_id`, an ObjectId made of the id that the generator gives, so that a repeat of its
write finds it. A consumer acknowledges a signal instead of deleting it, or deletes it after the lock's ttl has passed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.collection import Collection

Document = dict[str, Any]
SIGNAL_COLLECTION = "SIGN4L"
Order = tuple[tuple[str, int], ...]
ORDER: Order = (("Priority", -1), ("_id", 1))  # the most urgent first, then the oldest
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class MongoSignals:
    """The signals of a collection of pymongo, read in this `order`; for threads."""

    def __init__(self, collection: Collection[Document], *, order: Order = ORDER) -> None:
        self._collection, self._order = collection, order

    def write(self, signal: Document, id: str, session: Any = None) -> bool:
        """Writes the signal under this id; False if it is there. Raises DuplicateKeyError if another unique index of
        the collection refuses it. For a generator with a transaction, `session` is its connection."""
        from pymongo.errors import DuplicateKeyError

        try:
            self._collection.insert_one(_document(signal, id), session=session)
        except DuplicateKeyError:
            if session is not None or self._collection.find_one(_by_id(id), _ID) is None:
                raise  # the transaction has ended, or a unique index of others refuses the signal
            return False
        return True

    def get_next(self) -> Document | None:
        """The next signal that is not acknowledged; None if there is none. Changes nothing."""
        return self._collection.find_one(_waiting(), sort=self._order)

    def take(self, lease: float = 30.0) -> Document | None:
        """The next signal that is neither acknowledged nor leased, leased to this consumer for so many seconds."""
        return self._collection.find_one_and_update(_available(), _leased(lease), sort=self._order)

    def acknowledge(self, signal: Document) -> bool:
        """Marks the signal as processed; False if it was, or is gone."""
        changed = self._collection.update_one(_this(signal), _ACKNOWLEDGED)
        return changed.modified_count == 1


class AsyncMongoSignals:
    """The signals of a collection of pymongo, read in this `order`; for asyncio."""

    def __init__(self, collection: AsyncCollection[Document], *, order: Order = ORDER) -> None:
        self._collection, self._order = collection, order

    async def write(self, signal: Document, id: str, session: Any = None) -> bool:
        """Writes the signal under this id; False if it is there. Raises DuplicateKeyError if another unique index of
        the collection refuses it. For a generator with a transaction, `session` is its connection."""
        from pymongo.errors import DuplicateKeyError

        try:
            await self._collection.insert_one(_document(signal, id), session=session)
        except DuplicateKeyError:
            if session is not None or await self._collection.find_one(_by_id(id), _ID) is None:
                raise  # the transaction has ended, or a unique index of others refuses the signal
            return False
        return True

    async def get_next(self) -> Document | None:
        """The next signal that is not acknowledged; None if there is none. Changes nothing."""
        return await self._collection.find_one(_waiting(), sort=self._order)

    async def take(self, lease: float = 30.0) -> Document | None:
        """The next signal that is neither acknowledged nor leased, leased to this consumer for so many seconds."""
        return await self._collection.find_one_and_update(_available(), _leased(lease), sort=self._order)

    async def acknowledge(self, signal: Document) -> bool:
        """Marks the signal as processed; False if it was, or is gone."""
        changed = await self._collection.update_one(_this(signal), _ACKNOWLEDGED)
        return changed.modified_count == 1


_ID = {"_id": True}
_ACKNOWLEDGED = {"$set": {"Acknowledged": True}}


def _document(signal: Document, id: str) -> Document:
    return {**signal, **_by_id(id)}


def _by_id(id: str) -> Document:
    from bson import ObjectId

    return {"_id": ObjectId(id)}


def _waiting() -> Document:
    return {"Acknowledged": {"$ne": True}}


def _available() -> Document:
    leased = {"$ifNull": ["$LeasedUntil", _NEVER]}
    return {**_waiting(), "$expr": {"$lte": [leased, "$$NOW"]}}  # on the server's clock


def _leased(seconds: float) -> list[Document]:
    return [{"$set": {"LeasedUntil": {"$add": ["$$NOW", round(seconds * 1000)]}}}]


def _this(signal: Document) -> Document:
    return {"_id": signal["_id"], **_waiting()}
