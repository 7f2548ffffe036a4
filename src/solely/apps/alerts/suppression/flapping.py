"""Flapping: an alert that opens again and again is told only so often; the last one that is says so."""

from __future__ import annotations

from .... import AsyncAdmission
from ..model import Alert, own, part_of, subject_of
from ..worker.tools import Tools


class Flapping:
    """Counts openings: first times that an alert fires after people were told that it is over, or at all."""

    def __init__(self, tools: Tools) -> None:
        self._once = tools.once
        self._limit = tools.settings.flap_limit
        self._per = tools.settings.flap_per

    @property
    def damps(self) -> bool:
        """True if the settings say how often is too often."""
        return self._limit > 0

    async def opening(self, alert: Alert) -> AsyncAdmission:
        """Counts one opening; refused, and then not counted, if there were too many of which people were told."""
        key = own(f"openings/{part_of(subject_of(alert))}")
        return await self._once.limit(key, limit=self._limit, per=self._per)

    def is_last(self, admission: AsyncAdmission) -> bool:
        """True if the next opening, should it come as soon, is not told."""
        return admission.hits >= self._limit
