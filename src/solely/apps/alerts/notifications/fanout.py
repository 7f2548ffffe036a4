"""The fanout: a notification goes to all publishers that want it, concurrently; each succeeds or fails on its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from ..figures import PUBLISH_SECONDS, PUBLISHER_FAILURES
from ..model import Alert, Notification
from ..publishers import Publisher, PublishFailed
from ..records.history import OK
from ..worker import AlertsPart, Dependencies

log = structlog.get_logger("solely.alerts")


class PublishResults(NamedTuple):
    """The result of each publisher that wanted the notification, and how long all of them took."""

    failures: dict[str, PublishFailed | None]  # publisher → its failure; None: the receiver has the notification
    seconds: float

    @property
    def reached(self) -> bool:
        """True if a receiver has it, or no publisher wanted it: it need not be published again as a whole."""
        return not self.failures or None in self.failures.values()

    @property
    def failed(self) -> dict[str, PublishFailed]:
        """The failures, by publisher."""
        return {name: failure for name, failure in self.failures.items() if failure is not None}

    @property
    def results(self) -> dict[str, str]:
        """OK or the error text, by publisher."""
        return {name: OK if failure is None else str(failure) for name, failure in self.failures.items()}


class Fanout(AlertsPart):
    """All configured publishers."""

    def __init__(self, publishers: Sequence[Publisher], given: Dependencies) -> None:
        super().__init__(given)
        self._publishers = {each.name: each for each in publishers}

    def wanted(self, alert: Alert) -> bool:
        """True if any publisher wants alerts like this one."""
        return any(each.wants(alert) for each in self._publishers.values())

    async def publish(self, notification: Notification) -> PublishResults:
        """Publishes to all that want it; never raises what a publisher raised."""
        wanting = [each for each in self._publishers.values() if each.wants(notification.alert)]
        started = time.perf_counter()
        with self._tracing.span("publish", notification.alert):
            failures = await asyncio.gather(*(self._publish(each, notification) for each in wanting))
        names = (each.name for each in wanting)
        return PublishResults(dict(zip(names, failures, strict=True)), time.perf_counter() - started)

    async def publish_to(self, name: str, notification: Notification) -> PublishFailed | None:
        """Publishes to this one; its failure, or None. A publisher that is no longer configured fails permanently."""
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
            log.exception("publisher_error", publisher=publisher.name, notification=notification.id)
            failure = PublishFailed(f"{publisher.name}: {type(error).__name__}; see the service's log")
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
