"""What `lock_all` and the asyncio `lock` return: sets of leases, and a lease that is still being taken."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import Any, Generic, Self, TypeVar

from ..errors import ClientClosed, StoreError
from ..flow import Flow
from ..leases.lease import AsyncLease, Lease, LeaseBase
from ..model import RELEASED, Released
from .flow import release_all


def releasing_all(leases: Sequence[LeaseBase]) -> Flow[list[Released]]:
    """Releases all keys in one batch, and answers truthfully whether each was still held."""
    for lease in leases:
        lease._context.keeper.remove(lease._hold)
    return release_all([lease._hold for lease in leases])


def _end_block(leases: Sequence[LeaseBase], outcomes: list[Released], error: BaseException | None) -> None:
    """The end of a guarded body, as for a single lease: LeaseLost if it outlived one of them."""
    for lease, outcome in zip(leases, outcomes, strict=True):
        lease._released(outcome)
    lost = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is not RELEASED]
    if lost and error is None and not lost[0].unguarded:
        raise lost[0]._lost_error()


class LeaseSet(list[Lease]):
    """The leases of `lock_all`, in the order of the keys given; lets go of all of them at the end."""

    @property
    def lost(self) -> bool:
        """True if any of them is lost."""
        return any(lease.lost for lease in self)

    def release(self) -> list[Released]:
        """Lets go of all, in one batch."""
        outcomes = self[0]._run(releasing_all(self))
        return [lease._released(outcome) for lease, outcome in zip(self, outcomes, strict=True)]

    def __enter__(self) -> Self:
        for lease in self:
            lease._be_alive()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        mine = [lease for lease in self if not lease._over]
        if not mine:
            return
        try:
            outcomes = mine[0]._run(releasing_all(mine))
        except (StoreError, ClientClosed) as failure:
            mine[0]._not_released(failure, error)
        else:
            _end_block(mine, outcomes, error)


class AsyncLeaseSet(list[AsyncLease]):
    """The leases of an asyncio `lock_all`, in the order of the keys given; lets go of all of them at the end."""

    @property
    def lost(self) -> bool:
        """True if any of them is lost."""
        return any(lease.lost for lease in self)

    async def release(self) -> list[Released]:
        """Lets go of all, in one batch."""
        outcomes = await self[0]._run(releasing_all(self))
        return [lease._released(outcome) for lease, outcome in zip(self, outcomes, strict=True)]

    def guard(self) -> None:
        """From now on the current task is cancelled when any of the leases is lost, if that was asked for."""
        for lease in self:
            lease.guard()

    async def __aenter__(self) -> Self:
        for lease in self:
            lease._be_alive()
        self.guard()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        cancelled = [lease for lease in self if lease._guard is not None and lease._guard.exit(error)]
        mine = [lease for lease in self if not lease._over]
        if mine:
            try:
                outcomes = await mine[0]._run(releasing_all(mine))
            except (StoreError, ClientClosed) as failure:
                mine[0]._not_released(failure, error)
            else:
                _end_block(mine, outcomes, error)
        if cancelled:
            raise cancelled[0]._lost_error() from error


T = TypeVar("T", bound=AsyncLease | AsyncLeaseSet)


class Pending(Generic[T]):
    """A lease being taken: `await` it, or use it in `async with`; once."""

    __slots__ = ("_lease", "_taking")

    def __init__(self, taking: Coroutine[Any, Any, T]) -> None:
        self._taking = taking

    def __await__(self) -> Generator[Any, None, T]:
        return self._taking.__await__()

    async def __aenter__(self) -> T:
        lease = self._lease = await self._taking
        lease.guard()
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> Awaitable[None]:
        return self._lease.__aexit__(kind, error, trace)
