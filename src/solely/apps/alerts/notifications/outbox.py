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

from .... import AsyncItem, AsyncReservation, ClientClosed, ReservationMismatch, State, StoreError, UnknownReservation
from ....resilience import Backoff
from ..figures import EXPIRED, PUBLISHED, QUEUED
from ..model import (
    FIRING,
    Alert,
    AlertOutcome,
    Notification,
    fingerprint_prefix,
    key_of,
    new_notification,
    own,
    published,
    queued,
    subject_of,
)
from ..suppression.groups import AlertGroups
from ..suppression.open_alerts import OpenAlerts
from ..worker import QUIET, AlertsPart, Dependencies, Refusal
from .dead_letters import NotificationDeadLetters, Retry
from .fanout import Fanout, PublishResults

log = structlog.get_logger("solely.alerts")

QUEUE = own("notifications")  # notifications that are being published, or wait to be
RETRIES = own("retries")  # notifications that some publishers have sent, each with one publisher that has not
_SEVERITIES = 20  # of one alert that wait at once: more than anybody has
_LOOKS = 4  # at an item that another worker holds: one that has just recorded it removes it within a round trip
_PAUSE = 0.05  # seconds between them
_LATE = 600.0  # seconds until a notification that refused callers still queue has been dropped by a sweeper
_SENT = 86_400.0  # seconds: longer than anything waits in the outbox
_LONGEST = 3600.0  # seconds: a receiver that asks for a longer pause is retried earlier


class WindowTerms(NamedTuple):
    """How long an alert's reservation is held, and how long it is quiet after that."""

    hold: float
    quiet: float


class OutboxEntry(NamedTuple):
    """A notification in the outbox, the key of its reservation, and its terms. Without `item` it waits there for its
    next attempt: the holder of the reservation may publish it, and the sweeper removes it.

    `named` is the id in the reservation's purpose; it differs from the notification's if that is an older one.
    """

    key: str
    notification: Notification
    terms: WindowTerms
    item: AsyncItem | None
    named: str


class Outbox(AlertsPart):
    """Queues notifications, publishes them, and removes them again."""

    def __init__(
        self,
        given: Dependencies,
        fanout: Fanout,
        dead_letters: NotificationDeadLetters,
        open_alerts: OpenAlerts,
        groups: AlertGroups,
    ) -> None:
        super().__init__(given)
        self._queue = given.once.queue(QUEUE)
        self._retries = given.once.queue(RETRIES)
        self._backoff = Backoff(given.settings.backoff)
        self._fanout = fanout
        self._dead_letters = dead_letters
        self._open_alerts = open_alerts
        self._groups = groups

    # -- queueing

    async def add(self, key: str, notification: Notification, terms: WindowTerms) -> OutboxEntry | None:
        """The notification to publish under this key: the given one, or an older one that was not finished. None if
        another worker holds that item: then it is durable, and not ours to publish."""
        payload = msgspec.to_builtins(notification)
        for look in range(_LOOKS):
            item = await self._queue.push_held(key, payload, ttl=terms.hold)
            if item is not None and item.fresh:
                return OutboxEntry(key, notification, terms, item, notification.id)
            there = item or await self._queue.read(key)
            if isinstance(there, AsyncItem) or (there is not None and there.state is not State.HELD):
                older = await self._unfinished(there.payload)
                if older is not None:
                    return OutboxEntry(key, older, terms, item, notification.id)
                if item is not None:
                    await item.give_back()  # the sweeper removes it
                own_item = await self._queue.push_held(f"{key}/{notification.id}", payload, ttl=terms.hold)
                return OutboxEntry(key, notification, terms, own_item, notification.id)
            await asyncio.sleep(_PAUSE * (look + 1))
        return None

    async def _unfinished(self, payload: Any) -> Notification | None:
        """The notification in this payload, if it is valid and was not sent yet."""
        try:
            older = msgspec.convert(payload, Notification)
        except msgspec.ValidationError:
            return None
        return None if await self.was_sent(older) else older

    async def was_sent(self, notification: Notification) -> bool:
        """True if it was sent and recorded: it is in the outbox only because removing it failed, or because a caller
        that was refused meanwhile queued it again."""
        return await self._once.seen(_sent_mark(notification.id))

    async def ensure_queued(self, key: str, notification: Notification) -> None:
        """Queues the notification unless something is queued under this key, for the sweeper or the holder of the
        reservation to publish."""
        await self._queue.push(key, msgspec.to_builtins(notification))

    async def has_fired(self, alert: Alert) -> bool | None:
        """True if the alert is open; None if its firing notification is still queued; False if neither."""
        if await self._open_alerts.is_open(alert):
            return True
        prefix = fingerprint_prefix(subject_of(alert))
        for item in await self._queue.list(after=prefix, limit=_SEVERITIES):
            if item.id.startswith(prefix) and await self._unfinished(item.payload) is not None:
                return None
        return await self._open_alerts.is_open(alert)  # it may have been sent and removed between the two reads

    async def discard(self, notification: Notification) -> None:
        """Marks a suppressed notification as sent, so that copies which refused callers queue are dropped."""
        await self._once.mark(_sent_mark(notification.id), ttl=_LATE)

    async def close(self, alert: Alert) -> None:
        """Closes an alert whose resolved notification was sent. Firing alerts of its group that came in meanwhile, and
        were suppressed by the window that ends now, are queued."""
        await self._open_alerts.closed(alert)
        for missed in await self._groups.firing(alert):
            await self.ensure_queued(key_of(missed), new_notification(missed))

    # -- publishing

    async def deliver(self, entry: OutboxEntry, hold: AsyncReservation) -> AlertOutcome:
        """Publishes an entry under this reservation and settles it; returns the outcome.

        If the store becomes unreachable meanwhile, the entry stays and is sent again under the same id.
        """
        if hold.attempts > 1 and not (entry.item is not None and entry.item.fresh):
            self._metrics.count(EXPIRED)
        try:
            results = await self._fanout.publish(entry.notification)
            return await self._settle(entry, hold, results)
        finally:
            hold.hand_over()  # if settling failed it is no longer renewed, so that others can take over

    async def _settle(self, entry: OutboxEntry, hold: AsyncReservation, results: PublishResults) -> AlertOutcome:
        settle = self._settle_sent if results.reached else self._settle_failed
        try:
            return await settle(entry, hold, results)
        except (StoreError, ClientClosed) as error:
            alert = entry.notification.alert
            log.warning("alert_not_settled", fingerprint=alert.fingerprint, severity=alert.severity, error=str(error))
            return published(alert) if results.reached else queued(alert, "publish_failed")

    async def _settle_sent(self, entry: OutboxEntry, hold: AsyncReservation, results: PublishResults) -> AlertOutcome:
        notification = entry.notification
        alert = notification.alert
        self._metrics.count(PUBLISHED)
        self._history.published(notification, results.results, results.seconds)
        await self._queue_retries(notification, results)
        if alert.status == FIRING:
            await self._open_alerts.opened(alert, notification.reminder)
        with self._tracing.span("record", alert):
            recorded = await self._record(entry, hold)
        if recorded:
            await self._finish(entry)
        else:
            await self._leave_to_holder(entry)
        return published(alert)

    async def _settle_failed(self, entry: OutboxEntry, hold: AsyncReservation, results: PublishResults) -> AlertOutcome:
        alert, attempts = entry.notification.alert, entry.item.attempts if entry.item is not None else 0
        self._metrics.count(QUEUED)
        self._history.queued(entry.notification, results.results)
        if attempts >= self._settings.max_attempts or all(failure.permanent for failure in results.failed.values()):
            await self._give_up(entry, hold, results, attempts)
            return queued(alert, "dead_lettered")
        self._refusals.forget(entry.key)
        if await hold.release():
            log.debug("Released reservation", fingerprint=alert.fingerprint, severity=alert.severity, fence=hold.fence)
        if entry.item is not None:
            wanted = [failure.retry_after or 0.0 for failure in results.failed.values()]
            await entry.item.give_back(delay=self.pause(attempts, min(wanted)))
        return queued(alert, "publish_failed")

    async def _give_up(self, entry: OutboxEntry, hold: AsyncReservation, results: PublishResults, tries: int) -> None:
        """Adds a dead letter per publisher. The window is recorded all the same: otherwise each repeat of the alert
        would add another dead letter."""
        for name, failure in results.failed.items():
            await self._dead_letters.add(Retry(publisher=name, notification=entry.notification), failure, tries)
        await self._record(entry, hold)
        await self._finish(entry)

    async def _finish(self, entry: OutboxEntry) -> None:
        """Caches the quiet window, closes a resolved alert, and removes the entry."""
        alert = entry.notification.alert
        ends = time.monotonic() + entry.terms.quiet
        self._refusals.remember(entry.key, Refusal(QUIET, ends, entry.notification.trace))
        if alert.status != FIRING:
            await self.close(alert)
        await self._remove(entry)

    async def _queue_retries(self, notification: Notification, results: PublishResults) -> None:
        """Queues a retry for each publisher that failed while others succeeded."""
        for name, failure in results.failed.items():
            retry = Retry(publisher=name, notification=notification)
            if failure.permanent:
                await self._dead_letters.add(retry, failure, 1)
            else:
                delay = self.pause(1, failure.retry_after)
                await self._retries.push(retry.id, msgspec.to_builtins(retry), delay=delay)

    def pause(self, attempts: int, wanted: float | None) -> float:
        """Seconds until the next attempt, after this many; at least what the receiver asked for."""
        return max(self._backoff.pause(max(0, attempts - 1)), min(wanted or 0.0, _LONGEST))

    async def _record(self, entry: OutboxEntry, hold: AsyncReservation) -> bool:
        """Starts the quiet window; False if another worker has the reservation by now.

        The notification was sent, so that a reservation that is gone is logged and not raised.
        """
        alert = entry.notification.alert
        facts = {"fingerprint": alert.fingerprint, "severity": alert.severity}
        try:
            await hold.record()
        except UnknownReservation as unknown:
            log.warning("Attempted to record alert with unknown reservation ID", fence=hold.fence, **facts)
            if unknown.how == "expired":  # and another held and released it: the next alert would be sent again
                await self._record_anew(entry)
        except ReservationMismatch as mismatch:
            log.warning("Reservation ID mismatch", expected=mismatch.expected, got=mismatch.got, **facts)
            return False
        return True

    async def _record_anew(self, entry: OutboxEntry) -> None:
        """Starts the quiet window under a new reservation, if nobody holds one."""
        again = await self._once.reserve(entry.key, **entry.terms._asdict())
        if again:
            await again.record()

    async def _leave_to_holder(self, entry: OutboxEntry) -> None:
        """Leaves the entry to the current holder of the reservation, which sends it again or has done so. It must find
        this entry: otherwise it would use a new id, and receivers could not recognize the repeat."""
        self._refusals.forget(entry.key)
        if entry.item is not None:
            await entry.item.give_back()

    async def _remove(self, entry: OutboxEntry) -> None:
        """Removes the entry, after marking it as sent: another worker may hold the item by now, it may wait for its
        next attempt, and a refused caller may queue it again. Whoever takes such an item finds the mark."""
        ids = {entry.notification.id, entry.named}
        await asyncio.gather(*(self._once.mark(_sent_mark(id), ttl=_SENT) for id in ids))
        if entry.item is not None:
            await entry.item.ack()


def _sent_mark(id: str) -> str:
    return own(f"sent/{id}")
