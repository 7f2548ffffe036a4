"""Restraints: what keeps an alert from people although its window is free: it is acknowledged, or it flaps. And what
the notification says if nothing does: which reminder it is, that it flaps, and who is in its group.

Only who has the reservation asks, so that all others cost nothing more.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import msgspec

from .... import AsyncAdmission
from ..model import FIRING, Alert, Notification
from ..worker.recent import Refusal
from .acknowledgements import Acknowledgements
from .flapping import Flapping
from .groups import Groups
from .open_alerts import Openings
from .reminders import Reminders

# Reasons beside those of reservations.
ACKNOWLEDGED, FLAPPING, GROUPED, NOT_FIRING = "acknowledged", "flapping", "grouped", "not_firing"


class Cleared(NamedTuple):
    """The notification as it may be told; and the opening that was counted for it, if any."""

    notification: Notification
    opening: AsyncAdmission | None = None

    async def settle(self, told: Notification | None) -> None:
        """What is told is this one, or an older one whose opening was counted before: then this was none."""
        if self.opening is not None and (told is None or told.id != self.notification.id):
            await self.opening.undo()


class Restraints:
    """Asks all of them."""

    def __init__(
        self,
        acknowledgements: Acknowledgements,
        openings: Openings,
        flapping: Flapping,
        groups: Groups,
        reminders: Reminders,
    ) -> None:
        self._acknowledgements = acknowledgements
        self._openings = openings
        self._flapping = flapping
        self.groups = groups
        self.reminders = reminders

    async def before(self, notification: Notification) -> Notification:
        """To be called before the reservation is asked for: joins the group, and counts reminders."""
        alert = notification.alert
        if alert.status != FIRING:
            return notification
        await self.groups.join(alert)
        reminder = await self.reminders.due(alert)
        return msgspec.structs.replace(notification, reminder=reminder) if reminder else notification

    async def judge(self, notification: Notification) -> Cleared | Refusal:
        """To be called by who has the reservation: what may be told, or why nothing is."""
        alert = notification.alert
        if alert.status != FIRING:
            return Cleared(notification)
        acknowledged, is_open = await asyncio.gather(self._acknowledgements.holding(alert), self._is_open(alert))
        if acknowledged is not None:
            return _until(ACKNOWLEDGED, acknowledged.ends - time.time())
        opening = None if is_open else await self._flapping.opening(alert)
        if opening is not None and not opening:
            return _until(FLAPPING, opening.retry_after)
        flaps = opening is not None and self._flapping.is_last(opening)
        members = await self.groups.members(alert)
        if flaps or members:
            notification = msgspec.structs.replace(notification, flapping=flaps, members=members)
        return Cleared(notification, opening)

    async def others_fire(self, alert: Alert) -> Refusal | None:
        """Takes what is over out of its group. If others of the group fire, why it is not told; else None."""
        left = await self.groups.leave(alert)
        if not await self.groups.firing(alert):
            return None
        if left:
            await self._acknowledgements.remove(alert.fingerprint)
        return Refusal(GROUPED if left else NOT_FIRING, 0.0)

    async def acknowledged(self, alert: Alert) -> bool:
        """True if somebody is at it, so that what still waits need not be told."""
        return alert.status == FIRING and await self._acknowledgements.holding(alert) is not None

    async def _is_open(self, alert: Alert) -> bool:
        """True if it is no opening, or nobody counts these."""
        return not self._flapping.damps or await self._openings.is_open(alert)


def _until(reason: str, left: float) -> Refusal:
    return Refusal(reason, time.monotonic() + left)
