"""Acknowledgements: an acknowledged alert sends no further notifications until it resolves or the acknowledgement
expires.

They are notes in the store, so that every worker sees them at once. Only an alert that would be sent costs a read.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from .... import AsyncClient
from ....kit import NOTES_PAGE, Notes
from ..model import Alert, own, part_of, subject_of


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """From `made` until `ends` (seconds of UTC), or until the alert resolves, alerts of this fingerprint are
    suppressed: those of this severity, or all if it is empty."""

    fingerprint: str
    severity: str
    made: float
    ends: float
    made_by: str
    comment: str

    def covers(self, alert: Alert) -> bool:
        """True if it suppresses alerts of this alert's severity."""
        return not self.severity or self.severity.casefold() == alert.severity.casefold()


class Acknowledgements:
    """The acknowledgements in effect: at most one per fingerprint."""

    def __init__(self, once: AsyncClient) -> None:
        self._notes = Notes(once, own("acknowledged"), Acknowledgement)
        self.sweep = self._notes.sweep

    async def add(
        self, fingerprint: str, *, severity: str = "", lasts: float, by: str, comment: str = ""
    ) -> Acknowledgement:
        """Adds an acknowledgement, which replaces the previous one of this fingerprint in one step."""
        now = time.time()
        made = Acknowledgement(
            fingerprint=fingerprint, severity=severity, made=now, ends=now + lasts, made_by=by, comment=comment
        )
        await self._notes.change(part_of(fingerprint), lambda _: made, made.ends)
        return made

    async def remove(self, fingerprint: str) -> bool:
        """Removes it; False if there was none."""
        return await self._notes.remove(part_of(fingerprint))

    async def of_fingerprint(self, fingerprint: str) -> Acknowledgement | None:
        """The acknowledgement of this fingerprint, if one is in effect."""
        return await self._notes.read(part_of(fingerprint))

    async def covering(self, alert: Alert) -> Acknowledgement | None:
        """The acknowledgement that suppresses this alert: its own, or that of its group."""
        for name in names_of(alert):
            made = await self.of_fingerprint(name)
            if made is not None and made.covers(alert):
                return made
        return None

    async def resolved(self, alert: Alert) -> None:
        """Removes the acknowledgements of a resolved alert and of its group."""
        await asyncio.gather(*map(self.remove, names_of(alert)))

    async def list(self, limit: int = NOTES_PAGE) -> list[Acknowledgement]:
        """Those in effect, the newest first."""
        found = await self._notes.under(limit=limit)
        return sorted(found.values(), key=lambda each: each.made, reverse=True)


def names_of(alert: Alert) -> tuple[str, ...]:
    """What an acknowledgement of this alert may name: its fingerprint, and its group if it has one."""
    return tuple(dict.fromkeys((alert.fingerprint, subject_of(alert))))
