"""Publishing: a notification goes to all publishers that want it, concurrently; each succeeds or fails on its own. One
that fails alone is retried alone; what it refuses for good, or too often, is a dead letter that people can replay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from .... import AsyncClient, AsyncItem
from ....kit import Backoff
from ..figures import PUBLISH_SECONDS, PUBLISHER_FAILURES
from ..model import FIRING, Alert, Notification, own
from ..publishers import Publisher, PublishFailed
from ..records.reports import AlertReports, Results
from ..settings import AlertsSettings
from ..suppression.open_alerts import OpenAlerts

log = structlog.get_logger("solely.alerts")

QUEUE = own("notifications")  # notifications that are being published, or wait to be; ids are those of reservations
RETRIES = own("retries")  # notifications that some publishers have sent, each with one publisher that has not
GROUP = QUEUE  # of the dead letters: the outbox's name, so that its unreadable items land here too
_LONGEST = 3600.0  # seconds: a receiver that asks for a longer pause is retried earlier


class PublisherRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that one publisher has yet to send; also the payload of a dead letter."""

    publisher: str
    notification: Notification

    @property
    def id(self) -> str:
        """The same for every attempt."""
        return f"{self.notification.id}/{self.publisher}"


class Publishing:
    """All configured publishers, the retries of each one, and their dead letters."""

    def __init__(
        self,
        once: AsyncClient,
        settings: AlertsSettings,
        publishers: Sequence[Publisher],
        reports: AlertReports,
        open_alerts: OpenAlerts,
    ) -> None:
        self._publishers = {each.name: each for each in publishers}
        self._retries, self._letters = once.queue(RETRIES), once.dead_letters(GROUP)
        self._backoff, self._most = Backoff(settings.backoff), settings.max_attempts
        self._reports, self._open = reports, open_alerts

    def wanted(self, alert: Alert) -> bool:
        """True if any publisher wants alerts like this one."""
        return any(each.wants(alert) for each in self._publishers.values())

    async def publish(self, notification: Notification) -> Results:
        """Publishes to all that want it; never raises what a publisher raised."""
        names = [name for name, each in self._publishers.items() if each.wants(notification.alert)]
        with self._reports.span("publish", notification.alert):
            if len(names) == 1:
                return {names[0]: await self._publish_to(names[0], notification)}
            failures = await asyncio.gather(*(self._publish_to(name, notification) for name in names))
        return dict(zip(names, failures, strict=True))

    async def _publish_to(self, name: str, notification: Notification) -> PublishFailed | None:
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
            self._reports.observe(PUBLISH_SECONDS, time.perf_counter() - started, name)
        self._reports.count(PUBLISHER_FAILURES, name)
        facts = {"notification": notification.id, **notification.alert.facts, "error": str(failure)}
        log.warning("publish_failed", publisher=name, **facts)
        return failure

    # -- retries of one publisher

    def pause(self, attempts: int, wanted: float | None) -> float:
        """Seconds until the next attempt, after this many; at least what the receiver asked for."""
        return max(self._backoff.pause(max(0, attempts - 1)), min(wanted or 0.0, _LONGEST))

    async def retry_alone(self, notification: Notification, failures: Mapping[str, PublishFailed]) -> None:
        """Queues a retry for each publisher that failed while others succeeded."""
        for name, failure in failures.items():
            retry = PublisherRetry(publisher=name, notification=notification)
            if failure.permanent:
                await self._give_up(retry, failure, 1)
            else:
                delay = self.pause(1, failure.retry_after)
                await self._retries.push(retry.id, msgspec.to_builtins(retry), delay=delay)

    async def perform_retry(self, item: AsyncItem) -> None:
        """Publishes an item of the retries; gives it back if it fails, and gives up after the last attempt."""
        retry = msgspec.convert(item.payload, PublisherRetry)
        failure = await self._publish_again(retry)
        if failure is None:
            return
        if failure.permanent or item.attempts >= self._most:
            await self._give_up(retry, failure, item.attempts)
        else:
            await item.give_back(delay=self.pause(item.attempts + 1, failure.retry_after))

    async def _publish_again(self, retry: PublisherRetry) -> PublishFailed | None:
        started = time.perf_counter()
        failure = await self._publish_to(retry.publisher, retry.notification)
        if failure is None:
            self._reports.retried(retry.notification, retry.publisher, time.perf_counter() - started)
        return failure

    # -- dead letters

    async def give_up(self, notification: Notification, failures: Mapping[str, PublishFailed], attempts: int) -> None:
        """Adds a dead letter per publisher that failed; adding the same one again does not duplicate it."""
        for name, failure in failures.items():
            await self._give_up(PublisherRetry(publisher=name, notification=notification), failure, attempts)

    async def _give_up(self, retry: PublisherRetry, failure: PublishFailed, attempts: int) -> None:
        payload = msgspec.to_builtins(retry)
        await self._letters.push(payload, error=str(failure), id=retry.id, attempts=max(1, attempts))
        self._reports.dead(retry.notification, retry.publisher, failure)

    async def park_unreadable(self, id: str, payload: Any, error: Exception) -> None:
        """Keeps an item of our queues that is not a valid notification, so that nothing is lost."""
        log.error("alert_unreadable", id=id, error=str(error))
        await self._letters.push(payload if not isinstance(payload, bytes) else payload.hex(), error=error, id=id)

    async def replay(self, payload: Any) -> str:
        """Publishes a dead letter under the same id; raises PublishFailed if that fails again. One with which workers
        died repeatedly names no publisher, and goes to all."""
        if isinstance(payload, dict) and "publisher" not in payload:
            notification = msgspec.convert(payload, Notification)
            failures = [*(await self.publish(notification)).values()]
        else:
            retry = msgspec.convert(payload, PublisherRetry)
            notification, failures = retry.notification, [await self._publish_again(retry)]
        for failure in failures:
            if failure is not None:
                raise failure
        if notification.alert.status == FIRING:  # it may be the first publisher that has it
            await self._open.sent(notification)
        return notification.id
