"""The outbox: a notification is in the store from before it is published until after that is recorded, so that another
worker takes over from one that dies in between and sends the same notification under the same id.

The reservation alone decides which worker may publish. The queue only keeps what is in flight.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import msgspec
import structlog

from .... import (
    AsyncClient,
    AsyncItem,
    AsyncReservation,
    ClientClosed,
    ItemInfo,
    ReservationMismatch,
    State,
    StoreError,
    UnknownReservation,
)
from ..decision import QUIET
from ..figures import EXPIRED, HOLD_SECONDS
from ..model import FIRING, Alert, AlertOutcome, Notification, key_of, new_notification, own, published, queued
from ..publishers import PublishFailed
from ..records.reports import AlertReports
from ..suppression.open_alerts import OpenAlerts
from ..windows import Windows
from ..worker import Refusal, RefusalCache
from .publishing import QUEUE as QUEUE
from .publishing import RETRIES as RETRIES
from .publishing import Publishing

log = structlog.get_logger("solely.alerts")

_LOOKS = 4  # at an item that another worker holds: one that has just recorded it removes it within a round trip
_PAUSE = 0.05  # seconds between them
_LATE = 600.0  # seconds until a notification that refused callers still queue has been dropped by a sweeper
_SENT = 86_400.0  # seconds: longer than anything waits in the outbox
_SEVERITIES = 10  # of one alert that are looked at: more than are queued for it at one time


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


class Outbox:
    """Queues notifications, publishes them under their reservations, and removes them."""

    def __init__(
        self,
        once: AsyncClient,
        max_attempts: int,
        windows: Windows,
        refusals: RefusalCache,
        reports: AlertReports,
        publishing: Publishing,
        open_alerts: OpenAlerts,
    ) -> None:
        self._once, self._queue, self._most = once, once.queue(QUEUE), max_attempts
        self._windows, self._refusals, self._reports = windows, refusals, reports
        self._publishing, self._open = publishing, open_alerts

    # -- queueing

    async def add(
        self, key: str, notification: Notification, ttl: float
    ) -> tuple[Notification, AsyncItem | None] | None:
        """The notification to publish under this key, and its item: the given one, or an older one that was not
        finished. None if another worker holds that item: then it is durable, and not ours to publish."""
        payload = msgspec.to_builtins(notification)
        for look in range(_LOOKS):
            item = await self._queue.push_held(key, payload, ttl=ttl)
            if item is not None and item.fresh:
                return notification, item
            there = item or await self._queue.read(key)
            if isinstance(there, ItemInfo) and there.unreadable:
                return notification, await self._queue.push_held(f"{key}/{notification.id}", payload, ttl=ttl)
            if there is None or (isinstance(there, ItemInfo) and there.state is State.HELD):
                await asyncio.sleep(_PAUSE * (look + 1))
            elif (older := await self._unfinished(key, there.payload)) is not None:
                return older, item
            elif isinstance(there, ItemInfo):
                await self._queue.remove(key, expected=there)
            else:
                await there.ack()
        return None

    async def ensure_queued(self, key: str, notification: Notification) -> None:
        """Queues the notification unless something is queued under this key, for the sweeper or the holder of the
        reservation to publish."""
        await self._queue.push(key, msgspec.to_builtins(notification))

    async def has_unsent(self, prefix: str) -> bool:
        """True if a notification that was not sent is queued under a key with this prefix."""
        for each in await self._queue.list(after=prefix, limit=_SEVERITIES):
            readable = each.id.startswith(prefix) and not each.unreadable
            if readable and await self._unfinished(each.id, each.payload) is not None:
                return True
        return False

    async def was_sent(self, notification: Notification) -> bool:
        """True if it was sent and recorded: it is in the outbox only because removing it failed, or because a caller
        that was refused meanwhile queued it again."""
        return await self._once.seen(_sent_mark(notification.id))

    async def discard(self, notification: Notification) -> None:
        """Marks a suppressed notification as sent, so that copies which refused callers queue are dropped."""
        await self._once.mark(_sent_mark(notification.id), ttl=_LATE)

    async def close(self, alert: Alert) -> None:
        """Closes an alert whose resolved notification was sent. Firing alerts of its group that came in meanwhile, and
        were suppressed by the window that ends now, are queued."""
        await self._open.close(alert)
        for missed in await self._open.firing(alert):
            await self.ensure_queued(key_of(missed), new_notification(missed))

    async def _unfinished(self, key: str, payload: Any) -> Notification | None:
        """The notification in this payload, if it was not sent yet; one that is invalid becomes a dead letter."""
        try:
            older = msgspec.convert(payload, Notification)
        except msgspec.ValidationError as error:
            await self._publishing.park_unreadable(key, payload, error)
            return None
        return None if await self.was_sent(older) else older

    # -- publishing

    async def deliver(self, delivery: Delivery) -> AlertOutcome:
        """Publishes a notification and settles it; returns the outcome. If the store becomes unreachable meanwhile, it
        stays in the outbox and is sent again under the same id."""
        notification, hold, started = delivery.notification, delivery.hold, time.perf_counter()
        alert = notification.alert
        if hold.attempts > 1 and not (delivery.item is not None and delivery.item.fresh):
            self._reports.count(EXPIRED)
        try:
            results = await self._publishing.publish(notification)
            failures = {name: failure for name, failure in results.items() if failure is not None}
            reached = not results or len(failures) < len(results)  # else it is published again as a whole
            if reached:
                self._reports.published(notification, results, time.perf_counter() - started)
            else:
                self._reports.queued(notification, results)
            try:
                return await (self._sent if reached else self._failed)(delivery, failures)
            except (StoreError, ClientClosed) as error:
                log.warning("alert_not_settled", **alert.facts, error=str(error))
                return published(alert) if reached else queued(alert, "publish_failed")
        finally:
            hold.hand_over()  # if settling failed it is no longer renewed, so that others can take over
            self._reports.observe(HOLD_SECONDS, time.perf_counter() - delivery.since)

    # -- sent

    async def _sent(self, delivery: Delivery, failures: dict[str, PublishFailed]) -> AlertOutcome:
        notification, alert = delivery.notification, delivery.notification.alert
        await self._publishing.retry_alone(notification, failures)
        if alert.status == FIRING:
            await self._open.sent(notification)
        with self._reports.span("record", alert):
            recorded = await self._record(delivery)
        if recorded:
            await self._finish(delivery)
        else:
            await self._leave_to_holder(delivery)
        return published(alert)

    async def _finish(self, delivery: Delivery) -> None:
        """Caches the quiet window, closes a resolved alert, and removes the notification from the outbox."""
        notification, hold = delivery.notification, delivery.hold
        ends = time.monotonic() + self._windows.terms(notification)["quiet"]
        self._refusals.remember(hold.key, Refusal(QUIET, ends, notification.trace))
        if notification.alert.status != FIRING:
            await self.close(notification.alert)
        # Marked before it is removed: another worker may hold the item by now, it may wait for its next attempt, and a
        # refused caller may queue it again. Whoever takes it finds the mark.
        for id in {notification.id, hold.details.get("id", notification.id)}:
            await self._once.mark(_sent_mark(id), ttl=_SENT)
        if delivery.item is not None:
            await delivery.item.ack()

    async def _leave_to_holder(self, delivery: Delivery) -> None:
        """Leaves the item to the current holder of the reservation, which sends it again or has done so. It must find
        this item: otherwise it would use a new id, and receivers could not recognize the repeat."""
        self._refusals.forget(delivery.hold.key)
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
                again = await self._windows.reserve(delivery.notification, limited=False)
                if again:
                    await again.record()
        except ReservationMismatch as mismatch:
            log.warning("Reservation ID mismatch", expected=mismatch.expected, got=mismatch.got, **facts)
            return False
        return True

    # -- not sent

    async def _failed(self, delivery: Delivery, failures: dict[str, PublishFailed]) -> AlertOutcome:
        alert, attempts = delivery.notification.alert, delivery.attempts
        if attempts >= self._most or all(failure.permanent for failure in failures.values()):
            await self._give_up(delivery, failures)
            return queued(alert, "dead_lettered")
        self._refusals.forget(delivery.hold.key)
        if alert.status == FIRING:
            await self._open.enter(alert)
        if await delivery.hold.release():
            log.debug("Released reservation", **alert.facts, fence=delivery.hold.fence)
        if delivery.item is not None:
            wanted = min(failure.retry_after or 0.0 for failure in failures.values())
            await delivery.item.give_back(delay=self._publishing.pause(attempts, wanted))
        return queued(alert, "publish_failed")

    async def _give_up(self, delivery: Delivery, failures: dict[str, PublishFailed]) -> None:
        """Adds a dead letter per publisher. The window is recorded all the same: otherwise each repeat of the alert
        would add another dead letter."""
        await self._publishing.give_up(delivery.notification, failures, delivery.attempts)
        await self._record(delivery)
        await self._finish(delivery)


def _sent_mark(id: str) -> str:
    return own(f"sent/{id}")
