"""Client methods of locks: acquire a key in the order of arrival, with renewals while it is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import Busy
from ..leases.context import AsyncMethods, Methods, keys_of
from ..leases.hold import Hold, longest_hold
from ..leases.lease import AsyncLease, Lease
from ..leases.token import read_token
from ..model import Released
from ..rules import Seconds, checked_reason, renewal, stored_key
from .calls import (
    OnLost,
    acquiring,
    acquiring_all,
    apart,
    clearing,
    kept,
    loss_callback,
    releasing_token,
    renewing_token,
    resuming,
    token_to_resume,
)
from .handle import AsyncLeaseSet, LeaseSet, LockInfo, Pending
from .handle import locks as listed


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
        """Acquires the key within `wait`, in the order of arrival; else raises Busy, which names the holder.

        The lease is renewed at half its ttl until it is released, for at most `max_hold`. If it expires, the key stays
        closed for `delay` more seconds.
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
        """A lease of the key, or None if another owner holds it; does not wait."""
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
        """Acquires all keys or none, and raises Busy if it cannot; callers whose sets overlap do not deadlock."""
        stored = keys_of("lock", keys, least=1)
        terms = self._context.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)
        return LeaseSet(self._run(acquiring_all(self._context, stored, terms, leased, purpose)))

    def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "flag"
    ) -> Lease:
        """Takes over a lease that another process acquired and handed over, under a new fence and with its ttl from
        now; raises Busy, which names the holder, if it was resumed before or is no longer held.

        The token is void from then on. A holder that handed it out and did not let go loses the lease (`resumed`).
        """
        given = token_to_resume(token)
        return self._run(resuming(self._context, given, self._leased(renew, max_hold, on_lost, given.fence)))

    def renew(self, token: str, *, ttl: Seconds | None = None) -> float:
        """Extends the lease of this token; returns the seconds left, or raises LeaseLost if it is lost."""
        return self._run(renewing_token(self._context, read_token(token), ttl))

    def release(self, token: str) -> Released:
        """Releases the lease of this token; returns whether it was still held."""
        return self._run(releasing_token(self._context, read_token(token)))

    def locks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[LockInfo]:
        """The locks, held or closed, whose key starts with `prefix` and follows `after`, in key order."""
        return self._run(listed(prefix, after, limit))

    def clear_lock(self, key: str, *, reason: str) -> bool:
        """Ends the current hold of the lock, and no later one; False if it was not held.

        Its holder learns of it at the next renewal or release; until then only fences stop its writes. The clear is
        logged with the reason, and hooks receive `Cleared`. Raises InvalidInput without a reason.
        """
        return self._run(clearing(self._context, stored_key("lock", key), checked_reason(reason)))

    def _leased(
        self, renew: bool, max_hold: Seconds | None, on_lost: OnLost, before: int = 0
    ) -> Callable[[Hold], Lease]:
        """What makes the lease of a hold; `before`: the fence of the hold that it takes over."""
        if not before and renew and max_hold is None and on_lost == "flag":
            return self._usual_lease
        callback = None if on_lost == "flag" else apart(self._context, loss_callback(on_lost, cancels=False))
        most = longest_hold(max_hold)

        def leased(hold: Hold) -> Lease:
            if callback is not None:
                hold.on_lost = callback
            hold.keep(renew, most)
            return kept(self._context, Lease(hold, self._context, self._run), before)

        return leased

    def _usual_lease(self, hold: Hold) -> Lease:
        """The usual lease, which is renewed until it is released."""
        hold.renew_at = renewal(hold.sent, hold.ttl)
        return kept(self._context, Lease(hold, self._context, self._run))


class AsyncLocks(AsyncMethods):
    """Locks, for asyncio."""

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
        """Acquires the key within `wait`, in the order of arrival; else raises Busy, which names the holder.

        Use it in `async with`, or await it. The lease is renewed at half its ttl until it is released, for at most
        `max_hold`. If it expires, the key stays closed for `delay` more seconds.

        `on_lost="cancel"` works only inside `async with`: the task there is cancelled when the lease is lost, and the
        block raises LeaseLost. A lease that was only awaited cancels no task, since it is unknown which one relies on
        it: enter it (`async with lease:`), check `lease.lost`, call `ensure()`, or give a function.
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
        """A lease of the key, or None if another owner holds it; does not wait. As with `lock`, `on_lost="cancel"`
        works only inside `async with lease:`."""
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
        """Acquires all keys or none, and raises Busy if it cannot; callers whose sets overlap do not deadlock. As with
        `lock`, `on_lost="cancel"` works only inside `async with`."""
        stored = keys_of("lock", keys, least=1)
        terms = self._context.terms(ttl, wait, delay)
        leased = self._leased(renew, max_hold, on_lost)

        async def acquire() -> AsyncLeaseSet:
            return AsyncLeaseSet(await self._run(acquiring_all(self._context, stored, terms, leased, purpose)))

        return Pending(acquire())

    async def resume(
        self, token: str, *, renew: bool = True, max_hold: Seconds | None = None, on_lost: OnLost = "cancel"
    ) -> AsyncLease:
        """Takes over a lease that another process acquired and handed over, under a new fence and with its ttl from
        now; raises Busy, which names the holder, if it was resumed before or is no longer held.

        The token is void from then on. A holder that handed it out and did not let go loses the lease (`resumed`). As
        with `lock`, `on_lost="cancel"` works only inside `async with lease:`.
        """
        given = token_to_resume(token)
        return await self._run(resuming(self._context, given, self._leased(renew, max_hold, on_lost, given.fence)))

    async def renew(self, token: str, *, ttl: Seconds | None = None) -> float:
        """Extends the lease of this token; returns the seconds left, or raises LeaseLost if it is lost."""
        return await self._run(renewing_token(self._context, read_token(token), ttl))

    async def release(self, token: str) -> Released:
        """Releases the lease of this token; returns whether it was still held."""
        return await self._run(releasing_token(self._context, read_token(token)))

    async def locks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[LockInfo]:
        """The locks, held or closed, whose key starts with `prefix` and follows `after`, in key order."""
        return await self._run(listed(prefix, after, limit))

    async def clear_lock(self, key: str, *, reason: str) -> bool:
        """Ends the current hold of the lock, and no later one; False if it was not held.

        Its holder learns of it at the next renewal or release; until then only fences stop its writes. The clear is
        logged with the reason, and hooks receive `Cleared`. Raises InvalidInput without a reason.
        """
        return await self._run(clearing(self._context, stored_key("lock", key), checked_reason(reason)))

    def _leased(
        self, renew: bool, max_hold: Seconds | None, on_lost: OnLost, before: int = 0
    ) -> Callable[[Hold], AsyncLease]:
        """What makes the lease of a hold; `before`: the fence of the hold that it takes over."""
        if not before and renew and max_hold is None and on_lost == "cancel":
            return self._usual_lease
        callback = None if on_lost == "cancel" else loss_callback(on_lost, cancels=True)
        most = longest_hold(max_hold)

        def leased(hold: Hold) -> AsyncLease:
            if callback is not None:
                hold.on_lost = callback
            hold.keep(renew, most)
            lease = AsyncLease(hold, self._context, self._run, cancel=on_lost == "cancel")
            return kept(self._context, lease, before)

        return leased

    def _usual_lease(self, hold: Hold) -> AsyncLease:
        """The usual lease, which is renewed until it is released."""
        hold.renew_at = renewal(hold.sent, hold.ttl)
        return kept(self._context, AsyncLease(hold, self._context, self._run, cancel=True))
