"""The sweeper: publishes what waits in the outbox because a worker died or its receivers were unreachable.

Workers do not wait for one another: an item is leased, and its reservation decides which worker may publish it.
"""

from __future__ import annotations

import time

import msgspec

from .... import AsyncClient, AsyncItem, QueueWorker
from ..decision import FIRING_QUEUED, QUIET, RESERVED, SENT, Decision, Facts, decide
from ..model import FIRING, Notification
from ..records.reports import AlertReports
from ..windows import Windows
from ..worker import Capacity
from .facts import FactFinder
from .outbox import Delivery, Outbox
from .publishing import GROUP, QUEUE, RETRIES, Publishing

LEASE = 10.0  # seconds: the shortest usual hold, so that a worker that dies with an item delays it no longer
# Seconds: longer than any publish takes, since only the lease keeps other workers from publishing a retry.
LEASE_OF_RETRIES = 90.0
_CRASHES = 5  # workers that may die with an item, beside its attempts, before it becomes a dead letter as it is
_SOON = 0.5  # seconds, at least, until an item that another worker is publishing is taken again


class Sweeper:
    """Publishes the backlog of the outbox and of retries."""

    def __init__(
        self,
        once: AsyncClient,
        max_attempts: int,
        windows: Windows,
        capacity: Capacity,
        reports: AlertReports,
        facts: FactFinder,
        outbox: Outbox,
        publishing: Publishing,
    ) -> None:
        self._windows, self._capacity, self._reports = windows, capacity, reports
        self._facts, self._outbox = facts, outbox
        letters, most = once.dead_letters(GROUP), max_attempts + _CRASHES
        work = (QUEUE, self._publish, LEASE), (RETRIES, publishing.perform_retry, LEASE_OF_RETRIES)
        self.workers = [
            QueueWorker(once.queue(name), perform, dead_letters=letters, ttl=ttl, max_attempts=most)
            for name, perform, ttl in work
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
            self._reports.dropped(alert, decision.reason)

    async def _take_over(self, item: AsyncItem, notification: Notification) -> Decision:
        """Publishes a notification whose worker died or failed, unless another worker holds it or has sent it."""
        alert = notification.alert
        hold = await self._windows.reserve(notification, limited=False)  # it was counted before
        if not hold:
            return decide(Facts(alert.status == FIRING, window=hold.reason, window_left=hold.retry_after))
        self._capacity.take_over()
        try:
            with self._reports.span("take_over", alert, link=notification.trace):
                await self._outbox.deliver(Delivery(notification, hold, item, time.perf_counter()))
        finally:
            self._capacity.leave()
        return Decision()
