"""Openings: that it is over is told once, and only if people were told before that it is on.

A mark says that they were told. It is set before the firing one is recorded, and removed after the resolved one is: so
that whoever takes over from a process that died in between comes to the same end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..model import Alert, fingerprint_prefix, open_mark, resolved_key, subject_of
from ..worker.tools import Tools

if TYPE_CHECKING:
    from .acknowledgements import Acknowledgements
    from .reminders import Reminders

KEPT = 30 * 86_400.0  # seconds: what fired a month ago and never since is not waited for any more


class Openings:
    """What people were told of, and not yet that it is over: alerts, or groups of them."""

    def __init__(self, tools: Tools, acknowledgements: Acknowledgements, reminders: Reminders) -> None:
        self._once = tools.once
        self._recent = tools.recent
        self._acknowledgements = acknowledgements
        self._reminders = reminders

    async def is_open(self, alert: Alert) -> bool:
        """True if people were told of it, whatever its severity then."""
        return await self._once.seen(open_mark(subject_of(alert)))

    async def opened(self, alert: Alert, reminder: int = 0) -> None:
        """People were told of it: from now on they can be told that it is over, and reminded until it is."""
        key = resolved_key(subject_of(alert))
        await asyncio.gather(
            self._once.mark(open_mark(subject_of(alert)), ttl=KEPT),
            self._once.expire_reservation(key, reason="it fired again"),
            self._reminders.told(alert, reminder),
        )
        self._recent.forget(key)

    async def closed(self, alert: Alert) -> None:
        """People were told that it is over: if it fires again they are told at once, whatever its severity."""
        prefix = fingerprint_prefix(subject_of(alert))
        await self._acknowledgements.over(alert)
        await self._reminders.over(alert)
        await self._once.forget(open_mark(subject_of(alert)))
        await self._once.clear_reservations(prefix, reason="it was resolved")
        self._recent.forget_all(prefix)
