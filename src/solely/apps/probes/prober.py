"""A probe: a check of a target under the mutex of its URL, so that only one runs at a time over all replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import msgspec
import structlog

from ... import AsyncReservation, ClientClosed, StoreError
from ...kit import Answer
from .checks import Outcome
from .model import BUSY, LOCKED, LOST, NOT_PERMITTED, ProbeResult, ProbeTarget
from .mutex import ProbeMutex

T = TypeVar("T")
log = structlog.get_logger("solely.probes")

PAUSE = 0.1  # seconds between the iterations of a login test, varied like the backoff: the document's
ITERATIONS = 3  # of a login test: enough to see a session that sticks only at times
MOST_ITERATIONS = 100
_SPARE = 5.0  # seconds beyond a probe's timeout for which its mutex is renewed: a busy machine ends it late


class Checks(Protocol):
    """What performs a single check; see `checks.Checker`."""

    async def check(self, target: ProbeTarget) -> Outcome: ...


class SyntheticLoginResult(Answer):
    """The result of a login test. `timings` are the seconds of each phase on average, and of the slowest iteration as
    `slowest`; `attempts` counts the tries at the mutex; `error` is that of the first iteration that failed."""

    url: str
    passed: bool
    skipped: str = ""
    error: str = ""
    iterations: int = 0
    failures: int = 0
    attempts: int = 0
    timings: dict[str, float] = msgspec.field(default_factory=dict)


class Prober:
    """Probes targets, each under the mutex of its URL, and at most `at_once` at a time. A probe waits for a slot up to
    `patience` seconds, or else up to its own timeout, and is then skipped. Probes that are not `scheduled` let those
    that are acquire a mutex first."""

    def __init__(
        self,
        mutex: ProbeMutex,
        checks: Checks,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        *,
        at_once: int = 500,
        patience: float | None = None,
        scheduled: bool = True,
    ) -> None:
        self.mutex, self._checks, self._sleep, self._scheduled = mutex, checks, sleep, scheduled
        self._slots, self._patience = asyncio.Semaphore(at_once), patience

    async def probe(self, target: ProbeTarget) -> tuple[ProbeResult, Outcome]:
        """The result. It is skipped if no slot is free, if another probe of the URL is running, if the mutex expired
        meanwhile, or if the guard does not permit the address. Raises StoreError if the store cannot be reached."""
        async with self._slot(target) as free:
            return await self._probe(target) if free else (_skipped(target, time.time(), BUSY, 0), Outcome())

    async def _probe(self, target: ProbeTarget) -> tuple[ProbeResult, Outcome]:
        at, outcome = time.time(), Outcome()
        longest = target.timeout + _SPARE
        held, attempts = await self.mutex.acquire(target.url, max_hold=longest, scheduled=self._scheduled)
        if not held:
            return _skipped(target, at, LOCKED, attempts), outcome
        began = time.perf_counter()
        found, ours = await self._under(held, target.url, lambda: self._checks.check(target))
        if found is None or not ours:
            return _skipped(target, at, LOST, attempts), outcome
        return _result(target, at, time.perf_counter() - began, found, attempts, held.fence), found

    async def run_synthetic_login_test(
        self, url: str, *, iterations: int = ITERATIONS, target: ProbeTarget | None = None
    ) -> SyntheticLoginResult:
        """Probes the URL so many times, 0.1 s ± 20 % apart, under its mutex. `target` says how, with its login flow; by
        default the URL is requested. It has passed if every iteration has."""
        wanted = target or ProbeTarget(name="login-test", url=url)
        async with self._slot(wanted) as free:
            if not free:
                return SyntheticLoginResult(url=url, passed=False, skipped=BUSY)
            return await self._login_test(url, iterations, wanted)

    async def _login_test(self, url: str, iterations: int, wanted: ProbeTarget) -> SyntheticLoginResult:
        longest = iterations * (wanted.timeout + PAUSE * 2) + _SPARE
        held, attempts = await self.mutex.acquire(url, max_hold=longest, scheduled=self._scheduled)
        if not held:
            return SyntheticLoginResult(url=url, passed=False, skipped=LOCKED, attempts=attempts)
        outcomes, ours = await self._under(held, url, lambda: self._iterate(wanted, iterations))
        if outcomes is None or not ours:
            return SyntheticLoginResult(url=url, passed=False, skipped=LOST, attempts=attempts)
        return _summed(url, outcomes, attempts)

    async def _iterate(self, target: ProbeTarget, iterations: int) -> list[Outcome]:
        outcomes = []
        for number in range(iterations):
            outcomes.append(await self._checks.check(target))
            if number + 1 < iterations:
                await self._sleep(self.mutex.apply_jitter(PAUSE))
        return outcomes

    @asynccontextmanager
    async def _slot(self, target: ProbeTarget) -> AsyncIterator[bool]:
        """True if there is a slot, which is freed after the block."""
        try:
            async with asyncio.timeout(target.timeout if self._patience is None else self._patience):
                await self._slots.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._slots.release()

    async def _under(self, held: AsyncReservation, url: str, work: Callable[[], Awaitable[T]]) -> tuple[T | None, bool]:
        """The result of work that is stopped (None) if the mutex is lost, and whether the mutex was ours to the end:
        the store decides that at the release, also for a holder that was frozen. It is always released."""
        working, ours = asyncio.ensure_future(work()), False
        try:
            while not working.done() and not held.lost:
                await asyncio.wait((working,), timeout=max(held.remaining(), 0.001))
            found = working.result() if working.done() else None
        finally:
            working.cancel()
            try:
                ours = await self.mutex.release(url, held, scheduled=self._scheduled)
            except (StoreError, ClientClosed) as error:  # it expires by itself
                log.warning("mutex_not_released", key=self.mutex.target_key(url), error=str(error))
        return found, ours


def _skipped(target: ProbeTarget, at: float, why: str, attempts: int) -> ProbeResult:
    return ProbeResult(target=target.name, url=target.url, at=at, passed=False, skipped=why, attempts=attempts)


def _result(target: ProbeTarget, at: float, seconds: float, found: Outcome, attempts: int, fence: int) -> ProbeResult:
    return ProbeResult(
        target=target.name,
        url=target.url,
        at=at,
        passed=not found.error,
        skipped=NOT_PERMITTED if found.refused else "",
        error=found.error,
        status=found.status,
        seconds=seconds,
        phases=dict(found.phases),
        steps=dict(found.steps),
        certificate_expires=found.certificate_expires,
        attempts=attempts,
        fence=fence,
    )


def _summed(url: str, outcomes: list[Outcome], attempts: int) -> SyntheticLoginResult:
    errors = [each.error for each in outcomes if each.error]
    phases = {name for each in outcomes for name in each.phases}
    timings = {name: sum(each.phases.get(name, 0.0) for each in outcomes) / len(outcomes) for name in sorted(phases)}
    slowest = max(sum(each.phases.values()) for each in outcomes)
    return SyntheticLoginResult(
        url=url,
        passed=not errors,
        error=errors[0] if errors else "",
        iterations=len(outcomes),
        failures=len(errors),
        attempts=attempts,
        timings=timings | {"slowest": slowest},
    )
