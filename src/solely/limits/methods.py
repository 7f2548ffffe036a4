"""Client methods of limits: at most `limit` hits in any window of time."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from ..rules import Seconds, checked_limit, stored_key, ttl_seconds
from .calls import hitting
from .flow import LimitInfo
from .flow import limits as listed
from .handle import Admission, AsyncAdmission


class Limits(Methods):
    """Limits, for threads."""

    def limit(self, key: str, *, limit: int, per: Seconds) -> Admission:
        """Truthy for at most `limit` callers in any window of `per` seconds, across all processes; else has the time
        until the next hit is allowed."""
        stored = stored_key("limit", key)
        most, window = checked_limit(limit, self._store.max_limit), ttl_seconds(per, "per")
        return Admission(key, self._run(hitting(self._context, stored, most, window)), self._run)

    def limits(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[LimitInfo]:
        """The limits that refuse calls now, whose key starts with `prefix` and follows `after`, in key order."""
        return self._run(listed(prefix, after, limit))


class AsyncLimits(AsyncMethods):
    """Limits, for asyncio."""

    async def limit(self, key: str, *, limit: int, per: Seconds) -> AsyncAdmission:
        """Truthy for at most `limit` callers in any window of `per` seconds, across all processes; else has the time
        until the next hit is allowed."""
        stored = stored_key("limit", key)
        most, window = checked_limit(limit, self._store.max_limit), ttl_seconds(per, "per")
        return AsyncAdmission(key, await self._run(hitting(self._context, stored, most, window)), self._run)

    async def limits(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[LimitInfo]:
        """The limits that refuse calls now, whose key starts with `prefix` and follows `after`, in key order."""
        return await self._run(listed(prefix, after, limit))
