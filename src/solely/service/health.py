"""Health for machines: alive, ready, how it goes, which version. What is public says nothing worth hiding."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from .. import __version__
from ..client import AsyncClient
from ..data import Database
from ..errors import SolelyError, StoreError, StoreUnavailable
from ..model import Finding
from ..ops import Acquire, Release
from ..owner import fresh_owner
from ..rules import MAX_INFO_BYTES
from ..stores import AsyncStore
from .routes import PUBLIC, READ, Answer, Call, Reply, Route

log = structlog.get_logger("solely.health")

FRESH = 1.0  # seconds that the answer of a check is used again: probes of many balancers ask the store once
PATIENCE = 2.0  # seconds for a check: less than the timeout of usual probes, so that they hear the reason
TRIED = 4  # holds, each as large as one can be: more than fits into what is left of a page, so that a full disk shows
TRIED_FOR = 2 * PATIENCE  # seconds until they end by themselves, should the check be broken off


class Alive(Answer):
    """The process answers."""

    status: str


class Ready(Answer):
    """`status` is ok or unready; each check is ok, warning or error."""

    status: str
    checks: dict[str, str]


class Version(Answer):
    """The version that runs, and since when, in seconds."""

    version: str
    up: float


_started = time.monotonic()


def up() -> float:
    """Seconds since the service began."""
    return round(time.monotonic() - _started, 3)


class Readiness:
    """What must be right before work may come: checks by name, each of which answers ok, warning or error.

    Applications add their own. Why something is wrong is for the log and for `solely doctor`.
    """

    def __init__(self) -> None:
        self.checks: dict[str, Callable[[], Awaitable[str]]] = {}
        self._levels: dict[str, str] = {}
        self._asked = -FRESH
        self._asking = asyncio.Lock()

    async def levels(self) -> dict[str, str]:
        """The level of each check, asked at most once in FRESH seconds."""
        async with self._asking:
            if time.monotonic() - self._asked >= FRESH:
                levels = await asyncio.gather(*map(_level, self.checks, self.checks.values()))
                self._levels = dict(zip(self.checks, levels, strict=True))
                self._asked = time.monotonic()
        return self._levels


async def _level(name: str, check: Callable[[], Awaitable[str]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE):
            return await check()
    except (SolelyError, TimeoutError) as error:
        log.warning("unready", check=name, error=str(error) or f"no answer in {PATIENCE:g} s")
        return "error"


async def store_level(once: AsyncClient, store: AsyncStore) -> str:
    """The worst that is found wrong with the store."""
    found = {finding.level: finding for finding in await examined(once, store)}
    worst = next((level for level in ("error", "warning") if level in found), "ok")
    if worst == "error":
        log.warning("unready", check="store", error=found[worst].text)
    return worst


async def examined(once: AsyncClient, store: AsyncStore) -> list[Finding]:
    """What the store's own check found, and whether it can grant: a full or read-only one answers, and cannot."""
    return [*await once.check(), await _tried(store)]


async def _tried(store: AsyncStore) -> Finding:
    """Takes and lets go of a few holds that nobody else wants, in the line in which all ops wait."""
    owner = fresh_owner()
    keys = [f"lock/solely:readiness:{owner}:{n}" for n in range(TRIED)]
    taken = [Acquire(key, owner, TRIED_FOR, "x" * MAX_INFO_BYTES) for key in keys]
    try:
        replies = await store.perform([*taken, *(Release(key, owner) for key in keys)])
    except StoreUnavailable:
        raise
    except StoreError as error:  # of all ops
        replies = [error]
    wrong = next((str(reply) for reply in replies if isinstance(reply, StoreError)), "")
    return Finding("error", "grants", f"nothing is granted: {wrong}") if wrong else Finding("ok", "grants", "it grants")


async def data_level(data: Database) -> str:
    """Whether the database of applications answers."""
    await data.check()
    return "ok"


async def healthz(call: Call[None, None]) -> Alive:
    """Alive."""
    return Alive(status="ok")


async def readyz(call: Call[None, None]) -> Ready | Reply:
    """Ready to grant: the store answers, and the service is not stopping."""
    checks = {**await call.service.readiness.levels(), "granting": "error" if call.service.stopping.is_set() else "ok"}
    if "error" in checks.values():
        return Reply(503, Ready(status="unready", checks=checks), ((b"retry-after", b"1"),))
    return Ready(status="ok", checks=checks)


async def metrics(call: Call[None, None]) -> Response:
    """All figures, in Prometheus's text format."""
    return Response(call.service.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})


async def version(call: Call[None, None]) -> Version:
    """Which version runs."""
    return Version(version=__version__, up=up())


ROUTES = [
    Route("GET", "/healthz", PUBLIC, healthz, "Alive", tag="service"),
    Route("GET", "/readyz", PUBLIC, readyz, "Ready to grant", others={503: Ready}, tag="service"),
    Route("GET", "/-/healthy", PUBLIC, healthz, "Alive, as Prometheus spells it", tag="service"),
    Route("GET", "/-/ready", PUBLIC, readyz, "Ready, as Prometheus spells it", others={503: Ready}, tag="service"),
    Route("GET", "/metrics", READ, metrics, "Figures for Prometheus", media="text/plain", tag="service"),
    Route("GET", "/version", READ, version, "Which version runs", tag="service"),
]
