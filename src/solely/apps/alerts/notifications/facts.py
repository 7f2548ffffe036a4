"""Facts: looks up what the decision on a notification depends on, for an alert that comes in and for one that waits."""

from __future__ import annotations

import time

from ..decision import Facts
from ..model import FIRING, Alert, Notification, reservation_key, subject_of
from ..suppression.acknowledgements import Acknowledgements
from ..suppression.open_alerts import OpenAlerts, OpenRecord
from ..suppression.silences import Silences
from .fanout import Fanout
from .outbox import Outbox


class FactFinder:
    """Reads silences, acknowledgements, open alerts and the outbox, each by name."""

    def __init__(
        self,
        silences: Silences,
        acknowledgements: Acknowledgements,
        open_alerts: OpenAlerts,
        outbox: Outbox,
        fanout: Fanout,
    ) -> None:
        self._silences = silences
        self._acknowledgements = acknowledgements
        self._open = open_alerts
        self._outbox = outbox
        self._fanout = fanout

    async def of_alert(self, alert: Alert, was_firing: bool = True) -> Facts:
        """The facts before a reservation is requested: of a firing alert, what this worker knows without the store; of
        a resolved one, whether a firing notification was sent or is queued, and whether others of its group fire."""
        facts = Facts(alert.status == FIRING, bool(alert.group), was_firing=was_firing)
        if facts.firing:
            silence = self._silences.match(alert)
            left = None if silence is None else silence.ends - time.time()
            return facts._replace(silenced=left, wanted=self._fanout.wanted(alert))
        if alert.group and await self._open.firing(alert, 1):
            return facts._replace(others_fire=True)
        record = await self._open.read(alert)
        if record is None or record.was_sent:
            return facts._replace(opened=record is not None)
        if await self._is_queued(alert, record):
            return facts._replace(opened=False, firing_queued=True)
        # It may have been sent and removed between the two reads.
        return facts._replace(opened=await self._open.is_open(alert))

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

    async def _is_queued(self, alert: Alert, record: OpenRecord) -> bool:
        keys = [reservation_key(subject_of(alert), severity) for severity in record.notified]
        return any([await self._outbox.has_unsent(key) for key in keys])
