"""The outbox: a notification is in the store from before it is published until after that is recorded, so that another
worker takes over from one that dies in between and sends the same notification under the same id.

The reservation alone decides which worker may publish. The queue only keeps what is in flight.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import msgspec

from .... import AsyncClient, AsyncItem, ItemInfo, State
from ..decision import QUIET, Facts
from ..model import (
    FIRING,
    Alert,
    Notification,
    fingerprint_prefix,
    key_of,
    new_notification,
    own,
    resolved_key,
    subject_of,
)
from ..suppression.open_alerts import OpenAlerts
from .publishing import QUEUE, Publishing

_LOOKS = 4  # at an item that another worker holds: one that has just recorded it removes it within a round trip
_PAUSE = 0.05  # seconds between them
_LATE = 600.0  # seconds until a notification that refused callers still queue has been dropped by a sweeper
_SENT = 86_400.0  # seconds: longer than anything waits in the outbox
_SEVERITIES = 10  # of one alert that are looked at: more than are queued for it at one time


class Outbox:
    """Queues notifications, and looks up the facts on which the decision about one depends, each by name."""

    def __init__(self, once: AsyncClient, open_alerts: OpenAlerts, publishing: Publishing) -> None:
        self._once, self._queue = once, once.queue(QUEUE)
        self._open, self._publishing = open_alerts, publishing

    async def add(
        self, key: str, notification: Notification, ttl: float
    ) -> tuple[Notification, AsyncItem | None] | None:
        """The notification to publish under this key, and its item: the given one, or an older one that was not
        finished. None if another worker holds that item: then it is durable, and not ours to publish.

        An item that cannot be read, or a copy of what was sent that another worker is about to remove, stays there: the
        given notification then gets a key of its own."""
        payload, apart = msgspec.to_builtins(notification), _apart(key, notification)
        for look in range(_LOOKS):
            item = await self._queue.push_held(key, payload, ttl=ttl)
            if item is not None and item.fresh:
                return notification, item
            there = item or await self._queue.read(key)
            if isinstance(there, ItemInfo) and there.unreadable:
                return notification, await self._queue.push_held(apart, payload, ttl=ttl)
            if there is None or (isinstance(there, ItemInfo) and there.state is State.HELD):
                await asyncio.sleep(_PAUSE * (look + 1))
            elif (older := await self._unfinished(key, there.payload)) is not None:
                return older, item
            elif isinstance(there, ItemInfo):
                await self._queue.remove(key, expected=there)
            else:
                await there.ack()
        if await self._is_of_no_use(key):
            return notification, await self._queue.push_held(apart, payload, ttl=ttl)
        return None

    async def ensure_queued(self, key: str, notification: Notification) -> None:
        """Queues the notification, for the sweeper to publish, unless one that was not sent is queued under this
        key."""
        payload = msgspec.to_builtins(notification)
        if not await self._queue.push(key, payload) and await self._is_of_no_use(key):
            await self._queue.push(_apart(key, notification), payload)

    async def leave_copy(self, key: str, notification: Notification) -> None:
        """Queues a copy of what another worker publishes, unless something is queued under this key. It is used if that
        worker dies before it queued anything; then its sender repeats the alert, too."""
        await self._queue.push(key, msgspec.to_builtins(notification))

    async def mark_sent(self, id: str, ttl: float = _SENT) -> None:
        """Marks a notification as sent and recorded: whoever takes it out of the outbox finds the mark."""
        await self._once.mark(own(f"sent/{id}"), ttl=ttl)

    async def discard(self, notification: Notification) -> None:
        """Marks a suppressed firing notification as sent, so that copies which refused callers queue are dropped; its
        alert is listed."""
        await asyncio.gather(self.mark_sent(notification.id, _LATE), self._open.enter(notification.alert))

    async def close(self, alert: Alert) -> None:
        """Closes an alert whose resolved notification was sent. Firing alerts of its group that came in meanwhile, and
        were suppressed by the window that ends now, are queued."""
        await self._open.close(alert)
        for missed in await self._open.firing(alert):
            await self.ensure_queued(key_of(missed), new_notification(missed))

    async def _was_sent(self, notification: Notification) -> bool:
        """True if it was sent and recorded: it is in the outbox only because removing it failed, or because a caller
        that was refused meanwhile queued it again."""
        return await self._once.seen(own(f"sent/{notification.id}"))

    async def _is_of_no_use(self, key: str) -> bool:
        """True if the item under this key will not be published: it is gone, unreadable, or a copy of what was sent."""
        there = await self._queue.read(key)
        if there is None or there.unreadable:
            return True
        try:
            return await self._was_sent(msgspec.convert(there.payload, Notification))
        except msgspec.ValidationError:
            return False

    async def withdraw_resolved(self, alert: Alert) -> bool | None:
        """A firing alert withdraws the queued resolved notification of it, which people never got; False if that is
        being published right now, None if it was published, and its worker may not have ended the window yet."""
        return await self._withdraw_resolved(await self._queue.read(resolved_key(subject_of(alert))))

    async def _withdraw_resolved(self, item: ItemInfo | None) -> bool | None:
        if item is not None and item.state is not State.HELD and await self._is_recorded(item.id):
            return None
        return await self._withdraw(item)

    async def _is_recorded(self, key: str) -> bool:
        """True if the notification with this key was sent by a worker that may have died before it ended the window."""
        found = await self._once.reservations(key, limit=1)
        return any(each.key == key and each.reason == QUIET for each in found)

    async def _withdraw(self, item: ItemInfo | None) -> bool | None:
        """Removes an item that says the contrary of what is true now; False if it is being published, None if it was
        published and is about to be removed."""
        if item is None or item.unreadable:
            return True
        if item.state is State.HELD:
            return None if await self._unfinished(item.id, item.payload) is None else False
        return await self._queue.remove(item.id, expected=item)

    async def _unsent(self, prefix: str) -> list[tuple[ItemInfo, Notification]]:
        """The notifications that were not sent and are queued under keys with this prefix."""
        found = await self._queue.list(after=prefix, limit=_SEVERITIES)
        readable = [each for each in found if each.id.startswith(prefix) and not each.unreadable]
        notifications = [await self._unfinished(each.id, each.payload) for each in readable]
        return [(each, known) for each, known in zip(readable, notifications, strict=True) if known is not None]

    async def _unfinished(self, key: str, payload: Any) -> Notification | None:
        """The notification in this payload, if it was not sent yet; one that is invalid becomes a dead letter."""
        try:
            older = msgspec.convert(payload, Notification)
        except msgspec.ValidationError as error:
            await self._publishing.park_unreadable(key, payload, error)
            return None
        return None if await self._was_sent(older) else older

    # -- facts

    async def facts_of(self, alert: Alert, was_firing: bool = True, at: float = math.inf) -> Facts:
        """The facts before a reservation is requested: of a firing alert, what this worker knows without the store; of
        a resolved one, what the store has. An alert that is neither sent nor queued is no longer listed. A resolved
        notification of this moment `at` replaces queued firing ones that are older, if people know that it fires."""
        facts = Facts(alert.status == FIRING, bool(alert.group), was_firing=was_firing)
        if facts.firing:
            silence = self._open.silences.match(alert)
            left = None if silence is None else silence.ends - time.time()
            return facts._replace(silenced=left, wanted=self._publishing.wanted(alert))
        if alert.group and await self._open.firing(alert, 1):
            return facts._replace(others_fire=True)
        unsent = await self._unsent(fingerprint_prefix(subject_of(alert)))
        older = [item for item, each in unsent if each.at <= at]
        if len(older) < len(unsent) and not await self._is_recorded(resolved_key(subject_of(alert))):
            return facts._replace(superseded=True)
        if await self._open.is_open(alert):
            withdrawn = [await self._withdraw(item) for item in older]
            return facts if all(withdrawn) else facts._replace(opened=False, firing_queued=True)
        if older:
            return facts._replace(opened=False, firing_queued=True)
        return facts._replace(opened=await self._open.forget(alert))  # it may have been sent between the two reads

    async def facts_of_queued(self, notification: Notification) -> Facts:
        """All facts about a notification in the outbox, but for its reservation."""
        alert = notification.alert
        if await self._was_sent(notification):
            return Facts(alert.status == FIRING, sent=True)
        facts = await self.facts_of(alert, at=notification.at)
        if not facts.firing:
            return facts
        resolved = await self._queue.read(resolved_key(subject_of(alert)))
        if resolved is not None and not resolved.unreadable:
            known = await self._unfinished(resolved.id, resolved.payload)
            newer = known is not None and known.at > notification.at
            if newer and await self._open.is_open(alert):
                return facts._replace(superseded=True)
            if not newer and not await self._withdraw_resolved(resolved):
                return facts._replace(resolved_queued=True)
        return facts._replace(acknowledged=await self.acknowledged(alert))

    async def acknowledged(self, alert: Alert) -> float | None:
        """Seconds for which the alert is acknowledged; None if it is not."""
        made = await self._open.acknowledgements.covering(alert)
        return None if made is None else made.ends - time.time()


def _apart(key: str, notification: Notification) -> str:
    """The key of a notification whose usual key is taken by something else."""
    return f"{key}/{notification.id}"
