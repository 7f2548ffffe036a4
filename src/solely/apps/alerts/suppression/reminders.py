"""Reminders: an alert that stays unresolved is sent again, less often than the first time.

The store counts the notifications per severity, from the first one until the alert resolves.
"""

from __future__ import annotations

import time

from ..model import MAX_OPEN, Alert, part_of, subject_of
from ..records.notes import Notes
from ..settings import reminders
from ..worker import Dependencies

_KIND = "reminded"  # of the notes


class Reminders:
    """Counts the notifications of firing alerts whose severity has a `remind` in the settings."""

    def __init__(self, given: Dependencies) -> None:
        self._notes = Notes(given.once, _KIND, int)
        self._intervals = reminders(given.settings)

    def interval(self, alert: Alert) -> float | None:
        """Seconds between reminders of alerts like this one; None if there are no reminders."""
        return self._intervals.of(alert.severity)

    async def due(self, alert: Alert) -> int:
        """The number of the reminder that the next notification is; 0 if it is the first one, or has no reminders."""
        if self.interval(alert) is None:
            return 0
        return await self._notes.read(_name(alert)) or 0

    async def sent(self, alert: Alert, reminder: int) -> None:
        """Counts a notification that was sent as this reminder."""
        if self.interval(alert) is not None:
            await self._notes.replace(_name(alert), reminder + 1, time.time() + MAX_OPEN)

    async def resolved(self, alert: Alert) -> None:
        """Starts the count again, for every severity."""
        if self._intervals.any:
            await self._notes.remove_all(f"{part_of(subject_of(alert))}/")

    async def sweep(self) -> None:
        """Removes expired counts."""
        await self._notes.sweep()


def _name(alert: Alert) -> str:
    return f"{part_of(subject_of(alert))}/{part_of(alert.severity.casefold())}"
