"""Claims: the right to run work once, or the outcome of the caller that ran it; for threads and for asyncio."""

from __future__ import annotations

from typing import Any, Self

from .. import values
from ..errors import ClientClosed, StoreError
from ..leases.context import AsyncRunFlow, RunFlow
from ..leases.lease import AsyncLease, Lease
from ..model import RELEASED, Released
from ..rules import Seconds
from .claim import ClaimBase, ClaimOptions, Publication
from .flights import Flights
from .flow import Result
from .policy import Failing


class Claim(ClaimBase, Lease):
    """A claim, for threads. As a context manager it is released at the end unless it was published; after an error, its
    policy decides."""

    def __init__(
        self,
        flights: Flights,
        run: RunFlow,
        key: str,
        result: Result,
        waited: float,
        options: ClaimOptions,
    ) -> None:
        self._flights = flights
        self._context = flights.context
        self._run = run
        self._answered(key, result, waited, options)

    def publish(self, value: Any, *, keep: Seconds | None = None, wait: Seconds | None = None) -> Publication:
        """Publishes the result (bytes, or JSON-serializable) to every caller, now and within `keep`. If a later holder
        took over the claim, returns its result after at most `wait`. A result over 256 KiB leaves a tombstone."""
        return self._run(self._publishing(value, values.encode(value), keep, wait))

    def publish_tombstone(self, why: str, *, keep: Seconds | None = None) -> Publication:
        """Publishes that the work is done, without a result: it does not run again within `keep`, and later callers get
        NotKept with `why`."""
        return self._run(self._publishing(None, values.tombstone(why), keep))

    def fail(self, error: BaseException) -> Failing:
        """Ends the claim after a failure: the policy decides to replay, release, retry later or park it."""
        return self._run(self._failing(error))

    def release(self) -> Released:
        """Releases the claim without a result: the next caller runs the work. Does nothing if it was not won."""
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
    """A claim, for asyncio. As an async context manager it is released at the end unless it was published; after an
    error, its policy decides."""

    def __init__(
        self,
        flights: Flights,
        run: AsyncRunFlow,
        key: str,
        result: Result,
        waited: float,
        options: ClaimOptions,
    ) -> None:
        self._flights = flights
        self._context = flights.context
        self._run = run
        self._guard = None
        self._answered(key, result, waited, options)

    async def publish(self, value: Any, *, keep: Seconds | None = None, wait: Seconds | None = None) -> Publication:
        """Publishes the result (bytes, or JSON-serializable) to every caller, now and within `keep`. If a later holder
        took over the claim, returns its result after at most `wait`. A result over 256 KiB leaves a tombstone."""
        return await self._run(self._publishing(value, values.encode(value), keep, wait))

    async def publish_tombstone(self, why: str, *, keep: Seconds | None = None) -> Publication:
        """Publishes that the work is done, without a result: it does not run again within `keep`, and later callers get
        NotKept with `why`."""
        return await self._run(self._publishing(None, values.tombstone(why), keep))

    async def fail(self, error: BaseException) -> Failing:
        """Ends the claim after a failure: the policy decides to replay, release, retry later or park it."""
        return await self._run(self._failing(error))

    async def release(self) -> Released:
        """Releases the claim without a result: the next caller runs the work. Does nothing if it was not won."""
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
