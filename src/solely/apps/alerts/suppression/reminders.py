"""Reminders: of an alert that stays unresolved people are told again, after the first time less often.

How often they were told is noted in the store, per severity, from the first time until it is over.
"""

from __future__ import annotations

import time

from ..model import Alert, part_of, subject_of
from ..records.notes import Notes
from ..settings import reminders
from ..worker.tools import Tools
from .open_alerts import KEPT

_KIND = "reminded"  # of the notes


class Reminders:
    """How often people were told that an alert fires, where the settings have a `remind` for its severity."""

    def __init__(self, tools: Tools) -> None:
        self._notes = Notes(tools.once, _KIND, int)
        self._policies = reminders(tools.settings)

    def interval(self, alert: Alert) -> float | None:
        """Seconds between reminders of alerts like this one; None if they are told again as the first time."""
        return self._policies.of(alert.severity)

    async def due(self, alert: Alert) -> int:
        """Which reminder it would be to tell of it now; 0 if it would be the first time, or nobody wants to know."""
        if self.interval(alert) is None:
            return 0
        return await self._notes.read(_name(alert)) or 0

    async def told(self, alert: Alert, reminder: int) -> None:
        """People were told of it: the next time is one reminder more."""
        if self.interval(alert) is not None:
            await self._notes.replace(_name(alert), reminder + 1, time.time() + KEPT)

    async def over(self, alert: Alert) -> None:
        """It is resolved: the next time is the first again, whatever the severity."""
        if self._policies.any:
            await self._notes.drop_all(f"{part_of(subject_of(alert))}/")

    async def sweep(self) -> None:
        """Forgets what is too old to be waited for."""
        await self._notes.sweep()


def _name(alert: Alert) -> str:
    return f"{part_of(subject_of(alert))}/{part_of(alert.severity.casefold())}"
