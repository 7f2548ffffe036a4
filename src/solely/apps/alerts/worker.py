"""What one worker process knows by itself: its capacity, and the refusals of the last moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ... import Limited, SolelyError
from ...kit import TOO_MANY, Problem, RequestLimit
from .decision import SEND, Decision
from .settings import AlertsSettings

T = TypeVar("T")

FRESH = 0.2  # seconds that a refusal is cached: a change by others shows that soon, and a storm asks 5 times a second
MOST = 10_000  # cached keys: some megabytes; beyond that the oldest is evicted
_SOON = 1.0  # seconds: most reservations that are in flight now have ended by then


class RefusalCache:
    """Refusals of the last moment, and decisions in flight. It keeps an alert storm away from the store; the store
    decides, and no entry outlives FRESH."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, Decision]] = {}  # key → expiry of the entry, end of the refusal, it
        self._in_flight: dict[str, asyncio.Future[Decision | None]] = {}

    def get(self, key: str) -> Decision | None:
        """The cached refusal of this key, if it has not expired."""
        fresh, ends, decision = self._known.get(key, (0.0, 0.0, SEND))
        now = time.monotonic()
        return decision._replace(left=ends - now) if now < fresh and now < ends else None

    def remember(self, key: str, decision: Decision) -> None:
        """Caches the refusal for FRESH seconds, or as long as it applies."""
        self._known.pop(key, None)
        now = time.monotonic()
        self._known[key] = now + FRESH, now + decision.left, decision
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def forget(self, key: str) -> None:
        """Evicts this key."""
        self._known.pop(key, None)

    def forget_all(self, prefix: str) -> None:
        """Evicts every key with this prefix."""
        for key in [key for key in self._known if key.startswith(prefix)]:
            del self._known[key]

    async def decide_once(self, key: str, decide: Callable[[], Awaitable[tuple[T | None, Decision]]]) -> T | Decision:
        """Calls `decide` once for all concurrent callers: the first gets what was granted, the others the refusal.

        `decide` returns what was granted (or None) and the refusal for everybody else. A SolelyError is raised to all
        callers. If the first caller is cancelled, the next one decides.
        """
        while (other := self._in_flight.get(key)) is not None:
            shared = await asyncio.shield(other)
            if shared is not None:
                return shared
        future = self._in_flight[key] = asyncio.get_running_loop().create_future()
        refusal: Decision | None = None
        try:
            granted, refusal = await decide()
        except SolelyError as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: there may be no other caller
            raise
        finally:
            del self._in_flight[key]
            if not future.done():
                future.set_result(refusal)
        self.remember(key, refusal)
        return refusal if granted is None else granted


class Capacity:
    """Bounds the requests per token and the reservations in flight. Work in flight is never evicted: excess requests
    are refused, with the time after which to retry."""

    def __init__(self, settings: AlertsSettings) -> None:
        self._requests = RequestLimit(settings.request_limit, settings.request_per)
        self._most = settings.max_active
        self.active = 0

    def check(self, principal: str) -> None:
        """Counts a request; raises Problem (429) if this principal or this worker is over its bound."""
        if self.active >= self._most:
            raise Problem(TOO_MANY, self._full(), again=_SOON)
        self._requests.check(principal)

    def enter(self, *, regardless: bool = False) -> None:
        """Counts a reservation in flight; raises Limited if there are too many, unless it must go on `regardless`."""
        if self.active >= self._most and not regardless:
            raise Limited(self._full(), left=_SOON)
        self.active += 1

    def leave(self) -> None:
        """Counts a reservation as ended."""
        self.active -= 1

    def _full(self) -> str:
        return f"{self._most} alerts are being published by this worker (max_active)"
