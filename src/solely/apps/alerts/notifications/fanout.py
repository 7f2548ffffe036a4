"""The fanout: a notification goes to all publishers that want it, at once; each succeeds or fails on its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from ..figures import PUBLISH_SECONDS, PUBLISHER_FAILURES
from ..model import Alert, Notification
from ..publishers import Publisher, PublishFailed
from ..worker.tools import Tools

log = structlog.get_logger("solely.alerts")


class Sent(NamedTuple):
    """What became of a publish at each publisher that wanted it, and how long it took altogether."""

    failures: dict[str, PublishFailed | None]  # publisher → how it failed; None: its receiver has it
    seconds: float

    @property
    def reached(self) -> bool:
        """True if somebody was told, or nobody wanted to be: it need not be published again as a whole."""
        return not self.failures or None in self.failures.values()

    @property
    def failed(self) -> dict[str, PublishFailed]:
        """Those that failed."""
        return {name: failure for name, failure in self.failures.items() if failure is not None}

    @property
    def results(self) -> dict[str, str]:
        """In words: "ok", or how it failed."""
        return {name: "ok" if failure is None else str(failure) for name, failure in self.failures.items()}


class Fanout:
    """All publishers of the settings."""

    def __init__(self, publishers: Sequence[Publisher], tools: Tools) -> None:
        self._publishers = {each.name: each for each in publishers}
        self._metrics = tools.metrics
        self._tracing = tools.tracing

    def wanted(self, alert: Alert) -> bool:
        """True if any publisher wants alerts like this one."""
        return any(each.wants(alert) for each in self._publishers.values())

    async def publish(self, notification: Notification) -> Sent:
        """Publishes to all that want it; never raises what a publisher raised."""
        wanting = [each for each in self._publishers.values() if each.wants(notification.alert)]
        started = time.perf_counter()
        with self._tracing.span("publish", notification.alert):
            failures = await asyncio.gather(*(self._publish(each, notification) for each in wanting))
        names = (each.name for each in wanting)
        return Sent(dict(zip(names, failures, strict=True)), time.perf_counter() - started)

    async def publish_to(self, name: str, notification: Notification) -> PublishFailed | None:
        """Publishes to this one; how it failed, or None. One that is no longer in the settings fails for good."""
        publisher = self._publishers.get(name)
        if publisher is None:
            return PublishFailed(f"{name}: there is no publisher of this name in the settings", permanent=True)
        return await self._publish(publisher, notification)

    async def _publish(self, publisher: Publisher, notification: Notification) -> PublishFailed | None:
        started = time.perf_counter()
        failure: PublishFailed | None = None
        try:
            await publisher.publish(notification)
        except PublishFailed as known:
            failure = known
        except Exception as error:
            log.exception("publisher_broken", publisher=publisher.name, notification=notification.id)
            failure = PublishFailed(f"{publisher.name}: {type(error).__name__}; the service's log says more")
        self._metrics.observe(PUBLISH_SECONDS, time.perf_counter() - started, publisher.name)
        if failure is not None:
            self._metrics.count(PUBLISHER_FAILURES, publisher.name)
            log.warning(
                "publish_failed",
                publisher=publisher.name,
                notification=notification.id,
                fingerprint=notification.alert.fingerprint,
                severity=notification.alert.severity,
                error=str(failure),
            )
        return failure
