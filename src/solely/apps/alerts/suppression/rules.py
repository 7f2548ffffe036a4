"""Suppression rules for an alert whose window is free: it may be acknowledged, or flap. If neither, the notification
gets its reminder number, its flapping remark and the members of its group.

Only the worker that has the reservation checks them, so that suppressed repeats cost nothing more.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import msgspec

from .... import AsyncAdmission
from ..model import FIRING, Alert, Notification, own, part_of, subject_of
from ..worker import AlertsPart, Refusal
from .acknowledgements import Acknowledgements
from .groups import AlertGroups
from .open_alerts import OpenAlerts
from .reminders import Reminders

# Reasons beside those of reservations.
ACKNOWLEDGED, FLAPPING, GROUPED, NOT_FIRING = "acknowledged", "flapping", "grouped", "not_firing"


class Flapping(AlertsPart):
    """Counts openings: an alert opens when it fires for the first time, or again after it was notified as resolved.
    Beyond `flap_limit` per `flap_per` openings are suppressed; the last one that is sent says so."""

    @property
    def enabled(self) -> bool:
        """True if the settings have a limit."""
        return self._settings.flap_limit > 0

    async def count(self, alert: Alert) -> AsyncAdmission:
        """Counts one opening; if there were too many it is refused, and not counted."""
        key = own(f"openings/{part_of(subject_of(alert))}")
        return await self._once.limit(key, limit=self._settings.flap_limit, per=self._settings.flap_per)

    def is_last(self, admission: AsyncAdmission) -> bool:
        """True if another opening right now would be suppressed."""
        return admission.hits >= self._settings.flap_limit


class Approved(NamedTuple):
    """The notification as it may be sent, and the opening that was counted for it, if any."""

    notification: Notification
    opening: AsyncAdmission | None = None

    async def settle(self, queued: Notification | None) -> None:
        """Takes the opening back unless this very notification was queued: an older one was counted before."""
        if self.opening is not None and (queued is None or queued.id != self.notification.id):
            await self.opening.undo()


class SuppressionRules:
    """Applies acknowledgements, flapping, groups and reminders to one notification."""

    def __init__(
        self,
        acknowledgements: Acknowledgements,
        open_alerts: OpenAlerts,
        flapping: Flapping,
        groups: AlertGroups,
        reminders: Reminders,
    ) -> None:
        self._acknowledgements = acknowledgements
        self._open_alerts = open_alerts
        self._flapping = flapping
        self.groups = groups
        self.reminders = reminders

    async def prepare(self, notification: Notification) -> Notification:
        """Joins the group and sets the reminder number; called before the reservation is requested."""
        alert = notification.alert
        if alert.status != FIRING:
            return notification
        await self.groups.join(alert)
        reminder = await self.reminders.due(alert)
        return msgspec.structs.replace(notification, reminder=reminder) if reminder else notification

    async def check(self, notification: Notification) -> Approved | Refusal:
        """The notification as it may be sent, or why it is suppressed; called by the holder of the reservation."""
        alert = notification.alert
        if alert.status != FIRING:
            return Approved(notification)
        acknowledged, is_open = await asyncio.gather(self._acknowledgements.covering(alert), self._is_open(alert))
        if acknowledged is not None:
            return _refusal(ACKNOWLEDGED, acknowledged.ends - time.time())
        opening = None if is_open else await self._flapping.count(alert)
        if opening is not None and not opening:
            return _refusal(FLAPPING, opening.retry_after)
        flaps = opening is not None and self._flapping.is_last(opening)
        members = await self.groups.members(alert)
        if flaps or members:
            notification = msgspec.structs.replace(notification, flapping=flaps, members=members)
        return Approved(notification, opening)

    async def leave_group(self, alert: Alert) -> Refusal | None:
        """Removes a resolved alert from its group; why it is suppressed if others of the group fire, else None."""
        left = await self.groups.leave(alert)
        if not await self.groups.firing(alert):
            return None
        if left:
            await self._acknowledgements.remove(alert.fingerprint)
        return Refusal(GROUPED if left else NOT_FIRING, 0.0)

    async def acknowledged(self, alert: Alert) -> bool:
        """True if the alert fires and is acknowledged, so that a queued notification is dropped."""
        return alert.status == FIRING and await self._acknowledgements.covering(alert) is not None

    async def _is_open(self, alert: Alert) -> bool:
        """True if this is not an opening, or openings are not limited."""
        return not self._flapping.enabled or await self._open_alerts.is_open(alert)


def _refusal(reason: str, left: float) -> Refusal:
    return Refusal(reason, time.monotonic() + left)
