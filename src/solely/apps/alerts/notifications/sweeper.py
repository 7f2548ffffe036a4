"""The sweeper: publishes what waits in the outbox because a worker died or its receivers were unreachable.

Workers do not wait for one another: an item is leased, and its reservation decides which worker may publish it.
"""

from __future__ import annotations

import time

import msgspec

from .... import AsyncItem, QueueWorker
from ..decision import FIRING_QUEUED, QUIET, RESERVED, SENT, Decision, Facts, decide
from ..model import FIRING, Notification, key_of
from ..worker import AlertsPart, Dependencies
from .dead_letters import GROUP, NotificationDeadLetters, PublisherRetry
from .facts import FactFinder
from .outbox import QUEUE, RETRIES, Delivery, Outbox

LEASE = 10.0  # seconds: the shortest usual hold, so that a worker that dies with an item delays it no longer
# Seconds: longer than any publish takes, since only the lease keeps other workers from publishing a retry.
LEASE_OF_RETRIES = 90.0
_CRASHES = 5  # workers that may die with an item, beside its attempts, before it becomes a dead letter as it is
_SOON = 0.5  # seconds, at least, until an item that another worker is publishing is taken again


class Sweeper(AlertsPart):
    """Publishes the backlog of the outbox and of retries."""

    def __init__(
        self, given: Dependencies, facts: FactFinder, outbox: Outbox, dead_letters: NotificationDeadLetters
    ) -> None:
        super().__init__(given)
        self._facts = facts
        self._outbox = outbox
        self._dead_letters = dead_letters
        letters, most = given.once.dead_letters(GROUP), given.settings.max_attempts + _CRASHES
        self.workers = [
            QueueWorker(given.once.queue(name), work, dead_letters=letters, ttl=ttl, max_attempts=most)
            for name, work, ttl in ((QUEUE, self._publish, LEASE), (RETRIES, self._retry, LEASE_OF_RETRIES))
        ]

    async def _publish(self, item: AsyncItem) -> None:
        notification = msgspec.convert(item.payload, Notification)
        decision = decide(await self._facts.of_queued(notification))
        if not decision.reason:
            decision = await self._take_over(item, notification)
        alert = notification.alert
        if decision.reason in (RESERVED, FIRING_QUEUED):
            await item.give_back(delay=max(_SOON, decision.left), uncounted=True)
        elif decision.reason == QUIET and alert.status != FIRING:  # recorded by a worker that died before it closed it
            await self._outbox.close(alert)
        elif decision.reason not in ("", QUIET, SENT):
            self._history.suppressed(alert, decision.reason)

    async def _take_over(self, item: AsyncItem, notification: Notification) -> Decision:
        """Publishes a notification whose worker died or failed, unless another worker holds it or has sent it."""
        alert, terms = notification.alert, self._windows.terms(notification)  # no limit: it was counted before
        details = {"id": notification.id, "trace": notification.trace}
        hold = await self._once.reserve(key_of(alert), **terms, purpose=alert.name, details=details)
        if not hold:
            return decide(Facts(alert.status == FIRING, window=hold.reason, window_left=hold.retry_after))
        self._capacity.take_over()
        try:
            with self._tracing.span("take_over", alert, link=notification.trace):
                await self._outbox.deliver(Delivery(notification, hold, item, time.perf_counter()))
        finally:
            self._capacity.leave()
        return Decision()

    async def _retry(self, item: AsyncItem) -> None:
        retry = msgspec.convert(item.payload, PublisherRetry)
        failure = await self._dead_letters.publish(retry)
        if failure is None:
            return
        if failure.permanent or item.attempts >= self._settings.max_attempts:
            await self._dead_letters.add(retry, failure, item.attempts)
        else:
            await item.give_back(delay=self._outbox.pause(item.attempts + 1, failure.retry_after))
