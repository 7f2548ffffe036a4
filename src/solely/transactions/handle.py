"""once.within(connection): marks and results that commit or roll back with the rows of the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..claims.handle import AsyncClaim, Claim
from ..drivers.inside import run_inside, run_inside_async
from ..errors import InvalidInput
from ..leases.context import keys_of
from ..marks import flow as dedup
from ..model import State
from ..rules import DAY, Seconds, stored_key, ttl_seconds
from ..stores import StoreBase


def _perform_within(store: StoreBase) -> Any:
    perform = store.perform_within
    if perform is None:
        raise InvalidInput(
            f"within() needs a store whose transactions your rows can share: postgresql://, sqlite:// or mongodb://; "
            f"this client has a {type(store).__name__}"
        )
    return perform


class Within:
    """Marks that commit or roll back with the rows that the caller writes on the same connection: exactly once.

    The caller begins and ends the transaction. Methods raise InvalidInput if there is none, or if the connection is not
    to the store's database, and StoreUnavailable after a conflict with another transaction: roll back and run it again.
    """

    def __init__(self, store: StoreBase, connection: Any) -> None:
        perform = _perform_within(store)
        self._perform = lambda ops: perform(connection, ops)

    def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one committed transaction per `ttl`: the one that should do the work."""
        return run_inside(dedup.first(stored_key("mark", key), ttl_seconds(ttl)), self._perform)

    def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one result per key, in order."""
        return run_inside(dedup.first_many(keys_of("mark", keys), ttl_seconds(ttl)), self._perform)[0]

    def seen(self, key: str) -> bool:
        """True if the key is marked, as this transaction sees it; marks nothing."""
        return run_inside(dedup.seen(stored_key("mark", key)), self._perform).state is State.DONE

    def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`. Extends an existing mark, never shortens it; True if there was
        none."""
        return run_inside(dedup.first(stored_key("mark", key), ttl_seconds(ttl), extend=True), self._perform)

    def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return run_inside(dedup.forget(stored_key("mark", key)), self._perform)

    def publish(self, claim: Claim, value: Any, *, keep: Seconds | None = None) -> bool:
        """True if the result is published when you commit; False if the claim has another outcome: roll back.

        The claim stays held until its block ends. The release there does not undo a committed result.
        """
        return run_inside(claim._finishing(value, keep), self._perform)


class AsyncWithin:
    """`Within` for asyncio: on an asyncio connection, or on one of sqlite3, which is used in the loop's thread."""

    def __init__(self, store: StoreBase, connection: Any) -> None:
        perform = _perform_within(store)
        self._perform = lambda ops: perform(connection, ops)

    async def first(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """True for exactly one committed transaction per `ttl`: the one that should do the work."""
        return await run_inside_async(dedup.first(stored_key("mark", key), ttl_seconds(ttl)), self._perform)

    async def first_many(self, keys: Iterable[str], *, ttl: Seconds = DAY) -> list[bool]:
        """`first` for many keys in few round trips; one result per key, in order."""
        flow = dedup.first_many(keys_of("mark", keys), ttl_seconds(ttl))
        return (await run_inside_async(flow, self._perform))[0]

    async def seen(self, key: str) -> bool:
        """True if the key is marked, as this transaction sees it; marks nothing."""
        return (await run_inside_async(dedup.seen(stored_key("mark", key)), self._perform)).state is State.DONE

    async def mark(self, key: str, *, ttl: Seconds = DAY) -> bool:
        """Marks the key as seen for at least `ttl`. Extends an existing mark, never shortens it; True if there was
        none."""
        return await run_inside_async(
            dedup.first(stored_key("mark", key), ttl_seconds(ttl), extend=True), self._perform
        )

    async def forget(self, key: str) -> bool:
        """Removes the mark, so that the next caller is first again; False if there was none."""
        return await run_inside_async(dedup.forget(stored_key("mark", key)), self._perform)

    async def publish(self, claim: AsyncClaim, value: Any, *, keep: Seconds | None = None) -> bool:
        """True if the result is published when you commit; False if the claim has another outcome: roll back.

        The claim stays held until its block ends. The release there does not undo a committed result.
        """
        return await run_inside_async(claim._finishing(value, keep), self._perform)
