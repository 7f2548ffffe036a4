"""Delivery: publishes a notification under its reservation and settles both; for the receiver, and for what waits in
the outbox because a worker died or its receivers were unreachable.

Workers do not wait for one another: an item is leased, and its reservation decides which worker may publish it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import structlog

from .... import AsyncItem, AsyncReservation, ClientClosed, ReservationMismatch, StoreError, UnknownReservation
from ..decision import (
    FIRING_QUEUED,
    QUIET,
    RESERVED,
    RESOLVED_QUEUED,
    SEND,
    SENT,
    SUPERSEDED,
    Decision,
    Facts,
    decide,
)
from ..figures import EXPIRED, HOLD_SECONDS
from ..model import FIRING, Alert, AlertOutcome, Notification, fingerprint_prefix, published, queued, subject_of
from ..reports import AlertReports
from ..suppression.open_alerts import OpenAlerts
from ..windows import Windows
from ..worker import Capacity, RefusalCache
from .outbox import Outbox
from .publishing import Failures, Publishing, failed

log = structlog.get_logger("solely.alerts")

LEASE = 10.0  # seconds: the shortest usual hold, so that a worker that dies with an item delays it no longer
AT_ONCE = 32  # items: retries of a publisher that hangs, until its breaker opens, leave room for what others left
CRASHES = 5  # workers that may die with an item, beside its attempts, before it becomes a dead letter as it is
_SOON = 0.5  # seconds, at least, until an item that another worker is publishing is taken again


class Delivery(NamedTuple):
    """A notification on its way to the publishers: the reservation under which it is published, and its item in the
    outbox; None if that waits for its next attempt, and the sweeper removes it."""

    notification: Notification
    hold: AsyncReservation
    item: AsyncItem | None
    since: float  # on the clock of `perf_counter`

    @property
    def attempts(self) -> int:
        """How often it was taken out of the outbox, with this time."""
        return 0 if self.item is None else self.item.attempts


@dataclass(eq=False)
class Deliverer:
    """Delivers notifications, and performs the items of the outbox."""

    windows: Windows
    capacity: Capacity
    refusals: RefusalCache
    reports: AlertReports
    open_alerts: OpenAlerts
    publishing: Publishing
    outbox: Outbox

    async def deliver(self, delivery: Delivery) -> AlertOutcome:
        """Publishes a notification and settles it; returns the outcome. If the store becomes unreachable meanwhile, it
        stays in the outbox and is sent again under the same id."""
        notification, hold, started = delivery.notification, delivery.hold, time.perf_counter()
        alert = notification.alert
        if hold.attempts > 1 and not (delivery.item is not None and delivery.item.fresh):
            self.reports.count(EXPIRED)
        try:
            results = await self.publishing.publish(notification)
            failures = failed(results)
            reached = not results or len(failures) < len(results)  # else it is published again as a whole
            if reached:
                self.reports.published(notification, results, time.perf_counter() - started)
            else:
                self.reports.queued(notification, results)
            try:
                return await (self._sent if reached else self._failed)(delivery, failures)
            except (StoreError, ClientClosed) as error:
                log.warning("alert_not_settled", **alert.facts, error=str(error))
                return published(alert) if reached else queued(alert, "publish_failed")
        finally:
            hold.hand_over()  # if settling failed it is no longer renewed, so that others can take over
            self.reports.observe(HOLD_SECONDS, time.perf_counter() - delivery.since)

    # -- sent

    async def _sent(self, delivery: Delivery, failures: Failures) -> AlertOutcome:
        notification, alert = delivery.notification, delivery.notification.alert
        await self.publishing.retry_alone(notification, failures)
        if alert.status == FIRING:
            await self.open_alerts.sent(notification)
        with self.reports.span("record", alert):
            recorded = await self._record(delivery)
        if recorded:
            await self._finish(delivery)
        else:
            await self._leave_to_holder(delivery)
        return published(alert)

    async def _finish(self, delivery: Delivery) -> None:
        """Caches the quiet window, closes a resolved alert, and removes the notification from the outbox."""
        notification, hold = delivery.notification, delivery.hold
        quiet = self.windows.terms(notification)["quiet"]
        self.refusals.remember(hold.key, Decision(QUIET, quiet, notification.trace))
        if notification.alert.status != FIRING:
            await self.outbox.close(notification.alert)
        # Marked before it is removed: another worker may hold the item by now, it may wait for its next attempt, and a
        # refused caller may queue it again.
        for id in {notification.id, hold.details.get("id", notification.id)}:
            await self.outbox.mark_sent(id)
        if delivery.item is not None:
            await delivery.item.ack()

    async def _leave_to_holder(self, delivery: Delivery) -> None:
        """Leaves the item to the current holder of the reservation, which sends it again or has done so. It must find
        this item: otherwise it would use a new id, and receivers could not recognize the repeat."""
        self.refusals.forget(delivery.hold.key)
        if delivery.item is not None:
            await delivery.item.give_back()

    async def _record(self, delivery: Delivery) -> bool:
        """Starts the quiet window; False if another worker has the reservation by now.

        The notification was sent, so that a reservation that is gone is logged and not raised.
        """
        hold, facts = delivery.hold, delivery.notification.alert.facts
        try:
            await hold.record()
        except UnknownReservation as unknown:
            log.warning("Attempted to record alert with unknown reservation ID", fence=hold.fence, **facts)
            if unknown.how == "expired":  # and another held and released it: the next alert would be sent again
                again = await self.windows.reserve(delivery.notification, limited=False)
                if again:
                    await again.record()
        except ReservationMismatch as mismatch:
            log.warning("Reservation ID mismatch", expected=mismatch.expected, got=mismatch.got, **facts)
            return False
        return True

    # -- not sent

    async def _failed(self, delivery: Delivery, failures: Failures) -> AlertOutcome:
        notification, hold, attempts = delivery.notification, delivery.hold, delivery.attempts
        alert = notification.alert
        if alert.status == FIRING:  # it fires, although nobody was notified
            await self.open_alerts.enter(alert)
        else:
            self.forget_firing(alert)
        if self.publishing.is_over(attempts, failures):
            await self.publishing.give_up(notification, failures, attempts)
            await self._record(delivery)  # all the same: otherwise each repeat of the alert would add a dead letter
            await self._finish(delivery)
            return queued(alert, "dead_lettered")
        await self.release(notification, hold)
        if delivery.item is not None:
            await delivery.item.give_back(delay=self.publishing.pause(attempts, failures))
        return queued(alert, "publish_failed")

    def forget_firing(self, alert: Alert) -> None:
        """Evicts what this worker cached of a firing alert: the next one withdraws the resolved one that is queued."""
        self.refusals.forget_all(fingerprint_prefix(subject_of(alert)))

    async def release(self, notification: Notification, hold: AsyncReservation) -> None:
        """Releases the reservation of a notification that was not sent."""
        self.refusals.forget(hold.key)
        if await hold.release():
            log.debug("Released reservation", **notification.alert.facts, fence=hold.fence)

    # -- what waits in the outbox

    async def perform(self, item: AsyncItem) -> None:
        """Publishes an item of the outbox, unless it was sent, another worker is publishing it, or a reason suppresses
        it by now; then it is removed."""
        notification = msgspec.convert(item.payload, Notification)
        if notification.publisher:
            await self.publishing.retry(item, notification)
            return
        decision = decide(await self.outbox.facts_of_queued(notification))
        if not decision.reason:
            decision = await self._take_over(item, notification)
        alert = notification.alert
        if decision.reason in (RESERVED, FIRING_QUEUED, RESOLVED_QUEUED):
            await item.give_back(delay=max(_SOON, decision.left), uncounted=True)
        elif decision.reason == QUIET and alert.status != FIRING:  # recorded by a worker that died before it closed it
            await self.outbox.close(alert)
        elif decision.reason not in ("", QUIET, SENT, SUPERSEDED):
            self.reports.dropped(alert, decision.reason)

    async def _take_over(self, item: AsyncItem, notification: Notification) -> Decision:
        """Publishes a notification whose worker died or failed, unless another worker holds it or has sent it."""
        alert = notification.alert
        hold = await self.windows.reserve(notification, limited=False)  # it was counted before
        if not hold:
            return decide(Facts(alert.status == FIRING, window=hold.reason, window_left=hold.retry_after))
        self.capacity.enter(regardless=True)
        try:
            with self.reports.span("take_over", alert, link=notification.trace):
                await self.deliver(Delivery(notification, hold, item, time.perf_counter()))
        finally:
            self.capacity.leave()
        return SEND
