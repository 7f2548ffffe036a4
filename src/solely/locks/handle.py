"""The results of `lock_all` and of the asyncio `lock`: sets of leases, and a pending lease."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, Self, TypeVar

from ..errors import ClientClosed, StoreError
from ..flow import Flow
from ..holder import describe, purpose_of, since_of
from ..leases.lease import AsyncLease, Lease, LeaseBase
from ..leases.listing import listing
from ..model import RELEASED, Entry, Released, State
from .flow import release_all


def releasing_all(leases: Sequence[LeaseBase]) -> Flow[list[Released]]:
    """Releases all keys in one batch; returns for each whether it was still held."""
    for lease in leases:
        lease._context.keeper.remove(lease._hold)
    return release_all([lease._hold for lease in leases])


def _end_block(leases: Sequence[LeaseBase], outcomes: list[Released], error: BaseException | None) -> None:
    """Ends a guarded block, as for a single lease: raises LeaseLost if the block outlived one of them."""
    for lease, outcome in zip(leases, outcomes, strict=True):
        lease._released(outcome)
    lost = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is not RELEASED]
    if lost and error is None and not lost[0].unguarded:
        raise lost[0]._lost_error()


class LeaseSet(list[Lease]):
    """The leases of `lock_all`, in the order of the keys; as a context manager it releases all of them at the end."""

    @property
    def lost(self) -> bool:
        """True if any of the leases is lost."""
        return any(lease.lost for lease in self)

    def release(self) -> list[Released]:
        """Releases all leases in one batch; returns for each whether it was still held."""
        outcomes = self[0]._run(releasing_all(self))
        return [lease._released(outcome) for lease, outcome in zip(self, outcomes, strict=True)]

    def __enter__(self) -> Self:
        for lease in self:
            lease._check_held()
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
    """The leases of an asyncio `lock_all`, in the order of the keys; `async with` releases all of them at the end."""

    @property
    def lost(self) -> bool:
        """True if any of the leases is lost."""
        return any(lease.lost for lease in self)

    async def release(self) -> list[Released]:
        """Releases all leases in one batch; returns for each whether it was still held."""
        outcomes = await self[0]._run(releasing_all(self))
        return [lease._released(outcome) for lease, outcome in zip(self, outcomes, strict=True)]

    def guard(self) -> None:
        """With `on_lost="cancel"`, the current task is cancelled from now on when any of the leases is lost."""
        for lease in self:
            lease.guard()

    async def __aenter__(self) -> Self:
        for lease in self:
            lease._check_held()
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
    """A lease that is being acquired: `await` it, or use it in `async with`; once."""

    __slots__ = ("_acquiring", "_lease")

    def __init__(self, acquiring: Coroutine[Any, Any, T]) -> None:
        self._acquiring = acquiring

    def __await__(self) -> Generator[Any, None, T]:
        return self._acquiring.__await__()

    async def __aenter__(self) -> T:
        lease = self._lease = await self._acquiring
        lease.guard()
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> Awaitable[None]:
        return self._lease.__aexit__(kind, error, trace)


class LockInfo(NamedTuple):
    """A lock as any caller may see it: held, or closed (not held, but not free either), for `left` more seconds.

    `waiters` are processes that wait for it.
    """

    key: str
    state: State
    holder: str
    purpose: str
    since: datetime | None
    left: float
    fence: int
    waiters: int


def locks(prefix: str, after: str, limit: int) -> Flow[list[LockInfo]]:
    """A page of the locks that are held or closed."""
    return (yield from listing("lock", prefix, after, limit, _lock))


def _lock(entry: Entry) -> LockInfo:
    who, purpose, since = describe(entry.info), purpose_of(entry.info), since_of(entry.info)
    return LockInfo(entry.name, entry.state, who, purpose, since, entry.left, entry.fence, entry.waiters)
