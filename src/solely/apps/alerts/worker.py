"""What one worker process knows by itself: its capacity, and the refusals of the last moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from ... import Limited, SolelyError
from ...kit import TOO_MANY, Problem, RequestLimit
from .decision import QUIET as QUIET
from .decision import RESERVED as RESERVED
from .decision import Decision
from .settings import AlertsSettings

T = TypeVar("T")

FRESH = 0.2  # seconds that a refusal is cached: a change by others shows that soon, and a storm asks 5 times a second
MOST = 10_000  # cached keys: some megabytes; beyond that the oldest is evicted
_SOON = 1.0  # seconds: most reservations that are in flight now have ended by then


class Refusal(NamedTuple):
    """Why an alert is suppressed, until when on this process's clock, and the trace of the alert that was sent."""

    reason: str
    ends: float
    trace: str = ""

    @classmethod
    def of(cls, decision: Decision, trace: str = "") -> Refusal:
        """The refusal of this decision, from now on."""
        return cls(decision.reason, time.monotonic() + decision.left if decision.left else 0.0, trace)

    @property
    def left(self) -> float:
        """Seconds until a retry may succeed."""
        return max(0.0, self.ends - time.monotonic())


class RefusalCache:
    """Refusals of the last moment, and decisions in flight. It keeps an alert storm away from the store; the store
    decides, and no entry outlives FRESH."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Refusal]] = {}  # key → when the entry expires, and the refusal
        self._in_flight: dict[str, asyncio.Future[Refusal | None]] = {}

    def get(self, key: str) -> Refusal | None:
        """The cached refusal of this key, if it has not expired."""
        fresh, refusal = self._known.get(key, (0.0, None))
        now = time.monotonic()
        return refusal if refusal is not None and now < fresh and now < refusal.ends else None

    def remember(self, key: str, refusal: Refusal) -> None:
        """Caches the refusal for FRESH seconds."""
        self._known.pop(key, None)
        self._known[key] = time.monotonic() + FRESH, refusal
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def forget(self, key: str) -> None:
        """Evicts this key."""
        self._known.pop(key, None)

    def forget_all(self, prefix: str) -> None:
        """Evicts every key with this prefix."""
        for key in [key for key in self._known if key.startswith(prefix)]:
            del self._known[key]

    async def decide_once(self, key: str, decide: Callable[[], Awaitable[tuple[T | None, Refusal]]]) -> T | Refusal:
        """Calls `decide` once for all concurrent callers: the first gets what was granted, the others the refusal.

        `decide` returns what was granted (or None) and the refusal for everybody else. A SolelyError is raised to all
        callers. If the first caller is cancelled, the next one decides.
        """
        while (other := self._in_flight.get(key)) is not None:
            shared = await asyncio.shield(other)
            if shared is not None:
                return shared
        future = self._in_flight[key] = asyncio.get_running_loop().create_future()
        refusal: Refusal | None = None
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

    def enter(self) -> None:
        """Counts a reservation in flight; raises Limited if there are too many."""
        if self.active >= self._most:
            raise Limited(self._full(), left=_SOON)
        self.active += 1

    def take_over(self) -> None:
        """Counts a reservation that must go on regardless of the bound."""
        self.active += 1

    def leave(self) -> None:
        """Counts a reservation as ended."""
        self.active -= 1

    def _full(self) -> str:
        return f"{self._most} alerts are being published by this worker (max_active)"
