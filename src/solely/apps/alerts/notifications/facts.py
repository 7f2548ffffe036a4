"""Facts: looks up what the decision on a notification depends on, for an alert that comes in and for one that waits."""

from __future__ import annotations

import time

from ..decision import Facts
from ..model import FIRING, Alert, Notification, fingerprint_prefix, subject_of
from ..suppression.acknowledgements import Acknowledgements
from ..suppression.open_alerts import OpenAlerts
from ..suppression.silences import Silences
from .outbox import Outbox
from .publishing import Publishing


class FactFinder:
    """Reads silences, acknowledgements, open alerts and the outbox, each by name."""

    def __init__(
        self,
        silences: Silences,
        acknowledgements: Acknowledgements,
        open_alerts: OpenAlerts,
        outbox: Outbox,
        publishing: Publishing,
    ) -> None:
        self._silences = silences
        self._acknowledgements = acknowledgements
        self._open = open_alerts
        self._outbox = outbox
        self._publishing = publishing

    async def of_alert(self, alert: Alert, was_firing: bool = True) -> Facts:
        """The facts before a reservation is requested: of a firing alert, what this worker knows without the store; of
        a resolved one, whether a firing notification was sent or is queued, and whether others of its group fire. One
        that is neither sent nor queued is no longer listed."""
        facts = Facts(alert.status == FIRING, bool(alert.group), was_firing=was_firing)
        if facts.firing:
            silence = self._silences.match(alert)
            left = None if silence is None else silence.ends - time.time()
            return facts._replace(silenced=left, wanted=self._publishing.wanted(alert))
        if alert.group and await self._open.firing(alert, 1):
            return facts._replace(others_fire=True)
        if await self._open.is_open(alert):
            return facts
        if await self._outbox.has_unsent(fingerprint_prefix(subject_of(alert))):
            return facts._replace(opened=False, firing_queued=True)
        return facts._replace(opened=await self._open.forget(alert))  # it may have been sent between the two reads

    async def of_queued(self, notification: Notification) -> Facts:
        """All facts about a notification in the outbox, but for its reservation."""
        alert = notification.alert
        if await self._outbox.was_sent(notification):
            return Facts(alert.status == FIRING, sent=True)
        facts = await self.of_alert(alert)
        return facts._replace(acknowledged=await self.acknowledged(alert)) if facts.firing else facts

    async def acknowledged(self, alert: Alert) -> float | None:
        """Seconds for which the alert is acknowledged; None if it is not."""
        made = await self._acknowledgements.covering(alert)
        return None if made is None else made.ends - time.time()
