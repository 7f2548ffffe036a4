"""The sweeper: what waits in the outbox is published, whoever left it there: a process that died, or one whose
receivers were away.

Each worker does it, about once a second. None waits for another: an item is leased, and who may publish it is decided
by its reservation, as when it came in.
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
from ..suppression.rules import ACKNOWLEDGED, NOT_FIRING, Restraints
from ..tracing import purpose_of
from ..worker.recent import QUIET
from ..worker.tools import Tools
from .dead_letters import Parking, Retry
from .outbox import QUEUE, RETRIES, Outbox, Parcel, Terms

log = structlog.get_logger("solely.alerts")

EVERY = 1.0  # seconds: what is due is late by no more than that
LEASE = 10.0  # seconds: the shortest hold that is usual, so that one who takes an item and dies delays it no longer
# Seconds: longer than any publish takes, since of what only one was not told nothing but the lease keeps others away.
LEASE_OF_RETRIES = 90.0
_AT_ONCE = 16  # of each queue, per worker: receivers that come back are not met by all that waited for them
_FOR = 5.0  # seconds that one sweep goes on while there is more
_SOON = 0.5  # seconds, at least, until an item is looked at again that another is publishing now

Work = Callable[[AsyncItem], Awaitable[object]]
TermsOf = Callable[[Notification], Terms]


class Sweeper:
    """Publishes what waits."""

    def __init__(self, tools: Tools, outbox: Outbox, parking: Parking, restraints: Restraints, terms: TermsOf) -> None:
        self._once = tools.once
        self._capacity = tools.capacity
        self._history = tools.history
        self._metrics = tools.metrics
        self._tracing = tools.tracing
        self._max_attempts = tools.settings.max_attempts
        self._outbox = outbox
        self._parking = parking
        self._restraints = restraints
        self._terms = terms
        self._under_way: dict[str, set[asyncio.Task[None]]] = {QUEUE: set(), RETRIES: set()}

    async def sweep(self) -> None:
        """Begins to publish all that is due, a few at a time; returns when there is no more, or after a while."""
        await asyncio.gather(
            self._drain(QUEUE, self._publish, LEASE), self._drain(RETRIES, self._retry, LEASE_OF_RETRIES)
        )

    async def finish(self, timeout: float | None = None) -> None:
        """Waits for what was begun, and no longer than that many seconds: then it is given up, for others to take."""
        tasks = [task for under_way in self._under_way.values() for task in under_way]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _drain(self, name: str, work: Work, ttl: float) -> None:
        queue, under_way, ends = self._once.queue(name), self._under_way[name], time.monotonic() + _FOR
        while (left := ends - time.monotonic()) > 0:
            if len(under_way) >= _AT_ONCE:
                await asyncio.wait(under_way, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            elif not await self._begin(queue.take(ttl=ttl), under_way, work):
                return

    async def _begin(self, take: Awaitable[AsyncItem | None], under_way: set[asyncio.Task[None]], work: Work) -> bool:
        """True if there was an item, on which work has begun."""
        item = await take
        if item is None:
            return False
        task = asyncio.create_task(self._do(item, work))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return True

    async def _do(self, item: AsyncItem, work: Work) -> None:
        try:
            try:
                await work(item)
            except msgspec.ValidationError as error:
                await self._parking.park_unreadable(item.id, item.payload, error)
                await item.ack()
        except (StoreError, ClientClosed) as error:  # its lease runs out, and it is taken again
            log.warning("alert_sweep_failed", queue=item.queue, id=item.id, error=str(error))
        except Exception:
            log.exception("alert_sweep_broken", queue=item.queue, id=item.id)

    # -- what waits to be published

    async def _publish(self, item: AsyncItem) -> None:
        notification = msgspec.convert(item.payload, Notification)
        alert = notification.alert
        fired = alert.status == FIRING or await self._outbox.has_fired(alert)
        if await self._outbox.was_told(notification):
            await item.ack()
        elif await self._restraints.acknowledged(alert):
            self._history.suppressed(alert, ACKNOWLEDGED)
            await item.ack()
        elif fired:
            await self._reserve(item, notification)
        elif fired is None:  # that it is on is still on its way: that it is over is told after that
            await item.give_back(delay=_SOON)
        else:
            self._history.suppressed(alert, NOT_FIRING)
            await item.ack()

    async def _reserve(self, item: AsyncItem, notification: Notification) -> None:
        alert = notification.alert
        key, terms = key_of(alert), self._terms(notification)
        purpose = purpose_of(alert, notification.trace, notification.id)
        hold = await self._once.reserve(key, **terms._asdict(), purpose=purpose)  # its hit was counted when it came in
        if hold:
            await self._deliver(Parcel(key, notification, terms, item, notification.id), hold)
        elif hold.reason == QUIET:  # it was recorded, and who recorded it died before the rest was done
            if alert.status != FIRING:
                await self._outbox.close(alert)
            await item.ack()
        else:
            await item.give_back(delay=max(_SOON, hold.retry_after))

    async def _deliver(self, parcel: Parcel, hold: AsyncReservation) -> None:
        started = time.perf_counter()
        self._capacity.take_over()
        try:
            with self._tracing.span("take_over", parcel.notification.alert, link=parcel.notification.trace):
                await self._outbox.deliver(parcel, hold)
        finally:
            self._capacity.leave()
            self._metrics.observe(HOLD_SECONDS, time.perf_counter() - started)

    # -- what some were told, and one was not

    async def _retry(self, item: AsyncItem) -> None:
        retry = msgspec.convert(item.payload, Retry)
        failure = await self._parking.tell(retry)
        if failure is not None and not failure.permanent and item.attempts < self._max_attempts:
            await item.give_back(delay=self._outbox.pause(item.attempts + 1, failure.retry_after))
            return
        if failure is not None:
            await self._parking.park(retry, failure, item.attempts)
        await item.ack()
