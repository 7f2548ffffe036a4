"""The outbox: a notification is in the store from before it is published until after that was recorded, so that whoever
dies in between is taken over, and the same notification is sent under the same id.

Who may publish is decided by the reservation alone. The queue only remembers what is under way.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any, NamedTuple

import msgspec
import structlog

from .... import AsyncItem, AsyncReservation, ClientClosed, ReservationMismatch, State, StoreError, UnknownReservation
from ....resilience import Backoff
from ..figures import EXPIRED, PUBLISHED, QUEUED
from ..model import FIRING, Alert, Notification, Outcome, fingerprint_prefix, key_of, own, subject_of
from ..suppression.groups import Groups
from ..suppression.open_alerts import Openings
from ..worker.recent import QUIET, Refusal
from ..worker.tools import Tools
from .dead_letters import Parking, Retry
from .fanout import Fanout, Sent

log = structlog.get_logger("solely.alerts")

QUEUE = own("notifications")  # notifications that are being published, or wait to be
RETRIES = own("retries")  # notifications that some were told of, each with one that was not
_SEVERITIES = 20  # of one alert that wait at once, at most: more than anybody has
_LOOKS = 4  # at an item that somebody has: who has just recorded it takes it out within a round trip
_PAUSE = 0.05  # seconds between them
_LATE = 600.0  # seconds within which one that was refused comes with what it leaves, and a sweeper takes it
_TOLD = 86_400.0  # seconds: longer than anything waits in the outbox
_LONGEST = 3600.0  # seconds that a receiver can ask us to wait; one that wants more hears of it again in between


class Terms(NamedTuple):
    """On which terms an alert is told: for how long it is held, and how long nobody is told again."""

    hold: float
    quiet: float


class Parcel(NamedTuple):
    """A notification that is in the outbox, the key of its reservation, and its terms. Without `item` it is there,
    waiting for its next try: the holder of the reservation may publish it, and the sweeper takes it out.

    `named` is the id that the reservation names: it is another than that of the notification if that is an older one.
    """

    key: str
    notification: Notification
    terms: Terms
    item: AsyncItem | None
    named: str


class Outbox:
    """Puts notifications in, publishes them, and takes them out again."""

    def __init__(self, tools: Tools, fanout: Fanout, parking: Parking, openings: Openings, groups: Groups) -> None:
        self._once = tools.once
        self._queue = tools.once.queue(QUEUE)
        self._retries = tools.once.queue(RETRIES)
        self._max_attempts = tools.settings.max_attempts
        self._backoff = Backoff(tools.settings.backoff)
        self._recent = tools.recent
        self._history = tools.history
        self._metrics = tools.metrics
        self._tracing = tools.tracing
        self._fanout = fanout
        self._parking = parking
        self._openings = openings
        self._groups = groups

    # -- in

    async def put_in(self, key: str, notification: Notification, terms: Terms) -> Parcel | None:
        """The notification that is now to be published under this key: the given one, or an older one that its
        publisher did not finish; None if somebody has that in hand, so that it is durable, and not ours."""
        payload = msgspec.to_builtins(notification)
        for look in range(_LOOKS):
            item = await self._queue.push_held(key, payload, ttl=terms.hold)
            if item is not None and item.fresh:
                return Parcel(key, notification, terms, item, notification.id)
            there = item or await self._queue.read(key)
            if isinstance(there, AsyncItem) or (there is not None and there.state is not State.HELD):
                older = await self._unfinished(there.payload)
                if older is not None:
                    return Parcel(key, older, terms, item, notification.id)
                if item is not None:
                    await item.give_back()  # the sweeper knows what to do with it
                own = await self._queue.push_held(f"{key}/{notification.id}", payload, ttl=terms.hold)
                return Parcel(key, notification, terms, own, notification.id)
            await asyncio.sleep(_PAUSE * (look + 1))
        return None

    async def _unfinished(self, payload: Any) -> Notification | None:
        """The older notification, if there is anything left to do for it."""
        try:
            older = msgspec.convert(payload, Notification)
        except msgspec.ValidationError:
            return None
        return None if await self.was_told(older) else older

    async def was_told(self, notification: Notification) -> bool:
        """True if it was told and recorded, and is in the outbox only because it could not be taken out then, or was
        put in again by one that was refused meanwhile."""
        return await self._once.seen(_told_mark(notification.id))

    async def leave(self, key: str, notification: Notification) -> None:
        """Sees to it that there is something in the outbox under this key: what is there, or else this, for the sweeper
        or for whoever has the reservation."""
        await self._queue.push(key, msgspec.to_builtins(notification))

    async def has_fired(self, alert: Alert) -> bool | None:
        """True if people were told of it and not yet that it is over; None if that is on its way; False if neither."""
        if await self._openings.is_open(alert):
            return True
        prefix = fingerprint_prefix(subject_of(alert))
        for item in await self._queue.list(after=prefix, limit=_SEVERITIES):
            if item.id.startswith(prefix) and await self._unfinished(item.payload) is not None:
                return None
        return await self._openings.is_open(alert)  # it may have been told and taken out between the two looks

    async def disown(self, notification: Notification) -> None:
        """It is not to be told after all: neither is what those who were refused meanwhile leave under its id."""
        await self._once.mark(_told_mark(notification.id), ttl=_LATE)

    async def close(self, alert: Alert) -> None:
        """People were told that it is over. Alerts of its group that came just then, and were suppressed by the window
        that is closed now, are told."""
        await self._openings.closed(alert)
        for missed in await self._groups.firing(alert):
            id = f"msg_{secrets.token_hex(16)}"
            await self.leave(key_of(missed), Notification(id=id, alert=missed, at=time.time()))

    # -- out

    async def deliver(self, parcel: Parcel, hold: AsyncReservation) -> Outcome:
        """Publishes what is in the outbox, under this reservation, and settles it; what became of it.

        If the store goes away meanwhile it stays in the outbox: it is sent again, under the same id.
        """
        if hold.attempts > 1 and not (parcel.item is not None and parcel.item.fresh):
            self._metrics.count(EXPIRED)
        try:
            sent = await self._fanout.publish(parcel.notification)
            return await self._settle(parcel, hold, sent)
        finally:
            hold.hand_over()  # what could not be settled is no longer renewed, so that others can take over

    async def _settle(self, parcel: Parcel, hold: AsyncReservation, sent: Sent) -> Outcome:
        try:
            return await (self._told(parcel, hold, sent) if sent.reached else self._untold(parcel, hold, sent))
        except (StoreError, ClientClosed) as error:
            alert = parcel.notification.alert
            log.warning("alert_not_settled", fingerprint=alert.fingerprint, severity=alert.severity, error=str(error))
            return _published(alert) if sent.reached else _queued(alert, "publish_failed")

    async def _told(self, parcel: Parcel, hold: AsyncReservation, sent: Sent) -> Outcome:
        notification = parcel.notification
        alert = notification.alert
        self._metrics.count(PUBLISHED)
        self._history.published(notification, sent.results, sent.seconds)
        await self._keep_failed(notification, sent)
        if alert.status == FIRING:
            await self._openings.opened(alert, notification.reminder)
        with self._tracing.span("record", alert):
            recorded = await self._record(parcel, hold)
        if not recorded:
            await self._leave_to_holder(parcel)
            return _published(alert)
        self._remember_quiet(parcel)
        if alert.status != FIRING:
            await self.close(alert)
        await self._take_out(parcel)
        return _published(alert)

    async def _untold(self, parcel: Parcel, hold: AsyncReservation, sent: Sent) -> Outcome:
        alert, attempts = parcel.notification.alert, parcel.item.attempts if parcel.item is not None else 0
        self._metrics.count(QUEUED)
        self._history.queued(parcel.notification, sent.results)
        if attempts >= self._max_attempts or all(failure.permanent for failure in sent.failed.values()):
            await self._give_up(parcel, hold, sent, attempts)
            return _queued(alert, "dead_lettered")
        self._recent.forget(parcel.key)
        if await hold.release():
            log.debug("Released reservation", fingerprint=alert.fingerprint, severity=alert.severity, fence=hold.fence)
        if parcel.item is not None:
            wanted = [failure.retry_after or 0.0 for failure in sent.failed.values()]
            await parcel.item.give_back(delay=self.pause(attempts, min(wanted)))
        return _queued(alert, "publish_failed")

    async def _give_up(self, parcel: Parcel, hold: AsyncReservation, sent: Sent, attempts: int) -> None:
        """Nobody could be told. Recorded all the same: else each repeat of the alert would be one dead letter more."""
        for name, failure in sent.failed.items():
            await self._parking.park(Retry(publisher=name, notification=parcel.notification), failure, attempts)
        await self._record(parcel, hold)
        self._remember_quiet(parcel)
        if parcel.notification.alert.status != FIRING:
            await self.close(parcel.notification.alert)
        await self._take_out(parcel)

    async def _keep_failed(self, notification: Notification, sent: Sent) -> None:
        """Some were told: those that were not are told later, each on its own."""
        for name, failure in sent.failed.items():
            retry = Retry(publisher=name, notification=notification)
            if failure.permanent:
                await self._parking.park(retry, failure, 1)
            else:
                delay = self.pause(1, failure.retry_after)
                await self._retries.push(retry.id, msgspec.to_builtins(retry), delay=delay)

    def pause(self, attempts: int, wanted: float | None) -> float:
        """Seconds until the next try, after so many; at least what the receiver wanted."""
        return max(self._backoff.pause(max(0, attempts - 1)), min(wanted or 0.0, _LONGEST))

    async def _record(self, parcel: Parcel, hold: AsyncReservation) -> bool:
        """Starts the quiet window. People were told, so whatever is in the way of that is no failure: it is logged.

        False if another has the reservation since.
        """
        alert = parcel.notification.alert
        facts = {"fingerprint": alert.fingerprint, "severity": alert.severity}
        try:
            await hold.record()
        except UnknownReservation as unknown:
            log.warning("Attempted to record alert with unknown reservation ID", fence=hold.fence, **facts)
            if unknown.how == "expired":  # and another had it and let go: else the next alert would be told anew
                await self._record_anew(parcel)
        except ReservationMismatch as mismatch:
            log.warning("Reservation ID mismatch", expected=mismatch.expected, got=mismatch.got, **facts)
            return False
        return True

    async def _record_anew(self, parcel: Parcel) -> None:
        """Starts the quiet window under a reservation of its own, if nobody has one."""
        again = await self._once.reserve(parcel.key, **parcel.terms._asdict())
        if again:
            await again.record()

    async def _leave_to_holder(self, parcel: Parcel) -> None:
        """Whoever has the reservation now tells it again, or has done so. It must find it in the outbox: else it would
        go under an id of its own, and receivers could not tell that it is the same."""
        self._recent.forget(parcel.key)
        if parcel.item is not None:
            await parcel.item.give_back()

    def _remember_quiet(self, parcel: Parcel) -> None:
        ends = time.monotonic() + parcel.terms.quiet
        self._recent.remember(parcel.key, Refusal(QUIET, ends, parcel.notification.trace))

    async def _take_out(self, parcel: Parcel) -> None:
        """Takes it out, marked as told before that: somebody else may have it now, it may wait for its next try, and
        one that was refused meanwhile may put it in again. Whoever takes that finds the mark."""
        ids = {parcel.notification.id, parcel.named}
        await asyncio.gather(*(self._once.mark(_told_mark(id), ttl=_TOLD) for id in ids))
        if parcel.item is not None:
            await parcel.item.ack()


def _told_mark(id: str) -> str:
    return own(f"told/{id}")


def _published(alert: Alert) -> Outcome:
    return Outcome(outcome="published", fingerprint=alert.fingerprint)


def _queued(alert: Alert, reason: str) -> Outcome:
    return Outcome(outcome="queued", fingerprint=alert.fingerprint, reason=reason)
