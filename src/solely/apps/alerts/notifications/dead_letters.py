"""Dead letters: a notification that a publisher refused permanently, or too often, is kept for people to replay."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import structlog

from ..figures import DEAD_LETTERED
from ..model import FIRING, Notification, own
from ..publishers import PublishFailed
from ..records.history import OK
from ..suppression.open_alerts import OpenAlerts
from ..worker import AlertsPart, Dependencies
from .fanout import Fanout

log = structlog.get_logger("solely.alerts")

GROUP = own("notifications")  # of the dead letters: the outbox's name, so that its unreadable items land here too


class PublisherRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that one publisher has yet to send; also the payload of a dead letter."""

    publisher: str
    notification: Notification

    @property
    def id(self) -> str:
        """The same for every attempt."""
        return f"{self.notification.id}/{self.publisher}"


class NotificationDeadLetters(AlertsPart):
    """The dead letters of the alert receiver."""

    def __init__(self, given: Dependencies, fanout: Fanout, open_alerts: OpenAlerts) -> None:
        super().__init__(given)
        self._letters = given.once.dead_letters(GROUP)
        self._fanout = fanout
        self._open = open_alerts

    async def add(self, retry: PublisherRetry, failure: PublishFailed, attempts: int) -> None:
        """Keeps it as a dead letter; adding the same one again does not duplicate it."""
        payload = msgspec.to_builtins(retry)
        await self._letters.push(payload, error=str(failure), id=retry.id, attempts=max(1, attempts))
        self._metrics.count(DEAD_LETTERED, retry.publisher)
        self._history.dead(retry.notification, retry.publisher, str(failure))

    async def add_unreadable(self, id: str, payload: Any, error: Exception) -> None:
        """Keeps an item of our queues that is not a valid notification, so that nothing is lost."""
        log.error("alert_unreadable", id=id, error=str(error))
        await self._letters.push(payload if not isinstance(payload, bytes) else payload.hex(), error=error, id=id)

    async def replay(self, payload: Any) -> str:
        """Publishes a dead letter under the same id; raises PublishFailed if that fails again. One with which workers
        died repeatedly names no publisher, and goes to all."""
        if isinstance(payload, dict) and "publisher" not in payload:
            notification = msgspec.convert(payload, Notification)
            failures = list((await self._fanout.publish(notification)).values())
        else:
            retry = msgspec.convert(payload, PublisherRetry)
            notification, failures = retry.notification, [await self.publish(retry)]
        for failure in failures:
            if failure is not None:
                raise failure
        if notification.alert.status == FIRING:  # it may be the first publisher that has it
            await self._open.sent(notification)
        return notification.id

    async def publish(self, retry: PublisherRetry) -> PublishFailed | None:
        """Publishes to the one publisher; its failure, or None."""
        started = time.perf_counter()
        failure = await self._fanout.publish_to(retry.publisher, retry.notification)
        if failure is None:
            self._history.published(retry.notification, {retry.publisher: OK}, time.perf_counter() - started)
        return failure
