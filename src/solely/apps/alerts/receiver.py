"""The receiver: each alert sends one notification per window, however often and to whichever worker it is sent.

Three layers decide, the cheapest first: this worker's cache of refusals, the reservation in the store, and, inside the
store, the order of all requests for one key.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import msgspec
import structlog

from ... import AsyncAdmission, AsyncReservation, ClientClosed, SolelyError, StoreError
from ...kit import Background
from .decision import FIRING_QUEUED, LIMITED, QUIET, RESERVED, RESOLVED_QUEUED, SEND, Decision, Facts, decide
from .figures import LOCK_FAILURES, QUEUED, RECEIVED, RESERVE_SECONDS, WAIT_SECONDS
from .model import (
    FIRING,
    Alert,
    AlertOutcome,
    Notification,
    cache_key,
    fingerprint_prefix,
    key_of,
    new_notification,
    queued,
    resolved_key,
    with_group,
)
from .notifications.delivery import Deliverer, Delivery
from .settings import AlertsSettings
from .worker import FRESH

log = structlog.get_logger("solely.alerts")

Granted = Delivery | AlertOutcome  # what to deliver, or that another worker is publishing it

AT_ONCE = 50  # alerts of one request that are decided concurrently: they share round trips, and leave room for others


class AlertReceiver:
    """Decides on alerts, and delivers those that are due."""

    def __init__(self, settings: AlertsSettings, deliverer: Deliverer) -> None:
        self._group_by, self._answer_within = settings.group_by, settings.answer_within
        self._deliverer, self._windows, self._refusals = deliverer, deliverer.windows, deliverer.refusals
        self._capacity, self._reports = deliverer.capacity, deliverer.reports
        self._open, self._outbox = deliverer.open_alerts, deliverer.outbox
        self._background = Background(
            lambda error: log.error("alert_not_settled", error=str(error) or type(error).__name__)
        )
        self.check_capacity, self.finish = self._capacity.check, self._background.finish

    async def receive(self, alert: Alert) -> AlertOutcome:
        """The outcome of the alert, once it is published, suppressed or durably queued; `queued` after `answer_within`
        seconds. A delivery goes on if the sender disconnects.

        Raises StoreError if the store is unreachable, and Limited if this worker has too much in flight.
        """
        self._reports.count(RECEIVED)
        alert = with_group(alert, self._group_by)
        decided = await self._decide(alert)
        if isinstance(decided, Decision):
            return self._suppress(alert, decided)
        if isinstance(decided, AlertOutcome):
            return decided
        task = self._background.start(self._deliverer.deliver(decided))
        task.add_done_callback(lambda _: self._capacity.leave())
        await asyncio.wait((task,), timeout=self._answer_within)
        if task.done():
            return task.result()
        self._reports.count(QUEUED)
        if alert.status == FIRING:
            self._background.start(self._open.enter(alert))
        return queued(alert, "publishing")

    async def receive_all(self, alerts: Sequence[Alert]) -> list[AlertOutcome | SolelyError]:
        """The outcome of each alert, in order; an error where none could be determined."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(alert: Alert) -> AlertOutcome | SolelyError:
            async with slots:
                try:
                    return await self.receive(alert)
                except SolelyError as error:
                    return error

        return await asyncio.gather(*(one(alert) for alert in alerts))

    def forget(self, fingerprint: str) -> None:
        """Evicts cached refusals of this fingerprint."""
        self._refusals.forget_all(fingerprint_prefix(fingerprint))
        self._refusals.forget(resolved_key(fingerprint))

    # -- decisions

    async def _decide(self, alert: Alert) -> Granted | Decision:
        """What to deliver, or why nothing is. Concurrent callers with the same alert share one decision."""
        was_firing = alert.status == FIRING or await self._open.leave(alert)
        decision = decide(await self._outbox.facts_of(alert, was_firing))
        if decision.reason:
            return await self._not_sent(alert, decision)
        key, started = cache_key(alert), time.perf_counter()
        known = self._refusals.get(key)
        if known is not None:
            return known
        decided: Granted | Decision = await self._refusals.decide_once(key, lambda: self._request(alert))
        self._reports.observe(WAIT_SECONDS, time.perf_counter() - started)
        return decided

    async def _not_sent(self, alert: Alert, decision: Decision) -> AlertOutcome | Decision:
        if decision.reason == FIRING_QUEUED:  # the sweeper sends it after the firing notification
            notification = self._notification(alert)
            await self._outbox.ensure_queued(key_of(alert), notification)
            self._deliverer.forget_firing(alert)
            self._reports.queued(notification, {})
            return queued(alert, FIRING_QUEUED)
        if alert.status == FIRING:
            await self._list_as_firing(alert)
        return decision

    async def _list_as_firing(self, alert: Alert) -> None:
        """Lists a suppressed alert as firing, at most once a moment; a slow store delays its sender no longer."""
        key = f"listed/{cache_key(alert)}"
        if self._refusals.get(key) is None:
            self._refusals.remember(key, Decision(key, math.inf))
            await asyncio.wait((self._background.start(self._list(alert)),), timeout=FRESH)

    async def _list(self, alert: Alert) -> None:
        await asyncio.gather(self._open.enter(alert), self._outbox.withdraw_resolved(alert))

    async def _request(self, alert: Alert) -> tuple[Granted | None, Decision]:
        """What to deliver, and the refusal for all others; a delivery keeps its place in this worker's capacity."""
        self._capacity.enter()
        granted: Granted | None = None
        try:
            notification = await self._prepare(alert)
            hold, in_order = await self._reserve_in_order(notification)
            if not in_order and (hold or hold.reason == QUIET):
                return await self._behind_resolved(notification, hold)
            if not hold:
                return None, await self._refused(notification, hold)
            granted, refusal = await self._queue(notification, hold)
            return granted, refusal
        finally:
            if not isinstance(granted, Delivery):
                self._capacity.leave()

    async def _prepare(self, alert: Alert) -> Notification:
        """A notification with its reminder number. An alert joins its group before it requests the window, and whoever
        ends the window looks for members after that: one that comes in between gets the new window or is found."""
        notification = self._notification(alert)
        if alert.status != FIRING:
            return notification
        await self._open.join(alert)
        record = await self._open.read(alert) if self._windows.remind(alert.severity) else None
        sent = record.notified.get(alert.severity) if record is not None else None
        return notification if sent is None else msgspec.structs.replace(notification, reminder=sent.times)

    async def _reserve_in_order(self, notification: Notification) -> tuple[AsyncReservation, bool]:
        """The reservation, requested in one round trip with the withdrawal of a queued resolved notification, which is
        no longer true; False if that one comes first, since it is being sent, or ends the window that refuses this one.

        The queue is read before the window. Otherwise the resolved one could be finished between the two: nothing would
        be there any more behind which this one is queued, although the window still refused it."""
        alert = notification.alert
        if alert.status != FIRING:
            return await self._reserve(notification), True
        withdrawn, hold = await asyncio.gather(
            self._outbox.withdraw_resolved(alert), self._reserve(notification), return_exceptions=True
        )
        if isinstance(hold, BaseException):
            raise hold
        if isinstance(withdrawn, BaseException):
            if hold:
                await self._release(notification, hold)
            raise withdrawn
        return hold, bool(hold) if withdrawn is None else withdrawn

    async def _behind_resolved(
        self, notification: Notification, hold: AsyncReservation
    ) -> tuple[AlertOutcome, Decision]:
        """Queues the notification: the resolved one ends the window, and the sweeper then sends this one."""
        if hold:
            await self._release(notification, hold)
        await self._outbox.ensure_queued(key_of(notification.alert), notification)
        self._reports.queued(notification, {})
        return queued(notification.alert, RESOLVED_QUEUED), Decision(RESERVED)

    async def _reserve(self, notification: Notification) -> AsyncReservation:
        started = time.perf_counter()
        try:
            with self._reports.span("reserve", notification.alert):
                return await self._windows.reserve(notification, limited=True)
        except StoreError:
            self._reports.count(LOCK_FAILURES)
            raise
        finally:
            self._reports.observe(RESERVE_SECONDS, time.perf_counter() - started)

    async def _refused(self, notification: Notification, hold: AsyncReservation) -> Decision:
        """The refusal. If another worker holds the reservation, this alert is queued too, unless something is: if that
        worker died before it queued anything, this alert is sent in its place. It uses the id of the other's
        notification, so that a late copy is recognized as sent once the other has sent and removed its own."""
        alert = notification.alert
        if hold.reason == RESERVED:
            copy = msgspec.structs.replace(notification, id=hold.details.get("id") or notification.id)
            await self._outbox.leave_copy(key_of(alert), copy)
        elif hold.reason == LIMITED:
            await self._outbox.discard(notification)
        facts = Facts(alert.status == FIRING, bool(alert.group), window=hold.reason, window_left=hold.retry_after)
        return decide(facts)._replace(trace=hold.details.get("trace", ""))

    async def _queue(self, notification: Notification, hold: AsyncReservation) -> tuple[Granted | None, Decision]:
        """Queues the notification, to be delivered under this reservation; this is released if a rule suppresses the
        notification, or if another worker is publishing it."""
        since, alert, ttl = time.perf_counter(), notification.alert, self._windows.terms(notification)["hold"]
        for_others = Decision(RESERVED, ttl, notification.trace)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._release, notification, hold)
            decision, notification, opening = await self._check(notification)
            if opening:
                undo.push_async_callback(_undo, opening)
            if decision.reason:
                await self._outbox.discard(notification)
                return None, decision
            added = await self._outbox.add(hold.key, notification, ttl)
            if added is None:
                self._reports.count(QUEUED)
                return queued(alert, "in_flight"), for_others
            older, item = added
            if opening and older.id != notification.id:  # which was counted before
                await opening.undo()
            undo.pop_all()
        return Delivery(older, hold, item, since), for_others

    async def _check(self, notification: Notification) -> tuple[Decision, Notification, AsyncAdmission | None]:
        """The decision of the holder of the reservation, the notification as it is sent, and the opening that it counts
        as, if any. Only a notification that would be sent costs these reads."""
        alert, facts, opening = notification.alert, Facts(firing=True), None
        if alert.status != FIRING:
            return SEND, notification, None
        acknowledged = await self._outbox.acknowledged(alert)
        if self._windows.counts_openings and acknowledged is None and not await self._open.is_open(alert):
            opening = await self._windows.opening(alert)
            facts = facts._replace(flapping=None if opening else opening.retry_after)
        flaps = opening is not None and self._windows.is_last(opening)
        members = await self._open.members(alert)
        notification = msgspec.structs.replace(notification, flapping=flaps, members=members)
        return decide(facts._replace(acknowledged=acknowledged)), notification, opening

    async def _release(self, notification: Notification, hold: AsyncReservation) -> None:
        """Releases the reservation. If the store is unreachable, the hold expires."""
        try:
            await self._deliverer.release(notification, hold)
        except (StoreError, ClientClosed) as error:
            log.warning("release_failed", **notification.alert.facts, error=str(error))

    def _suppress(self, alert: Alert, decision: Decision) -> AlertOutcome:
        self._reports.suppressed(alert, decision)
        again = round(decision.left, 3) if decision.left else None
        given = {"fingerprint": alert.fingerprint, "reason": decision.reason}
        return AlertOutcome(outcome="suppressed", **given, retry_after=again)

    def _notification(self, alert: Alert) -> Notification:
        return new_notification(alert, self._reports.trace())


async def _undo(opening: AsyncAdmission) -> None:
    with suppress(SolelyError):  # one opening more is counted, and the store's error is raised by what failed before
        await opening.undo()
