"""Open alerts: a resolved notification is sent once, and only if a firing one was sent before.

A mark in the store says that an alert is open. It is set before the firing notification is recorded, and removed after
the resolved one is recorded, so that a worker that takes over from one that died in between reaches the same state.
"""

from __future__ import annotations

import asyncio

from ..model import MAX_OPEN, Alert, fingerprint_prefix, open_mark, resolved_key, subject_of
from ..worker import AlertsPart, Dependencies
from .acknowledgements import Acknowledgements
from .reminders import Reminders


class OpenAlerts(AlertsPart):
    """Alerts, or groups of them, for which a firing notification was sent and no resolved one yet."""

    def __init__(self, given: Dependencies, acknowledgements: Acknowledgements, reminders: Reminders) -> None:
        super().__init__(given)
        self._acknowledgements = acknowledgements
        self._reminders = reminders

    async def is_open(self, alert: Alert) -> bool:
        """True if a firing notification was sent, whatever its severity was."""
        return await self._once.seen(open_mark(subject_of(alert)))

    async def opened(self, alert: Alert, reminder: int = 0) -> None:
        """A firing notification was sent: from now on a resolved one and reminders can be sent."""
        key = resolved_key(subject_of(alert))
        await asyncio.gather(
            self._once.mark(open_mark(subject_of(alert)), ttl=MAX_OPEN),
            self._once.expire_reservation(key, reason="it fired again"),
            self._reminders.sent(alert, reminder),
        )
        self._refusals.forget(key)

    async def closed(self, alert: Alert) -> None:
        """A resolved notification was sent: the next firing alert of any severity is sent at once."""
        prefix = fingerprint_prefix(subject_of(alert))
        await self._acknowledgements.resolved(alert)
        await self._reminders.resolved(alert)
        await self._once.forget(open_mark(subject_of(alert)))
        await self._once.clear_reservations(prefix, reason="it was resolved")
        self._refusals.forget_all(prefix)
