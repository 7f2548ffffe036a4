"""Locks: a key in hand for a while, taken in turn, renewed while it is held."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..errors import Busy
from ..leases.context import AsyncMethods, Methods, keys_of
from ..leases.hold import Hold
from ..leases.lease import AsyncLease, Lease
from ..leases.token import read_token
from ..model import Released
from ..rules import Seconds, checked_reason, renewal, stored_key
from .calls import (
    OnLost,
    acquiring,
    acquiring_all,
    clearing,
    kept,
    longest_hold,
    loss_callback,
    releasing_token,
    renewing_token,
    resuming,
)
from .handle import AsyncLeaseSet, LeaseSet, Pending


class Locks(Methods):
    """Locks, for threads."""

    def lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> Lease:
        """A lease of the key, taken in the order of arrival within `wait`; raises Busy, which says who has it.

        It is renewed at half its ttl until released, at most for `max_hold`. Should it expire, the key stays closed
        for `delay` seconds more.
        """
        stored = stored_key("lock", key)
        terms = self._context.terms(ttl, wait, delay)
        return self._run(acquiring(self._context, stored, terms, self._leased(renew, max_hold, on_lost), purpose))

    def try_lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> Lease | None:
        """A lease of the key, or None if somebody has it; does not wait."""
        stored = stored_key("lock", key)
        terms = self._context.terms(ttl, 0.0, delay)
        leased = self._leased(renew, max_hold, on_lost)
        try:
            return self._run(acquiring(self._context, stored, terms, leased, purpose))
        except Busy:
            return None

    def lock_all(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "flag",
    ) -> LeaseSet:
        """Leases of all keys or of none; callers whose sets overlap do not deadlock."""
        stored = keys_of("lock", keys, least=1)
        terms = self._context.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)
        return LeaseSet(self._run(acquiring_all(self._context, stored, terms, leased, purpose)))

    def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "flag"
    ) -> Lease:
        """Goes on with a lease that another process took and handed over; raises Busy if it is no longer held."""
        return self._run(resuming(token, self._leased(renew, max_hold, on_lost)))

    def renew(self, token: str, *, ttl: Seconds | None = None) -> float:
        """Extends the lease that was handed over in this token: the seconds it now has. LeaseLost if it is over."""
        return self._run(renewing_token(self._context, read_token(token), ttl))

    def release(self, token: str) -> Released:
        """Lets go of the lease that was handed over in this token; says truthfully whether it was still held."""
        return self._run(releasing_token(self._context, read_token(token)))

    def clear_lock(self, key: str, *, reason: str) -> bool:
        """Takes the lock from whoever has it now, and from nobody who comes after; False if nobody had it.

        Its holder learns of it at the next renewal, or when it releases; until then only fences keep its writes out.
        It is logged with the reason, and hooks are told `Cleared`. InvalidInput without a reason.
        """
        return self._run(clearing(self._context, stored_key("lock", key), checked_reason(reason)))

    def _leased(self, renew: bool, max_hold: Seconds | None, on_lost: OnLost) -> Callable[[Hold], Lease]:
        if renew and max_hold is None and on_lost == "flag":
            return self._plainly_leased
        callback = None if on_lost == "flag" else loss_callback(on_lost, cancels=False)
        most = math.inf if max_hold is None else longest_hold(max_hold)

        def leased(hold: Hold) -> Lease:
            if callback is not None:
                hold.on_lost = callback
            hold.keep(renew, most)
            return kept(self._context, Lease(hold, self._context, self._run))

        return leased

    def _plainly_leased(self, hold: Hold) -> Lease:
        """As most of them are: renewed until released."""
        hold.renew_at = renewal(hold.sent, hold.ttl)
        return kept(self._context, Lease(hold, self._context, self._run))


class AsyncLocks(AsyncMethods):
    """Locks, awaited."""

    def lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> Pending[AsyncLease]:
        """A lease of the key, taken in the order of arrival within `wait`; raises Busy, which says who has it.

        Use it in `async with`, or await it. It is renewed at half its ttl until released, at most for `max_hold`.
        Should it expire, the key stays closed for `delay` seconds more.

        `on_lost="cancel"` acts inside `async with` alone: the task there is cancelled when the lease is lost, and the
        block raises LeaseLost. A lease that was only awaited cancels nobody, since nobody knows which task relies on
        it: enter it (`async with lease:`), look at `lease.lost`, call `ensure()`, or give a function.
        """
        stored = stored_key("lock", key)
        terms = self._context.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)
        return Pending(self._run(acquiring(self._context, stored, terms, leased, purpose)))

    async def try_lock(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLease | None:
        """A lease of the key, or None if somebody has it; does not wait. Enter it (`async with lease:`) to have
        `on_lost="cancel"` act, as `lock` says."""
        stored = stored_key("lock", key)
        terms = self._context.terms(ttl, 0.0, delay)
        leased = self._leased(renew, max_hold, on_lost)
        try:
            return await self._run(acquiring(self._context, stored, terms, leased, purpose))
        except Busy:
            return None

    def lock_all(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 10.0,
        purpose: str = "",
        delay: Seconds = 0.0,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: OnLost = "cancel",
    ) -> Pending[AsyncLeaseSet]:
        """Leases of all keys or of none; callers whose sets overlap do not deadlock. As with `lock`, `on_lost="cancel"`
        acts inside `async with` alone."""
        stored = keys_of("lock", keys, least=1)
        terms = self._context.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)

        async def take() -> AsyncLeaseSet:
            return AsyncLeaseSet(await self._run(acquiring_all(self._context, stored, terms, leased, purpose)))

        return Pending(take())

    async def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "cancel"
    ) -> AsyncLease:
        """Goes on with a lease that another process took and handed over; raises Busy if it is no longer held. Enter
        it (`async with lease:`) to have `on_lost="cancel"` act, as `lock` says."""
        return await self._run(resuming(token, self._leased(renew, max_hold, on_lost)))

    async def renew(self, token: str, *, ttl: Seconds | None = None) -> float:
        """Extends the lease that was handed over in this token: the seconds it now has. LeaseLost if it is over."""
        return await self._run(renewing_token(self._context, read_token(token), ttl))

    async def release(self, token: str) -> Released:
        """Lets go of the lease that was handed over in this token; says truthfully whether it was still held."""
        return await self._run(releasing_token(self._context, read_token(token)))

    async def clear_lock(self, key: str, *, reason: str) -> bool:
        """Takes the lock from whoever has it now, and from nobody who comes after; False if nobody had it.

        Its holder learns of it at the next renewal, or when it releases; until then only fences keep its writes out.
        It is logged with the reason, and hooks are told `Cleared`. InvalidInput without a reason.
        """
        return await self._run(clearing(self._context, stored_key("lock", key), checked_reason(reason)))

    def _leased(self, renew: bool, max_hold: Seconds | None, on_lost: OnLost) -> Callable[[Hold], AsyncLease]:
        if renew and max_hold is None and on_lost == "cancel":
            return self._plainly_leased
        callback = None if on_lost == "cancel" else loss_callback(on_lost, cancels=True)
        most = math.inf if max_hold is None else longest_hold(max_hold)

        def leased(hold: Hold) -> AsyncLease:
            if callback is not None:
                hold.on_lost = callback
            hold.keep(renew, most)
            return kept(self._context, AsyncLease(hold, self._context, self._run, cancel=on_lost == "cancel"))

        return leased

    def _plainly_leased(self, hold: Hold) -> AsyncLease:
        """As most of them are: renewed until released."""
        hold.renew_at = renewal(hold.sent, hold.ttl)
        return kept(self._context, AsyncLease(hold, self._context, self._run, cancel=True))
