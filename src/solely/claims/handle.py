"""Claims: the right to run something once, or the outcome of whoever had it; for threads and for asyncio."""

from __future__ import annotations

from typing import Any, Self

from .. import values
from ..errors import ClientClosed, StoreError
from ..leases.context import AsyncRunFlow, RunFlow
from ..leases.lease import AsyncLease, Lease
from ..model import RELEASED, Released
from ..rules import Seconds
from .claim import Agreement, ClaimBase, Publication
from .flights import Flights
from .flow import Result
from .policy import Failing


class Claim(ClaimBase, Lease):
    """A claim, for threads. As a context manager it is released at the end unless published, and an error inside is
    dealt with as its policy says."""

    def __init__(
        self,
        flights: Flights,
        run: RunFlow,
        key: str,
        result: Result,
        waited: float,
        agreed: Agreement,
    ) -> None:
        self._flights = flights
        self._context = flights.context
        self._run = run
        self._answered(key, result, waited, agreed)

    def publish(self, value: Any, *, keep: Seconds | None = None, wait: Seconds | None = None) -> Publication:
        """The result (bytes, or JSON-serializable) for everyone who waits, and who comes within `keep`; if a later holder took
        the claim over, that one's result, waited for within `wait`. Over 256 KiB it leaves a tombstone."""
        return self._run(self._publishing(value, values.encode(value), keep, wait))

    def publish_tombstone(self, why: str, *, keep: Seconds | None = None) -> Publication:
        """It is done and never runs again within `keep`, and its result is not kept; `why` is told to who asks."""
        return self._run(self._publishing(None, values.tombstone(why), keep))

    def fail(self, error: BaseException) -> Failing:
        """The work failed: replay, release, retry after or park, as the policy says; answers what was done."""
        return self._run(self._failing(error))

    def release(self) -> Released:
        """Lets go without a result, so that the next one runs it; nothing to do if it was not won."""
        return super().release() if self.won else RELEASED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._over or not self.won:
            return
        try:
            self._run(self._leaving(error))
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure, error)


class AsyncClaim(ClaimBase, AsyncLease):
    """A claim, for asyncio. As an async context manager it is released at the end unless published, and an error inside
    is dealt with as its policy says."""

    def __init__(
        self,
        flights: Flights,
        run: AsyncRunFlow,
        key: str,
        result: Result,
        waited: float,
        agreed: Agreement,
    ) -> None:
        self._flights = flights
        self._context = flights.context
        self._run = run
        self._guard = None
        self._answered(key, result, waited, agreed)

    async def publish(self, value: Any, *, keep: Seconds | None = None, wait: Seconds | None = None) -> Publication:
        """The result (bytes, or JSON-serializable) for everyone who waits, and who comes within `keep`; if a later holder took
        the claim over, that one's result, waited for within `wait`. Over 256 KiB it leaves a tombstone."""
        return await self._run(self._publishing(value, values.encode(value), keep, wait))

    async def publish_tombstone(self, why: str, *, keep: Seconds | None = None) -> Publication:
        """It is done and never runs again within `keep`, and its result is not kept; `why` is told to who asks."""
        return await self._run(self._publishing(None, values.tombstone(why), keep))

    async def fail(self, error: BaseException) -> Failing:
        """The work failed: replay, release, retry after or park, as the policy says; answers what was done."""
        return await self._run(self._failing(error))

    async def release(self) -> Released:
        """Lets go without a result, so that the next one runs it; nothing to do if it was not won."""
        return await super().release() if self.won else RELEASED

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._over or not self.won:
            return
        try:
            await self._run(self._leaving(error))
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure, error)
