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
from ..reports import AlertReports, Results
from ..settings import AlertsSettings
from ..suppression.open_alerts import OpenAlerts

log = structlog.get_logger("solely.alerts")

# Notifications that are being published, or wait to be, under the keys of their reservations; and, under `<id>/<name>`,
# those that one publisher alone has yet to send.
QUEUE = own("notifications")
GROUP = QUEUE  # of the dead letters: the outbox's name, so that its unreadable items land here too
_LONGEST = 3600.0  # seconds: a receiver that asks for a longer pause is retried earlier

Failures = Mapping[str, PublishFailed]  # by publisher


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
        self._queue, self._letters = once.queue(QUEUE), once.dead_letters(GROUP)
        self._backoff, self._most = Backoff(settings.backoff), settings.max_attempts
        self._reports, self._open = reports, open_alerts

    def wanted(self, alert: Alert) -> bool:
        """True if any publisher wants alerts like this one."""
        return any(each.wants(alert) for each in self._publishers.values())

    async def publish(self, notification: Notification) -> Results:
        """Publishes to all that want it, or to the one that it names; never raises what a publisher raised."""
        alert = notification.alert
        names = [notification.publisher] if notification.publisher else self._wanting(alert)
        with self._reports.span("publish", alert):
            if len(names) == 1:  # as most often: without a task of its own
                return {names[0]: await self._publish_to(names[0], notification)}
            failures = await asyncio.gather(*(self._publish_to(name, notification) for name in names))
        return dict(zip(names, failures, strict=True))

    def _wanting(self, alert: Alert) -> list[str]:
        return [name for name, each in self._publishers.items() if each.wants(alert)]

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

    # -- retries

    def is_over(self, attempts: int, failures: Failures) -> bool:
        """True if no attempt is left after this many, or none can succeed."""
        return attempts >= self._most or all(failure.permanent for failure in failures.values())

    def pause(self, attempts: int, failures: Failures) -> float:
        """Seconds until the next attempt, after this many; at least what the receivers asked for."""
        wanted = min(failure.retry_after or 0.0 for failure in failures.values())
        return max(self._backoff.pause(max(0, attempts - 1)), min(wanted, _LONGEST))

    async def retry_alone(self, notification: Notification, failures: Failures) -> None:
        """Queues a retry for each publisher that failed while others succeeded."""
        for name, failure in failures.items():
            if failure.permanent:
                await self.give_up(notification, {name: failure}, 1)
            else:
                delay, alone = self.pause(1, {name: failure}), msgspec.structs.replace(notification, publisher=name)
                await self._queue.push(f"{alone.id}/{name}", msgspec.to_builtins(alone), delay=delay)

    async def retry(self, item: AsyncItem, notification: Notification) -> None:
        """Publishes to the one that the notification names; gives its item back if that fails, and gives up after the
        last attempt."""
        failures = await self._publish_again(notification)
        if failures and self.is_over(item.attempts, failures):
            await self.give_up(notification, failures, item.attempts)
        elif failures:
            await item.give_back(delay=self.pause(item.attempts + 1, failures))

    async def _publish_again(self, notification: Notification) -> Failures:
        started = time.perf_counter()
        results = await self.publish(notification)
        failures = failed(results)
        if not failures:
            self._reports.published(notification, results, time.perf_counter() - started)
        return failures

    # -- dead letters

    async def give_up(self, notification: Notification, failures: Failures, attempts: int) -> None:
        """Adds a dead letter per publisher that failed; adding the same one again does not duplicate it."""
        for name, failure in failures.items():
            letter = msgspec.to_builtins(msgspec.structs.replace(notification, publisher=name))
            id = f"{notification.id}/{name}"
            await self._letters.push(letter, error=str(failure), id=id, attempts=max(1, attempts))
            self._reports.dead(notification, name, failure)

    async def park_unreadable(self, id: str, payload: Any, error: Exception) -> None:
        """Keeps an item of our queue that is not a valid notification, so that nothing is lost."""
        log.error("alert_unreadable", id=id, error=str(error))
        await self._letters.push(payload if not isinstance(payload, bytes) else payload.hex(), error=error, id=id)

    async def replay(self, payload: Any) -> str:
        """Publishes a dead letter under the same id; raises PublishFailed if that fails again. One with which workers
        died repeatedly names no publisher, and goes to all."""
        notification = msgspec.convert(payload, Notification)
        for failure in (await self._publish_again(notification)).values():
            raise failure
        if notification.alert.status == FIRING:  # it may be the first publisher that has it
            await self._open.sent(notification)
        return notification.id


def failed(results: Results) -> Failures:
    """The failures among the results."""
    return {name: failure for name, failure in results.items() if failure is not None}
