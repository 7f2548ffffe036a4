"""The receiver: each alert is told once per window, whoever sends it how often, to whichever worker.

Three layers decide, the cheapest first: what this worker knows already, the reservation in the store, and, inside
the store, the order of all who ask for one key.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from ... import AsyncReservation, ClientClosed, SolelyError, StoreError
from .figures import COLLISIONS, HOLD_SECONDS, LOCK_FAILURES, QUEUED, RECEIVED, RESERVE_SECONDS, SUPPRESSED
from .model import FIRING, Alert, Notification, Outcome, fingerprint_prefix, key_of, resolved_key
from .outbox import Outbox, Parcel, Terms
from .publishing import Fanout
from .recent import RESERVED, Refusal
from .resolving import KEPT, Openings
from .settings import table
from .silences import Silences
from .tools import Tools
from .tracing import purpose_of, trace_of

log = structlog.get_logger("solely.alerts")

AT_ONCE = 50  # alerts of one request that are decided at the same time: they share round trips, and leave room


class Granted(NamedTuple):
    """The right to tell, what is in the outbox to be told, if nobody else has that, and since when."""

    hold: AsyncReservation
    parcel: Parcel | None
    since: float


class Receiver:
    """Decides on alerts, and has those told that are due."""

    def __init__(self, tools: Tools, outbox: Outbox, fanout: Fanout, openings: Openings, silences: Silences) -> None:
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
        self._openings = openings
        self._silences = silences
        self._under_way: set[asyncio.Task[Outcome]] = set()

    # -- what others call

    async def receive(self, alert: Alert) -> Outcome:
        """What became of the alert, once it was published, suppressed or durably queued.

        Raises StoreError if the store could not say, and Limited if this worker has too much under way.
        """
        self._metrics.count(RECEIVED)
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

    def terms(self, alert: Alert) -> Terms:
        """For how long an alert like this is held, and then quiet."""
        policy = self._policies[alert.severity]
        hold, quiet = float(policy.terms["hold"]), float(policy.terms["quiet"])
        return Terms(hold, quiet if alert.status == FIRING else KEPT)

    async def finish(self, timeout: float) -> None:
        """Waits for what is being published, and no longer than that many seconds: the rest is taken over by others."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # -- deciding

    async def _resolved(self, alert: Alert) -> Outcome:
        if await self._openings.is_open(alert):
            return await self._tell(alert)
        if not await self._outbox.waits(fingerprint_prefix(alert.fingerprint)):
            return self._suppressed(alert, Refusal("not_firing", 0.0))
        # That it is on is still on its way: that it is over is told after that.
        notification = self._notification(alert)
        await self._outbox.leave(key_of(alert), notification)
        self._metrics.count(QUEUED)
        self._history.queued(notification, {})
        return Outcome(outcome="queued", fingerprint=alert.fingerprint, reason="not_told_yet")

    async def _tell(self, alert: Alert) -> Outcome:
        key = key_of(alert)
        answer: Granted | Refusal | None = self._recent.known(key)
        if answer is None:
            answer = await self._recent.ask(key, lambda: self._decide(alert, key))
        if isinstance(answer, Refusal):
            return self._suppressed(alert, answer)
        return await self._have_delivered(alert, answer)

    async def _decide(self, alert: Alert, key: str) -> tuple[Granted | None, Refusal]:
        """Reserves, and puts it into the outbox; a place of this worker's capacity goes with what is granted.

        Who is refused since another has the reservation sees to it that something is in the outbox, too: if that other
        died before it put anything in, this alert is told in its place.
        """
        self._capacity.enter()
        granted: Granted | None = None
        try:
            hold = await self._reserve(alert, key)
            told = self._as_told(alert, hold)
            if hold:
                granted = Granted(hold, await self._put_in(alert, key, hold), time.perf_counter())
            elif told.reason == RESERVED:
                await self._outbox.leave(key, self._notification(alert))
        finally:
            if granted is None:
                self._capacity.leave()
        return granted, told

    async def _reserve(self, alert: Alert, key: str) -> AsyncReservation:
        started = time.perf_counter()
        try:
            with self._tracing.span("reserve", alert):
                purpose = purpose_of(alert, self._tracing.current())
                return await self._once.reserve(key, **self._all_terms(alert), purpose=purpose)
        except StoreError:
            self._metrics.count(LOCK_FAILURES)
            raise
        finally:
            self._metrics.observe(RESERVE_SECONDS, time.perf_counter() - started)

    async def _put_in(self, alert: Alert, key: str, hold: AsyncReservation) -> Parcel | None:
        """What is now to be published; None if somebody has it in hand, and then the reservation is free again."""
        try:
            parcel = await self._outbox.put_in(key, self._notification(alert), self.terms(alert))
        except BaseException:
            await self._let_go(alert, key, hold)
            raise
        if parcel is None:
            await self._let_go(alert, key, hold)
        return parcel

    def _all_terms(self, alert: Alert) -> dict[str, Any]:
        """As arguments of a reserve: those of the severity, with its limits; that it is over has none."""
        if alert.status != FIRING:
            return self.terms(alert)._asdict()
        shared = self._limits.get(alert.severity.casefold())
        group = (f"alerts:{alert.severity.casefold()}", shared.limit, shared.per) if shared is not None else None
        return {**self._policies[alert.severity].terms, "group": group}

    def _as_told(self, alert: Alert, hold: AsyncReservation) -> Refusal:
        """What others are told of this answer for the next moment."""
        now = time.monotonic()
        if hold:
            return Refusal(RESERVED, now + self.terms(alert).hold, self._tracing.current())
        return Refusal(hold.reason, now + hold.retry_after, trace_of(hold.purpose))

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
