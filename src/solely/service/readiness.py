"""Whether the service can grant: checks by name, of the store, of the database, and of applications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from ..client import AsyncClient
from ..data import Database
from ..errors import SolelyError, StoreError, StoreUnavailable
from ..model import Finding
from ..ops import Acquire, Release
from ..owner import fresh_owner
from ..rules import MAX_INFO_BYTES
from ..stores import AsyncStore

log = structlog.get_logger("solely.health")

FRESH = 1.0  # seconds that the result of a check is reused: many load balancers probe, and the store is queried once
PATIENCE = 2.0  # seconds for a check: less than the timeout of usual probes, so that they get the response
TRIAL_HOLDS = 4  # each of the largest size: together more than the rest of a disk page, so that a full disk shows
TRIAL_TTL = 2 * PATIENCE  # seconds until they expire if the check is cancelled


class Readiness:
    """Checks by name, each of which returns ok, warning or error. Applications add their own.

    The cause of an error is logged, and reported by `solely doctor`.
    """

    def __init__(self) -> None:
        self.checks: dict[str, Callable[[], Awaitable[str]]] = {}
        self._levels: dict[str, str] = {}
        self._checked = -FRESH
        self._checking = asyncio.Lock()

    async def levels(self) -> dict[str, str]:
        """The level of each check; runs them at most once in FRESH seconds."""
        async with self._checking:
            if time.monotonic() - self._checked >= FRESH:
                levels = await asyncio.gather(*map(_level, self.checks, self.checks.values()))
                self._levels = dict(zip(self.checks, levels, strict=True))
                self._checked = time.monotonic()
        return self._levels


async def _level(name: str, check: Callable[[], Awaitable[str]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE):
            return await check()
    except (SolelyError, TimeoutError) as error:
        log.warning("unready", check=name, error=str(error) or f"timed out after {PATIENCE:g} s")
        return "error"


async def store_level(once: AsyncClient, store: AsyncStore) -> str:
    """The worst level of all findings about the store."""
    found = {finding.level: finding for finding in await findings(once, store)}
    worst = next((level for level in ("error", "warning") if level in found), "ok")
    if worst == "error":
        log.warning("unready", check="store", error=found[worst].text)
    return worst


async def findings(once: AsyncClient, store: AsyncStore) -> list[Finding]:
    """The findings of the store's own check, and whether it can grant: a full or read-only store replies, but
    cannot."""
    return [*await once.check(), await _trial(store)]


async def _trial(store: AsyncStore) -> Finding:
    """Acquires and releases a few keys that nobody else uses, in the same queue as all other ops."""
    owner = fresh_owner()
    keys = [f"lock/solely:readiness:{owner}:{n}" for n in range(TRIAL_HOLDS)]
    taken = [Acquire(key, owner, TRIAL_TTL, "x" * MAX_INFO_BYTES) for key in keys]
    try:
        replies = await store.perform([*taken, *(Release(key, owner) for key in keys)])
    except StoreUnavailable:
        raise
    except StoreError as error:  # of all ops
        replies = [error]
    wrong = next((str(reply) for reply in replies if isinstance(reply, StoreError)), "")
    return (
        Finding("error", "grants", f"the store grants nothing: {wrong}")
        if wrong
        else Finding("ok", "grants", "the store grants")
    )


async def data_level(data: Database) -> str:
    """Returns ok if the database of applications is available."""
    await data.check()
    return "ok"
