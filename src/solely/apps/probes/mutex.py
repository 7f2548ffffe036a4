"""The mutex of a target: one probe per URL at a time, over all replicas.

It is a reservation in the store: it expires by itself when its holder has died, is renewed while the probe runs, and
counts how often it was refused since it was acquired, which decides the next pause.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ... import AsyncClient, AsyncReservation, ClientClosed, StoreError
from ...kit import Answer, get_logger, reserved

log = get_logger("solely.probes")

KEY_DIGITS = 16  # hex digits of the digest of a URL: 64 bits, so that no two targets share a key by chance
PREFIX = reserved("probes", "mutex/")
WAITING = reserved("probes", "waiting/")  # marks: a scheduled probe was refused, and is the next one
_PAGE = 1_000  # keys of one listing: the most that a store lists at once


class MutexConfig(Answer):
    """The settings of the mutex, by the document's names."""

    backoff_sequence_sec: list[float]
    jitter_pct: float
    lock_timeout_sec: float


class MutexStatus(Answer):
    """The mutexes of all replicas: how many are held, their keys, and how often each was refused since it was
    acquired."""

    active_probes: int
    active_probe_keys: list[str]
    backoff_attempts: dict[str, int]
    config: MutexConfig
    public_base_url: str


class ProbeMutex:
    """The mutexes of one replica."""

    def __init__(
        self,
        once: AsyncClient,
        *,
        lock_timeout: float = 60.0,
        backoff: tuple[float, ...] = (2.0, 5.0, 10.0),
        jitter: float = 0.2,
        retries: int = 1,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self._once, self._sleep, self._chance = once, sleep, chance or random.Random()
        self._lock_timeout, self._backoff, self._jitter, self._retries = lock_timeout, backoff, jitter, retries
        self._waiting = set[str]()  # keys for which this replica has announced that a scheduled probe waits

    @staticmethod
    def target_key(url: str) -> str:
        """The key of this URL: the first 16 hex digits of its SHA-256."""
        return hashlib.sha256(url.encode()).hexdigest()[:KEY_DIGITS]

    def apply_jitter(self, base: float) -> float:
        """The interval, varied by at most the share `jitter` in either direction."""
        spread = base * self._jitter
        return base + self._chance.uniform(-spread, spread)

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after the refusal of this number, from 1."""
        return self.apply_jitter(self._backoff[min(attempt, len(self._backoff)) - 1])

    async def acquire(
        self, url: str, *, max_hold: float, scheduled: bool = True
    ) -> tuple[AsyncReservation | None, int]:
        """The reservation, truthy if it is ours, and the number of tries. It is renewed for at most `max_hold` seconds.

        While another probe holds it, it is tried again after a pause, at most `retries` times. A probe that is not
        `scheduled` does not acquire it either while a scheduled one waits for it: callers, who may ask again and again,
        never keep a target from being probed.
        """
        key = self.target_key(url)
        for attempt in range(1, self._retries + 2):
            held = await self._reserve(key, max_hold, scheduled)
            if held:
                log.debug("PROBE MUTEX: Acquired lock for %s", key)
                break
            pause = self.backoff(1 if held is None else held.count)
            log.info("PROBE MUTEX: Lock held for %s, backoff=%.1fs", key, pause)
            if attempt <= self._retries:
                await self._sleep(pause)
        return held, attempt

    async def _reserve(self, key: str, max_hold: float, scheduled: bool) -> AsyncReservation | None:
        """The reservation, falsy if another probe holds it; None if a scheduled one waits for it."""
        if not scheduled and await self._once.seen(WAITING + key):
            return None
        held = await self._once.reserve(PREFIX + key, hold=self._lock_timeout, quiet=0, max_hold=max_hold)
        if scheduled and not held:
            self._waiting.add(key)
            await self._once.mark(WAITING + key, ttl=self._lock_timeout)
        return held

    async def release(self, url: str, held: AsyncReservation, *, scheduled: bool = True) -> bool:
        """Frees the mutex; False if it was no longer ours: it had expired, and another probe may have run since."""
        key = self.target_key(url)
        freed = await held.release()
        log.debug("PROBE MUTEX: Released lock for %s", key)
        if scheduled and key in self._waiting:
            self._waiting.discard(key)
            with suppress(StoreError, ClientClosed):  # the mark expires by itself
                await self._once.forget(WAITING + key)
        return freed

    async def status(self, public_base_url: str = "") -> MutexStatus:
        """What is held now, over all replicas."""
        refused: dict[str, int] = {}
        page = await self._once.reservations(PREFIX, limit=_PAGE)
        while page:
            refused |= {each.key.removeprefix(PREFIX): each.suppressed for each in page}
            page = await self._once.reservations(PREFIX, after=page[-1].key, limit=_PAGE) if len(page) == _PAGE else []
        return MutexStatus(
            active_probes=len(refused),
            active_probe_keys=list(refused),
            backoff_attempts={key: count for key, count in refused.items() if count},
            config=MutexConfig(
                backoff_sequence_sec=list(self._backoff), jitter_pct=self._jitter, lock_timeout_sec=self._lock_timeout
            ),
            public_base_url=public_base_url,
        )
