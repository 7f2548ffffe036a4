"""The fanout: a notification goes to all publishers that want it, concurrently; each succeeds or fails on its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog

from ..figures import PUBLISH_SECONDS, PUBLISHER_FAILURES
from ..model import Alert, Notification
from ..publishers import Publisher, PublishFailed
from ..worker import AlertsPart, Dependencies

log = structlog.get_logger("solely.alerts")

Results = dict[str, PublishFailed | None]  # publisher → its failure; None: the receiver has the notification


class Fanout(AlertsPart):
    """All configured publishers."""

    def __init__(self, publishers: Sequence[Publisher], given: Dependencies) -> None:
        super().__init__(given)
        self._publishers = {each.name: each for each in publishers}

    def wanted(self, alert: Alert) -> bool:
        """True if any publisher wants alerts like this one."""
        return any(each.wants(alert) for each in self._publishers.values())

    async def publish(self, notification: Notification) -> Results:
        """Publishes to all that want it; never raises what a publisher raised."""
        names = [name for name, each in self._publishers.items() if each.wants(notification.alert)]
        with self._tracing.span("publish", notification.alert):
            failures = await asyncio.gather(*(self.publish_to(name, notification) for name in names))
        return dict(zip(names, failures, strict=True))

    async def publish_to(self, name: str, notification: Notification) -> PublishFailed | None:
        """Publishes to this one; its failure, or None. A publisher that is no longer configured fails permanently."""
        publisher, started = self._publishers.get(name), time.perf_counter()
        if publisher is None:
            return PublishFailed(f"{name}: there is no publisher of this name in the settings", permanent=True)
        try:
            await publisher.publish(notification)
            return None
        except PublishFailed as known:
            failure = known
        except Exception as error:
            log.exception("publisher_error", publisher=name, notification=notification.id)
            failure = PublishFailed(f"{name}: {type(error).__name__}; see the service's log")
        finally:
            self._metrics.observe(PUBLISH_SECONDS, time.perf_counter() - started, name)
        self._metrics.count(PUBLISHER_FAILURES, name)
        facts = {"notification": notification.id, **notification.alert.facts, "error": str(failure)}
        log.warning("publish_failed", publisher=name, **facts)
        return failure
