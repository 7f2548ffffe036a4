"""Which target is probed when: one schedule per target, whose ticks all replicas share, so that each interval is probed
once, whoever does it. A slow target delays no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import structlog

from ... import AsyncClient, AsyncLease, AsyncSchedule, StoreError, Tick
from ...kit import Metrics, part_of, reserved
from .figures import LATENESS, PROBE_SECONDS, PROBED
from .history import ProbeHistory
from .model import ProbeResult, ProbeTarget
from .prober import Prober

log = structlog.get_logger("solely.probes")


class Runner:
    """The schedules of one worker."""

    def __init__(
        self,
        once: AsyncClient,
        prober: Prober,
        on_demand: Prober,
        history: ProbeHistory,
        metrics: Metrics,
        lock_timeout: float,
    ) -> None:
        self._once, self._history, self._metrics = once, history, metrics
        self._prober, self._on_demand = prober, on_demand
        self._ttl = lock_timeout  # of a tick: taken over earlier, it would find the mutex of the dead replica held
        self._running: dict[str, tuple[ProbeTarget, AsyncSchedule, asyncio.Task[None]]] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many targets are probed."""
        return len(self._running)

    def replace_prober(self, prober: Prober) -> None:
        """Probes with this one from now on, as the demo does."""
        self._prober = self._on_demand = prober

    def follow(self, targets: Mapping[str, ProbeTarget]) -> None:
        """Probes these targets from now on, and no others. A probe that is running ends by itself."""
        for name in [name for name, (known, _, _) in self._running.items() if targets.get(name) != known]:
            self._stop(name)
        for name, target in targets.items():
            if name not in self._running:
                schedule = self._schedule(target)
                self._running[name] = target, schedule, asyncio.create_task(self._run(target, schedule))

    async def stop(self) -> None:
        """Ends all schedules, and waits for the probes that are running."""
        for name in list(self._running):
            self._stop(name)
        await asyncio.gather(*self._stopping, return_exceptions=True)

    async def forget(self, name: str) -> None:
        """Removes the schedule of a target that is gone from the store."""
        await self._once.forget_schedule(_due(name), reason="the target was removed")

    async def probe(self, target: ProbeTarget, due: float | None = None) -> ProbeResult:
        """Probes a target now; the result is counted and recorded. What is not `due` uses no slot of what is."""
        result, _ = await (self._on_demand if due is None else self._prober).probe(target)
        result.due = due
        self._metrics.count(PROBED, result.skipped or ("passed" if result.passed else "failed"))
        if not result.skipped:
            self._metrics.observe(PROBE_SECONDS, result.seconds)
        self._history.add(target, result)
        return result

    def _schedule(self, target: ProbeTarget) -> AsyncSchedule:
        """Targets of the same interval are spread over it: each has a phase of its own."""
        return self._once.every(_due(target.name), target.schedule or target.interval, tz=target.tz, ttl=self._ttl)

    def _stop(self, name: str) -> None:
        _, schedule, task = self._running.pop(name)
        schedule.stop()
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _run(self, target: ProbeTarget, schedule: AsyncSchedule) -> None:
        async def probe(tick: Tick[AsyncLease]) -> None:
            due = tick.at.timestamp()
            self._metrics.observe(LATENESS, max(0.0, time.time() - due))
            await self._tick(target, due)

        await schedule.run(probe)

    async def _tick(self, target: ProbeTarget, due: float) -> None:
        """A failure of the store is logged: the next tick is tried all the same."""
        try:
            await self.probe(target, due)
        except StoreError as error:
            log.warning("probe_failed", target=target.name, error=str(error))


def _due(name: str) -> str:
    return reserved("probes", f"due/{part_of(name)}")
