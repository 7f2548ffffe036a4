"""How a MongoDB store subscribes to its hints: through a change stream. A standalone server has none.

No hint is written for its own sake: a Release that offers the key, or a Finish, names in the document's `notified` the
clients that it wakes, and each client watches for its own name there.

A change stream shows what a majority has in its journal, and that is also when the Release is answered: the hint comes
some 0.1 ms after the answer (measured on one machine: both 3 ms after the Release was sent). So no setting of the
stream makes it sooner. A wake-up takes two durable writes, the Release and the Acquire of who was woken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from ...errors import StoreUnavailable
from .. import OnHint
from ..listener import NoHints
from .faults import NO_CHANGE_STREAMS

FAILURES = (PyMongoError,)
# Milliseconds that the server keeps a request open when it has no news: bounds how long a closed listener lingers, and
# takes the place of a probe.
PATIENCE = 500


def hints_to(client: str) -> list[dict[str, Any]]:
    """The pipeline of a change stream that shows only what wakes this client, and not what the client did itself.

    A change is logged as a replacement of the whole document where that is shorter.
    """
    notified = {"$regex": f"^(?!{client}/).* {client}( |$)"}
    updated = {"operationType": "update", "updateDescription.updatedFields.notified": notified}
    replaced = {"operationType": "replace", "fullDocument.notified": notified}
    return [{"$match": {"$or": [updated, replaced]}}, {"$project": {"documentKey": 1}}]


def _explained(error: PyMongoError) -> Exception:
    never = isinstance(error, OperationFailure) and error.code == NO_CHANGE_STREAMS
    return NoHints() if never else error


class _MongoSubscription:
    """What threads and tasks share. pymongo connects again by itself; when it gives up, the loop starts anew."""

    server = None
    _on_hint: OnHint

    def __init__(self, collection: Any, client: str) -> None:
        self._collection = collection
        self._client = client
        self._stream: Any = None

    def _watch(self) -> Any:
        return self._collection.watch(hints_to(self._client), max_await_time_ms=PATIENCE)

    def _pass_on(self, change: Any) -> None:
        if change is not None:
            self._on_hint(change["documentKey"]["_id"])
        elif not self._stream.alive:
            raise StoreUnavailable("the change stream has ended")

    def interrupt(self) -> None:
        """Nothing interrupts it: it returns within PATIENCE."""


class MongoSubscription(_MongoSubscription):
    """For a thread."""

    def subscribe(self, on_hint: OnHint) -> None:
        self._on_hint = on_hint
        try:
            self._stream = self._watch()
        except PyMongoError as error:
            raise _explained(error) from error

    def deliver(self, silence: float) -> None:
        self._pass_on(self._stream.try_next())

    def close(self) -> None:
        if self._stream is not None:
            with suppress(PyMongoError):
                self._stream.close()

    def abandon(self) -> None:
        """The store keeps it, untouched."""


class AsyncMongoSubscription(_MongoSubscription):
    """For a task."""

    async def subscribe(self, on_hint: OnHint) -> None:
        self._on_hint = on_hint
        try:
            self._stream = await self._watch()
        except PyMongoError as error:
            raise _explained(error) from error

    async def deliver(self, silence: float) -> None:
        self._pass_on(await self._stream.try_next())

    async def close(self) -> None:
        if self._stream is not None:
            with suppress(PyMongoError):
                await self._stream.close()
