"""Resolving: that it is over is told once, and only if people were told before that it is on.

A mark says that they were told. It is set before the firing one is recorded, and removed after the resolved one is: so
that whoever takes over from a process that died in between comes to the same end.
"""

from __future__ import annotations

import asyncio

from .model import Alert, fingerprint_prefix, open_mark, resolved_key
from .tools import Tools

KEPT = 30 * 86_400.0  # seconds: what fired a month ago and never since is not waited for any more


class Openings:
    """What people were told of, and not yet that it is over."""

    def __init__(self, tools: Tools) -> None:
        self._once = tools.once
        self._recent = tools.recent

    async def is_open(self, alert: Alert) -> bool:
        """True if people were told of it, whatever its severity then."""
        return await self._once.seen(open_mark(alert.fingerprint))

    async def opened(self, alert: Alert) -> None:
        """People were told of it: from now on they can be told that it is over."""
        key = resolved_key(alert.fingerprint)
        await asyncio.gather(
            self._once.mark(open_mark(alert.fingerprint), ttl=KEPT),
            self._once.expire_reservation(key, reason="it fired again"),
        )
        self._recent.forget(key)

    async def closed(self, alert: Alert) -> None:
        """People were told that it is over: if it fires again they are told at once, whatever its severity."""
        prefix = fingerprint_prefix(alert.fingerprint)
        await self._once.forget(open_mark(alert.fingerprint))
        await self._once.clear_reservations(prefix, reason="it was resolved")
        self._recent.forget_all(prefix)
