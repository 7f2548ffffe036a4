"""The receiver: each alert sends one notification per window, however often and to whichever worker it is sent.

Three layers decide, the cheapest first: this worker's cache of refusals, the reservation in the store, and, inside the
store, the order of all requests for one key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import structlog

from ... import AsyncReservation, ClientClosed, SolelyError, StoreError
from .figures import COLLISIONS, HOLD_SECONDS, LOCK_FAILURES, QUEUED, RECEIVED, RESERVE_SECONDS, SUPPRESSED
from .model import (
    FIRING,
    MAX_OPEN,
    Alert,
    AlertOutcome,
    Notification,
    cache_key,
    fingerprint_prefix,
    key_of,
    new_notification,
    own,
    part_of,
    queued,
    resolved_key,
)
from .notifications.fanout import Fanout
from .notifications.outbox import Outbox, OutboxEntry, WindowTerms
from .settings import table
from .suppression.rules import GROUPED, NOT_FIRING, Approved, SuppressionRules
from .suppression.silences import Silences
from .tracing import id_of, purpose_of, trace_of
from .worker import LIMITED, QUIET, RESERVED, AlertsPart, Dependencies, Refusal, finish_or_cancel

log = structlog.get_logger("solely.alerts")

AT_ONCE = 50  # alerts of one request that are decided concurrently: they share round trips, and leave room for others


class Granted(NamedTuple):
    """A reservation, the entry to publish under it (None if another worker holds that), and when it was granted."""

    hold: AsyncReservation
    entry: OutboxEntry | None
    since: float


class Receiver(AlertsPart):
    """Decides on alerts, and delivers those that are due."""

    def __init__(
        self, given: Dependencies, outbox: Outbox, fanout: Fanout, silences: Silences, rules: SuppressionRules
    ) -> None:
        super().__init__(given)
        self._policies = table(given.settings)
        self._limits = {name.casefold(): limit for name, limit in given.settings.severity_limits.items()}
        self._outbox = outbox
        self._fanout = fanout
        self._silences = silences
        self._rules = rules
        self._in_flight: set[asyncio.Task[AlertOutcome]] = set()

    async def receive(self, alert: Alert) -> AlertOutcome:
        """The outcome of the alert, once it is published, suppressed or durably queued.

        Raises StoreError if the store is unreachable, and Limited if this worker has too much in flight.
        """
        self._metrics.count(RECEIVED)
        alert = self._rules.groups.with_group(alert)
        if alert.status != FIRING:
            return await self._resolve(alert)
        silence = self._silences.match(alert)
        if silence is not None:
            return self._suppress(alert, Refusal("silenced", time.monotonic() + silence.ends - time.time()))
        if not self._fanout.wanted(alert):
            return self._suppress(alert, Refusal("no_publisher", 0.0))
        return await self._notify(alert)

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

    def check_capacity(self, principal: str) -> None:
        """Counts a request; raises Problem (429) if this token or this worker is over its bound."""
        self._capacity.check(principal)

    def forget(self, fingerprint: str) -> None:
        """Evicts cached refusals of this fingerprint."""
        self._refusals.forget_all(fingerprint_prefix(fingerprint))
        self._refusals.forget(resolved_key(fingerprint))

    def terms(self, notification: Notification) -> WindowTerms:
        """How long a notification like this is held, and then quiet."""
        alert = notification.alert
        policy = self._policies[alert.severity]
        hold, quiet = float(policy.terms["hold"]), float(policy.terms["quiet"])
        if alert.status != FIRING:
            return WindowTerms(hold, MAX_OPEN)
        interval = self._rules.reminders.interval(alert) if notification.reminder else None
        return WindowTerms(hold, quiet if interval is None else interval)

    async def finish(self, timeout: float) -> None:
        """Waits at most `timeout` seconds for what is being published; other workers take over the rest."""
        await finish_or_cancel(self._in_flight, timeout)

    # -- decisions

    async def _resolve(self, alert: Alert) -> AlertOutcome:
        refusal = await self._rules.leave_group(alert)
        if refusal is not None:
            return self._suppress(alert, refusal)
        fired = await self._outbox.has_fired(alert)
        if fired is not None:
            return await self._notify(alert) if fired else self._suppress(alert, Refusal(NOT_FIRING, 0.0))
        # The firing notification is still queued: the resolved one is sent after it.
        notification = self._notification(alert)
        await self._outbox.ensure_queued(key_of(alert), notification)
        self._metrics.count(QUEUED)
        self._history.queued(notification, {})
        return queued(alert, "firing_queued")

    async def _notify(self, alert: Alert) -> AlertOutcome:
        key = cache_key(alert)
        decision: Granted | Refusal | None = self._refusals.get(key)
        if decision is None:
            decision = await self._refusals.decide_once(key, lambda: self._decide(alert, key_of(alert)))
        if isinstance(decision, Refusal):
            return self._suppress(alert, decision)
        return await self._deliver_in_background(alert, decision)

    async def _decide(self, alert: Alert, key: str) -> tuple[Granted | None, Refusal]:
        """Reserves the key and queues the notification; what is granted keeps its place in this worker's capacity.

        A caller that is refused because another worker holds the reservation queues its alert too, unless something is
        queued: if that worker died before it queued anything, this alert is sent in its place. It uses the id of the
        other's notification, so that a late copy is recognized as sent once the other has sent and removed its own.
        """
        self._capacity.enter()
        granted: Granted | None = None
        try:
            notification = await self._rules.prepare(self._notification(alert))
            hold = await self._reserve(key, notification)
            since, for_others = time.perf_counter(), self._refusal_for_others(notification, hold)
            if hold:
                entry = await self._queue(key, notification, hold)
                if isinstance(entry, Refusal):
                    return None, entry
                granted = Granted(hold, entry, since)
            elif hold.reason == RESERVED:
                id = id_of(hold.purpose) or notification.id
                await self._outbox.ensure_queued(key, msgspec.structs.replace(notification, id=id))
            elif hold.reason == LIMITED:
                await self._outbox.discard(notification)
        finally:
            if granted is None:
                self._capacity.leave()
        return granted, for_others

    async def _reserve(self, key: str, notification: Notification) -> AsyncReservation:
        started, alert = time.perf_counter(), notification.alert
        try:
            with self._tracing.span("reserve", alert):
                purpose = purpose_of(alert, self._tracing.current(), notification.id)
                return await self._once.reserve(key, **self._reserve_terms(notification), purpose=purpose)
        except StoreError:
            self._metrics.count(LOCK_FAILURES)
            raise
        finally:
            self._metrics.observe(RESERVE_SECONDS, time.perf_counter() - started)

    async def _queue(
        self, key: str, notification: Notification, hold: AsyncReservation
    ) -> OutboxEntry | Refusal | None:
        """The entry to publish; None if another worker holds it, or a Refusal if a rule suppresses the alert: in both
        cases the reservation is released."""
        alert, checked = notification.alert, None
        entry: OutboxEntry | None = None
        try:
            checked = await self._rules.check(notification)
            if isinstance(checked, Approved):
                entry = await self._outbox.add(key, checked.notification, self.terms(notification))
                await checked.settle(entry.notification if entry is not None else None)
            else:
                await self._outbox.discard(notification)
        except BaseException:
            if isinstance(checked, Approved) and entry is None:
                with suppress(SolelyError):
                    await checked.settle(None)
            await self._release(alert, key, hold)
            raise
        if entry is None:
            await self._release(alert, key, hold)
        return checked if isinstance(checked, Refusal) else entry

    def _reserve_terms(self, notification: Notification) -> dict[str, Any]:
        """The arguments of a reserve: the terms of the severity with its limits; a resolved alert has no limits."""
        alert, terms = notification.alert, self.terms(notification)._asdict()
        if alert.status != FIRING:
            return terms
        shared = self._limits.get(alert.severity.casefold())
        name = own(f"severity/{part_of(alert.severity.casefold())}")
        group = (name, shared.limit, shared.per) if shared is not None else None
        return {**self._policies[alert.severity].terms, **terms, "group": group}

    def _refusal_for_others(self, notification: Notification, hold: AsyncReservation) -> Refusal:
        """The refusal that repeats of this alert get from the cache."""
        now, alert = time.monotonic(), notification.alert
        if hold:
            return Refusal(RESERVED, now + self.terms(notification).hold, self._tracing.current())
        by_group = alert.group and alert.status == FIRING and hold.reason in (RESERVED, QUIET)
        return Refusal(GROUPED if by_group else hold.reason, now + hold.retry_after, trace_of(hold.purpose))

    def _suppress(self, alert: Alert, refusal: Refusal) -> AlertOutcome:
        reason, left = refusal.reason, refusal.left
        self._metrics.count(SUPPRESSED, reason)
        self._history.suppressed(alert, reason)
        if reason == RESERVED:
            self._metrics.count(COLLISIONS)
            log.debug(
                "Alert suppressed due to active reservation",
                fingerprint=alert.fingerprint,
                severity=alert.severity,
                seconds=f"{left:.2f}",
            )
        with self._tracing.span("suppressed", alert, link=refusal.trace, **{"solely.reason": reason}):
            again = round(left, 3) if refusal.ends else None
            return AlertOutcome(outcome="suppressed", fingerprint=alert.fingerprint, reason=reason, retry_after=again)

    # -- delivery

    async def _deliver_in_background(self, alert: Alert, granted: Granted) -> AlertOutcome:
        """The outcome, or `queued` after `answer_within` seconds. The delivery goes on if the sender disconnects."""
        task = asyncio.create_task(self._deliver(alert, granted))
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait((task,), timeout=self._settings.answer_within)
        if task.done():
            return task.result()
        self._metrics.count(QUEUED)
        return queued(alert, "publishing")

    async def _deliver(self, alert: Alert, granted: Granted) -> AlertOutcome:
        if granted.entry is None:
            self._metrics.count(QUEUED)
            return queued(alert, "in_flight")
        try:
            return await self._outbox.deliver(granted.entry, granted.hold)
        finally:
            self._metrics.observe(HOLD_SECONDS, time.perf_counter() - granted.since)

    def _ended(self, task: asyncio.Task[AlertOutcome]) -> None:
        self._in_flight.discard(task)
        self._capacity.leave()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("alert_not_delivered", error=str(error) or type(error).__name__)

    async def _release(self, alert: Alert, key: str, hold: AsyncReservation) -> None:
        """Releases the reservation of an alert that was not sent. If the store is unreachable, the hold expires."""
        self._refusals.forget(key)
        try:
            if await hold.release():
                log.debug(
                    "Released reservation", fingerprint=alert.fingerprint, severity=alert.severity, fence=hold.fence
                )
        except (StoreError, ClientClosed) as error:
            log.warning("release_failed", fingerprint=alert.fingerprint, severity=alert.severity, error=str(error))

    def _notification(self, alert: Alert) -> Notification:
        return new_notification(alert, self._tracing.current())
