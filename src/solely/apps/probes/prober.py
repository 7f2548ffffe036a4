"""A probe: a check of a target under the mutex of its URL, so that only one runs at a time over all replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec
import structlog

from ... import AsyncReservation, ClientClosed, StoreError
from ...kit import Answer
from .checks import Outcome
from .model import LOCKED, ProbeResult, ProbeTarget
from .mutex import ProbeMutex

T = TypeVar("T")
log = structlog.get_logger("solely.probes")

PAUSE = 0.1  # seconds between the iterations of a login test, varied like the backoff: the document's
ITERATIONS = 3  # of a login test: enough to see a session that sticks only at times
MOST_ITERATIONS = 100
LOST = "lost"  # why the result of a probe is refused: the mutex had expired, and another probe may have run since
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
    """Probes targets, each under the mutex of its URL."""

    def __init__(
        self, mutex: ProbeMutex, checks: Checks, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self.mutex, self._checks, self._sleep = mutex, checks, sleep

    async def probe(self, target: ProbeTarget) -> tuple[ProbeResult, Outcome]:
        """The result. It is skipped if another probe of the URL is running, or if the mutex expired meanwhile. Raises
        StoreError if the store cannot be reached."""
        at, outcome = time.time(), Outcome()
        held, attempts = await self.mutex.acquire(target.url, max_hold=target.timeout + _SPARE)
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
        longest = iterations * (wanted.timeout + PAUSE * 2) + _SPARE
        held, attempts = await self.mutex.acquire(url, max_hold=longest)
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
                ours = await self.mutex.release(url, held)
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
