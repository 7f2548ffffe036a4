"""Acknowledgements: somebody is at it, so people are not told again until it is over.

They are notes in the store: every worker sees them at once. Only alerts that would be told are compared with them, at
the cost of one read.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from .... import AsyncClient
from ..model import Alert, part_of, subject_of
from ..records.notes import MOST, Notes

KIND = "acknowledged"  # of the notes


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """From `made` until `ends` (seconds of UTC), or until it is over, alerts of this fingerprint are not told again: of
    this severity, or of all if it is empty."""

    fingerprint: str
    severity: str
    made: float
    ends: float
    made_by: str
    comment: str

    def covers(self, alert: Alert) -> bool:
        """True if an alert of this severity is not told."""
        return not self.severity or self.severity.casefold() == alert.severity.casefold()


class Acknowledgements:
    """Those that hold: one per fingerprint at a time."""

    def __init__(self, once: AsyncClient) -> None:
        self._notes = Notes(once, KIND, Acknowledgement)

    async def add(
        self, fingerprint: str, *, severity: str = "", lasts: float, by: str, comment: str = ""
    ) -> Acknowledgement:
        """A new one, which takes the place of the one before."""
        now = time.time()
        made = Acknowledgement(
            fingerprint=fingerprint, severity=severity, made=now, ends=now + lasts, made_by=by, comment=comment
        )
        await self._notes.replace(part_of(fingerprint), made, made.ends)
        return made

    async def remove(self, fingerprint: str) -> bool:
        """Takes it back; False if there was none."""
        return await self._notes.drop(part_of(fingerprint))

    async def of_fingerprint(self, fingerprint: str) -> Acknowledgement | None:
        """The one of this fingerprint, if it holds."""
        return await self._notes.read(part_of(fingerprint))

    async def holding(self, alert: Alert) -> Acknowledgement | None:
        """The one that keeps this alert back: of the alert, or of its group."""
        names = dict.fromkeys((alert.fingerprint, subject_of(alert)))
        found = await asyncio.gather(*map(self.of_fingerprint, names))
        return next((each for each in found if each is not None and each.covers(alert)), None)

    async def over(self, alert: Alert) -> None:
        """It is resolved: nothing is acknowledged any more, of the alert or of its group."""
        for name in dict.fromkeys((alert.fingerprint, subject_of(alert))):
            await self.remove(name)

    async def list(self, limit: int = MOST) -> list[Acknowledgement]:
        """Those that hold, the newest first."""
        found = await self._notes.under("", limit)
        return sorted(found.values(), key=lambda each: each.made, reverse=True)

    async def sweep(self) -> None:
        """Forgets those whose time is over."""
        await self._notes.sweep()
