"""Locks and deduplication that several pods share, in Redis; and the factories, which choose by `STATE_BACKEND`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ... import AsyncClient, Event, InvalidInput
from ...kit import Lost, Retried, get_logger
from .concurrency import (
    SEEN,
    TTL,
    WAIT,
    DeduplicationStore,
    DistributedLock,
    MemoryDedup,
    MemoryLock,
    dedup_name,
    lock_name,
)

log = get_logger("solely.repos")

AZURE_PORT = 6380  # of Azure Cache for Redis, with TLS


class RedisLock:
    """A lock per key over all pods, in the order of arrival. Waits at most `wait` seconds, then raises Busy, which
    names the holder; raises StoreUnavailable if Redis does not answer. If the lease is lost, the block is cancelled and
    LeaseLost is raised. `credentials` as of a client."""

    def __init__(self, url: str, *, credentials: Any = None, wait: float = WAIT) -> None:
        self._once = AsyncClient(url, credentials=credentials, hooks=[log_failed_renewal])
        self._wait = wait

    @asynccontextmanager
    async def acquire(self, key: str, ttl_seconds: int = TTL) -> AsyncIterator[None]:
        """As DistributedLock."""
        async with self._once.lock(lock_name(key), ttl=ttl_seconds, wait=self._wait):
            yield

    async def aclose(self) -> None:
        """As DistributedLock."""
        await self._once.close()


class RedisDedup:
    """Remembers keys over all pods and restarts, as DeduplicationStore. `credentials` as of a client."""

    def __init__(self, url: str, *, credentials: Any = None) -> None:
        self._once = AsyncClient(url, credentials=credentials)

    async def is_seen(self, key: str) -> bool:
        """As DeduplicationStore."""
        return await self._once.seen(dedup_name(key))

    async def mark_seen(self, key: str, ttl_seconds: int = SEEN) -> None:
        """As DeduplicationStore."""
        await self._once.mark(dedup_name(key), ttl=ttl_seconds)

    async def first(self, key: str, ttl_seconds: int = SEEN) -> bool:
        """Marks the key in the same step; True for the one caller, over all pods, that was first."""
        return await self._once.first(dedup_name(key), ttl=ttl_seconds)

    async def aclose(self) -> None:
        """As DeduplicationStore."""
        await self._once.close()


def log_failed_renewal(event: Event) -> None:
    """Logs a renewal that was not answered, which is retried, and a lease that was lost."""
    if isinstance(event, Retried) and event.op == "Renew":
        error = event.error
    elif isinstance(event, Lost):
        error = f"the lease was lost: {event.how}"
    else:
        return
    facts = {"key": event.key.partition("/")[2], "error": error}
    log.warning("lock_renewal_failed: %(key)r: %(error)s", facts, extra=facts)


def create_lock(
    backend: str = "",
    redis_url: str = "",
    *,
    redis_host: str = "",
    redis_port: int = AZURE_PORT,
    azure_client_id: str = "",
    redis_ssl: bool = True,
) -> DistributedLock:
    """The lock of this backend, `memory` or `redis`; by default that of the variable STATE_BACKEND, else memory.

    With `redis_host`, the login is by Microsoft Entra ID, for the managed identity `azure_client_id` if there is one,
    and `redis_url` is not used. Raises InvalidInput if the backend is unknown, or Redis has no address.
    """
    if not _is_redis(backend):
        return MemoryLock()
    address = _address(redis_url, redis_host, redis_port, redis_ssl)
    return RedisLock(address, credentials=_entra(azure_client_id) if redis_host else None)


def create_dedup(
    backend: str = "",
    redis_url: str = "",
    *,
    redis_host: str = "",
    redis_port: int = AZURE_PORT,
    azure_client_id: str = "",
    redis_ssl: bool = True,
) -> DeduplicationStore:
    """The deduplication store of this backend; arguments and errors as of `create_lock`."""
    if not _is_redis(backend):
        return MemoryDedup()
    address = _address(redis_url, redis_host, redis_port, redis_ssl)
    return RedisDedup(address, credentials=_entra(azure_client_id) if redis_host else None)


def _is_redis(backend: str) -> bool:
    chosen = backend or os.environ.get("STATE_BACKEND", "") or "memory"
    if chosen not in ("memory", "redis"):
        raise InvalidInput(f"STATE_BACKEND {chosen!r:.40} is unknown; give memory or redis")
    return chosen == "redis"


def _address(url: str, host: str, port: int, ssl: bool) -> str:
    if not host and not url:
        raise InvalidInput("the backend redis needs redis_url, or redis_host for a login by Entra ID")
    return f"{'rediss' if ssl else 'redis'}://{host}:{port}" if host else url


def _entra(client_id: str) -> str:
    """Names the login by Microsoft Entra ID, for this managed identity or for the default one of the machine."""
    return f"entra: {client_id}" if client_id else "entra"
