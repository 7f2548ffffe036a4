"""The gate: distinguishes a burst of one environment from usual traffic. All workers share one sliding window in the
store; a worker that it refuses diverts all triggers for the hold, and asks nobody meanwhile."""

from __future__ import annotations

import time
from collections import deque

import structlog

from ... import AsyncClient, DataError, StoreError
from ...kit import Metrics
from .figures import GATE
from .model import own
from .settings import TriggersSettings

log = structlog.get_logger("solely.triggers")

_AWAY = 1.0  # seconds that an unreachable store is not asked: triggers pass meanwhile, and do not wait for it each


def gate_name(environment: str) -> str:
    """The window that all workers share for this environment."""
    return own(f"gate/{environment}")


class EnvironmentGate:
    """What this worker knows of one environment."""

    def __init__(self, threshold: int) -> None:
        self.tripped_until = 0.0  # on the monotonic clock
        self._diverted: deque[float] = deque(maxlen=threshold + 1)

    def holds(self, now: float, window: float, hold: float) -> bool:
        """True if the gate is tripped; a burst that goes on extends it."""
        if now >= self.tripped_until:
            return False
        self._diverted.append(now)
        if len(self._diverted) == self._diverted.maxlen and self._diverted[0] > now - window:
            self.tripped_until = now + hold
        return True


class Gate:
    """Decides where a trigger goes. It never fails: without the store, triggers pass."""

    def __init__(self, once: AsyncClient, settings: TriggersSettings, metrics: Metrics) -> None:
        self._once, self._settings, self._metrics = once, settings, metrics
        self._environments: dict[str, EnvironmentGate] = {}
        self._shadow = settings.gate == "shadow"
        self._ask_from = 0.0

    async def diverts(self, environment: str) -> bool:
        """True if this trigger goes to the buffer: there were more than `trip_threshold` in `trip_window`, now or less
        than `trip_hold` ago."""
        if self._settings.gate == "off":
            return False
        over = await self._is_burst(environment)
        decision = "unknown" if over is None else "pass" if not over else "shadow" if self._shadow else "divert"
        self._metrics.count(GATE, decision)
        return decision == "divert"

    def tripped_for(self, environment: str) -> float:
        """Seconds that this worker still diverts; 0 if it does not."""
        known = self._environments.get(environment)
        return 0.0 if known is None else max(0.0, known.tripped_until - time.monotonic())

    def tripped(self, environment: str) -> bool:
        """True if this worker diverts now."""
        return self.tripped_for(environment) > 0

    async def _is_burst(self, environment: str) -> bool | None:
        """None if the store does not say."""
        settings, now = self._settings, time.monotonic()
        known = self._environments.setdefault(environment, EnvironmentGate(settings.trip_threshold))
        if known.holds(now, settings.trip_window, settings.trip_hold):
            return True
        if now < self._ask_from:
            return None
        try:
            admitted = await self._once.limit(
                gate_name(environment), limit=settings.trip_threshold, per=settings.trip_window
            )
        except StoreError as error:
            if isinstance(error, DataError):
                raise
            self._ask_from = time.monotonic() + _AWAY
            log.warning("gate_unknown", environment=environment, error=str(error))
            return None
        if not admitted:
            known.tripped_until = time.monotonic() + settings.trip_hold
        return not admitted
