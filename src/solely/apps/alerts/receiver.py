"""The receiver: each alert is told once per window, whoever sends it how often, to whichever worker.

Three layers decide, the cheapest first: what this worker knows already, the reservation in the store, and, inside
the store, the order of all who ask for one key.
"""

from __future__ import annotations

import asyncio
import secrets
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
    Alert,
    Notification,
    Outcome,
    asking_key,
    fingerprint_prefix,
    key_of,
    own,
    part_of,
    resolved_key,
)
from .notifications.fanout import Fanout
from .notifications.outbox import Outbox, Parcel, Terms
from .settings import table
from .suppression.open_alerts import KEPT
from .suppression.rules import GROUPED, NOT_FIRING, Cleared, Restraints
from .suppression.silences import Silences
from .tracing import id_of, purpose_of, trace_of
from .worker.recent import LIMITED, QUIET, RESERVED, Refusal
from .worker.tools import Tools

log = structlog.get_logger("solely.alerts")

AT_ONCE = 50  # alerts of one request that are decided at the same time: they share round trips, and leave room


class Granted(NamedTuple):
    """The right to tell, what is in the outbox to be told, if nobody else has that, and since when."""

    hold: AsyncReservation
    parcel: Parcel | None
    since: float


class Receiver:
    """Decides on alerts, and has those told that are due."""

    def __init__(
        self, tools: Tools, outbox: Outbox, fanout: Fanout, silences: Silences, restraints: Restraints
    ) -> None:
        self._once = tools.once
        self._answer_within = tools.settings.answer_within
        self._policies = table(tools.settings)
        self._limits = {name.casefold(): limit for name, limit in tools.settings.severity_limits.items()}
        self._recent = tools.recent
        self._capacity = tools.capacity
        self._history = tools.history
        self._metrics = tools.metrics
        self._tracing = tools.tracing
        self._outbox = outbox
        self._fanout = fanout
        self._silences = silences
        self._restraints = restraints
        self._under_way: set[asyncio.Task[Outcome]] = set()

    # -- what others call

    async def receive(self, alert: Alert) -> Outcome:
        """What became of the alert, once it was published, suppressed or durably queued.

        Raises StoreError if the store could not say, and Limited if this worker has too much under way.
        """
        self._metrics.count(RECEIVED)
        alert = self._restraints.groups.placed(alert)
        if alert.status != FIRING:
            return await self._resolved(alert)
        silence = self._silences.match(alert)
        if silence is not None:
            return self._suppressed(alert, Refusal("silenced", time.monotonic() + silence.ends - time.time()))
        if not self._fanout.wanted(alert):
            return self._suppressed(alert, Refusal("no_publisher", 0.0))
        return await self._tell(alert)

    async def receive_all(self, alerts: Sequence[Alert]) -> list[Outcome | SolelyError]:
        """What became of each, in order: an error where it could not be decided."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(alert: Alert) -> Outcome | SolelyError:
            async with slots:
                try:
                    return await self.receive(alert)
                except SolelyError as error:
                    return error

        return await asyncio.gather(*(one(alert) for alert in alerts))

    def check_capacity(self, principal: str) -> None:
        """Counts a request; a Problem (429) if this token asks too often, or this worker has too much under way."""
        self._capacity.check(principal)

    def forget(self, fingerprint: str) -> None:
        """What this worker knows of the alerts of this fingerprint is no longer true."""
        self._recent.forget_all(fingerprint_prefix(fingerprint))
        self._recent.forget(resolved_key(fingerprint))

    def terms(self, notification: Notification) -> Terms:
        """For how long a notification like this is held, and then quiet."""
        alert = notification.alert
        policy = self._policies[alert.severity]
        hold, quiet = float(policy.terms["hold"]), float(policy.terms["quiet"])
        if alert.status != FIRING:
            return Terms(hold, KEPT)
        interval = self._restraints.reminders.interval(alert) if notification.reminder else None
        return Terms(hold, quiet if interval is None else interval)

    async def finish(self, timeout: float) -> None:
        """Waits for what is being published, and no longer than that many seconds: the rest is taken over by others."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # -- deciding

    async def _resolved(self, alert: Alert) -> Outcome:
        others = await self._restraints.others_fire(alert)
        if others is not None:
            return self._suppressed(alert, others)
        fired = await self._outbox.has_fired(alert)
        if fired is not None:
            return await self._tell(alert) if fired else self._suppressed(alert, Refusal(NOT_FIRING, 0.0))
        # That it is on is still on its way: that it is over is told after that.
        notification = self._notification(alert)
        await self._outbox.leave(key_of(alert), notification)
        self._metrics.count(QUEUED)
        self._history.queued(notification, {})
        return Outcome(outcome="queued", fingerprint=alert.fingerprint, reason="not_told_yet")

    async def _tell(self, alert: Alert) -> Outcome:
        key = asking_key(alert)
        answer: Granted | Refusal | None = self._recent.known(key)
        if answer is None:
            answer = await self._recent.ask(key, lambda: self._decide(alert, key_of(alert)))
        if isinstance(answer, Refusal):
            return self._suppressed(alert, answer)
        return await self._have_delivered(alert, answer)

    async def _decide(self, alert: Alert, key: str) -> tuple[Granted | None, Refusal]:
        """Reserves, and puts it into the outbox; a place of this worker's capacity goes with what is granted.

        Who is refused since another has the reservation sees to it that something is in the outbox, too: if that other
        died before it put anything in, this alert is told in its place. It goes under the other's id: so it is known
        as told if it comes late, when that other has told and taken out its own.
        """
        self._capacity.enter()
        granted: Granted | None = None
        try:
            notification = await self._restraints.before(self._notification(alert))
            hold = await self._reserve(key, notification)
            since, told = time.perf_counter(), self._as_told(notification, hold)
            if hold:
                put = await self._put_in(key, notification, hold)
                if isinstance(put, Refusal):
                    return None, put
                granted = Granted(hold, put, since)
            elif hold.reason == RESERVED:
                theirs = id_of(hold.purpose) or notification.id
                await self._outbox.leave(key, msgspec.structs.replace(notification, id=theirs))
            elif hold.reason == LIMITED:
                await self._outbox.disown(notification)
        finally:
            if granted is None:
                self._capacity.leave()
        return granted, told

    async def _reserve(self, key: str, notification: Notification) -> AsyncReservation:
        started, alert = time.perf_counter(), notification.alert
        try:
            with self._tracing.span("reserve", alert):
                purpose = purpose_of(alert, self._tracing.current(), notification.id)
                return await self._once.reserve(key, **self._all_terms(notification), purpose=purpose)
        except StoreError:
            self._metrics.count(LOCK_FAILURES)
            raise
        finally:
            self._metrics.observe(RESERVE_SECONDS, time.perf_counter() - started)

    async def _put_in(self, key: str, notification: Notification, hold: AsyncReservation) -> Parcel | Refusal | None:
        """What is now to be published; None if somebody has it in hand, or why nothing is: then the reservation is free
        again."""
        alert, judged = notification.alert, None
        parcel: Parcel | None = None
        try:
            judged = await self._restraints.judge(notification)
            if isinstance(judged, Cleared):
                parcel = await self._outbox.put_in(key, judged.notification, self.terms(notification))
                await judged.settle(parcel.notification if parcel is not None else None)
            else:
                await self._outbox.disown(notification)
        except BaseException:
            if isinstance(judged, Cleared) and parcel is None:
                with suppress(SolelyError):
                    await judged.settle(None)
            await self._let_go(alert, key, hold)
            raise
        if parcel is None:
            await self._let_go(alert, key, hold)
        return judged if isinstance(judged, Refusal) else parcel

    def _all_terms(self, notification: Notification) -> dict[str, Any]:
        """As arguments of a reserve: those of the severity, with its limits; that it is over has none."""
        alert, terms = notification.alert, self.terms(notification)._asdict()
        if alert.status != FIRING:
            return terms
        shared = self._limits.get(alert.severity.casefold())
        name = own(f"severity/{part_of(alert.severity.casefold())}")
        group = (name, shared.limit, shared.per) if shared is not None else None
        return {**self._policies[alert.severity].terms, **terms, "group": group}

    def _as_told(self, notification: Notification, hold: AsyncReservation) -> Refusal:
        """What others are told of this answer for the next moment."""
        now, alert = time.monotonic(), notification.alert
        if hold:
            return Refusal(RESERVED, now + self.terms(notification).hold, self._tracing.current())
        by_group = alert.group and alert.status == FIRING and hold.reason in (RESERVED, QUIET)
        return Refusal(GROUPED if by_group else hold.reason, now + hold.retry_after, trace_of(hold.purpose))

    def _suppressed(self, alert: Alert, refusal: Refusal) -> Outcome:
        left = refusal.left
        self._metrics.count(SUPPRESSED, refusal.reason)
        self._history.suppressed(alert, refusal.reason)
        if refusal.reason == RESERVED:
            self._metrics.count(COLLISIONS)
            log.debug(
                "Alert suppressed due to active reservation",
                fingerprint=alert.fingerprint,
                severity=alert.severity,
                seconds=f"{left:.2f}",
            )
        with self._tracing.span("suppressed", alert, link=refusal.trace, **{"solely.reason": refusal.reason}):
            again = round(left, 3) if refusal.ends else None
            return Outcome(
                outcome="suppressed", fingerprint=alert.fingerprint, reason=refusal.reason, retry_after=again
            )

    # -- telling

    async def _have_delivered(self, alert: Alert, granted: Granted) -> Outcome:
        """Answers when it was told, or after a while that it is queued. Should the sender go away, the work goes on."""
        task = asyncio.create_task(self._deliver(alert, granted))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait((task,), timeout=self._answer_within)
        if task.done():
            return task.result()
        self._metrics.count(QUEUED)
        return Outcome(outcome="queued", fingerprint=alert.fingerprint, reason="publishing")

    async def _deliver(self, alert: Alert, granted: Granted) -> Outcome:
        if granted.parcel is None:
            self._metrics.count(QUEUED)
            return Outcome(outcome="queued", fingerprint=alert.fingerprint, reason="in_hand")
        try:
            return await self._outbox.deliver(granted.parcel, granted.hold)
        finally:
            self._metrics.observe(HOLD_SECONDS, time.perf_counter() - granted.since)

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        self._under_way.discard(task)
        self._capacity.leave()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("alert_not_delivered", error=str(error) or type(error).__name__)

    async def _let_go(self, alert: Alert, key: str, hold: AsyncReservation) -> None:
        """It was not sent: the next one may try at once. If the store is away, the hold runs out by itself."""
        self._recent.forget(key)
        try:
            if await hold.release():
                log.debug(
                    "Released reservation", fingerprint=alert.fingerprint, severity=alert.severity, fence=hold.fence
                )
        except (StoreError, ClientClosed) as error:
            log.warning("release_failed", fingerprint=alert.fingerprint, severity=alert.severity, error=str(error))

    def _notification(self, alert: Alert) -> Notification:
        return Notification(
            id=f"msg_{secrets.token_hex(16)}", alert=alert, at=time.time(), trace=self._tracing.current()
        )
