"""The sweeper: publishes what waits in the outbox because a worker died or its receivers were unreachable.

Each worker sweeps about once a second. Workers do not wait for one another: an item is leased, and its reservation
decides which worker may publish it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from .... import AsyncItem, AsyncReservation, ClientClosed, StoreError
from ..figures import HOLD_SECONDS
from ..model import FIRING, Notification, key_of
from ..suppression.rules import ACKNOWLEDGED, NOT_FIRING, SuppressionRules
from ..tracing import purpose_of
from ..worker import QUIET, AlertsPart, Dependencies, finish_or_cancel
from .dead_letters import NotificationDeadLetters, Retry
from .outbox import QUEUE, RETRIES, Outbox, OutboxEntry, WindowTerms

log = structlog.get_logger("solely.alerts")

EVERY = 1.0  # seconds: a due item waits no longer than that
LEASE = 10.0  # seconds: the shortest usual hold, so that a worker that dies with an item delays it no longer
# Seconds: longer than any publish takes, since only the lease keeps other workers from publishing a retry.
LEASE_OF_RETRIES = 90.0
_AT_ONCE = 16  # items of each queue per worker: the backlog does not flood a receiver that comes back
_FOR = 5.0  # seconds: the longest that one sweep runs
_SOON = 0.5  # seconds, at least, until an item that another worker is publishing is taken again

Work = Callable[[AsyncItem], Awaitable[object]]
TermsOf = Callable[[Notification], WindowTerms]


class Sweeper(AlertsPart):
    """Publishes the backlog of the outbox and of retries."""

    def __init__(
        self,
        given: Dependencies,
        outbox: Outbox,
        dead_letters: NotificationDeadLetters,
        rules: SuppressionRules,
        terms: TermsOf,
    ) -> None:
        super().__init__(given)
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._rules = rules
        self._terms = terms
        self._in_flight: dict[str, set[asyncio.Task[None]]] = {QUEUE: set(), RETRIES: set()}

    async def sweep(self) -> None:
        """Starts to publish all due items, a few at a time; returns when none is left, or after a few seconds."""
        await asyncio.gather(
            self._drain(QUEUE, self._publish, LEASE), self._drain(RETRIES, self._retry, LEASE_OF_RETRIES)
        )

    async def finish(self, timeout: float | None = None) -> None:
        """Waits at most `timeout` seconds for items in flight, then cancels them: other workers take them over."""
        await finish_or_cancel([task for in_flight in self._in_flight.values() for task in in_flight], timeout)

    async def _drain(self, name: str, work: Work, ttl: float) -> None:
        queue, in_flight, ends = self._once.queue(name), self._in_flight[name], time.monotonic() + _FOR
        while (left := ends - time.monotonic()) > 0:
            if len(in_flight) >= _AT_ONCE:
                await asyncio.wait(in_flight, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            elif not await self._begin(queue.take(ttl=ttl), in_flight, work):
                return

    async def _begin(self, take: Awaitable[AsyncItem | None], in_flight: set[asyncio.Task[None]], work: Work) -> bool:
        """Starts work on the next item; False if there is none."""
        item = await take
        if item is None:
            return False
        task = asyncio.create_task(self._do(item, work))
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)
        return True

    async def _do(self, item: AsyncItem, work: Work) -> None:
        try:
            try:
                await work(item)
            except msgspec.ValidationError as error:
                await self._dead_letters.add_unreadable(item.id, item.payload, error)
                await item.ack()
        except (StoreError, ClientClosed) as error:  # the lease expires, and the item is taken again
            log.warning("alert_sweep_failed", queue=item.queue, id=item.id, error=str(error))
        except Exception:
            log.exception("alert_sweep_error", queue=item.queue, id=item.id)

    # -- the outbox

    async def _publish(self, item: AsyncItem) -> None:
        notification = msgspec.convert(item.payload, Notification)
        alert = notification.alert
        fired = alert.status == FIRING or await self._outbox.has_fired(alert)
        if await self._outbox.was_sent(notification):
            await item.ack()
        elif await self._rules.acknowledged(alert):
            self._history.suppressed(alert, ACKNOWLEDGED)
            await item.ack()
        elif fired:
            await self._reserve(item, notification)
        elif fired is None:  # the firing notification is still queued, and is sent first
            await item.give_back(delay=_SOON)
        else:
            self._history.suppressed(alert, NOT_FIRING)
            await item.ack()

    async def _reserve(self, item: AsyncItem, notification: Notification) -> None:
        alert = notification.alert
        key, terms = key_of(alert), self._terms(notification)
        purpose = purpose_of(alert, notification.trace, notification.id)
        hold = await self._once.reserve(key, **terms._asdict(), purpose=purpose)  # no limit: it was counted before
        if hold:
            await self._deliver(OutboxEntry(key, notification, terms, item, notification.id), hold)
        elif hold.reason == QUIET:  # a worker recorded it, and died before it removed the item
            if alert.status != FIRING:
                await self._outbox.close(alert)
            await item.ack()
        else:
            await item.give_back(delay=max(_SOON, hold.retry_after))

    async def _deliver(self, entry: OutboxEntry, hold: AsyncReservation) -> None:
        started = time.perf_counter()
        self._capacity.take_over()
        try:
            with self._tracing.span("take_over", entry.notification.alert, link=entry.notification.trace):
                await self._outbox.deliver(entry, hold)
        finally:
            self._capacity.leave()
            self._metrics.observe(HOLD_SECONDS, time.perf_counter() - started)

    # -- retries

    async def _retry(self, item: AsyncItem) -> None:
        retry = msgspec.convert(item.payload, Retry)
        failure = await self._dead_letters.publish(retry)
        if failure is not None and not failure.permanent and item.attempts < self._settings.max_attempts:
            await item.give_back(delay=self._outbox.pause(item.attempts + 1, failure.retry_after))
            return
        if failure is not None:
            await self._dead_letters.add(retry, failure, item.attempts)
        await item.ack()
