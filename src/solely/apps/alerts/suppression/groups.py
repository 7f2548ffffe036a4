"""Groups: alerts of one group and severity share one window, so that people are told once of all of them.

Which alerts of a group fire is noted in the store. An alert joins before it asks for the window, and whoever ends the
window looks for members after that: so one that comes just then is either granted the new window, or found.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from ..model import MAX_GROUP, Alert, Member, part_of, subject_of
from ..records.notes import Notes
from ..worker.tools import Tools
from .open_alerts import KEPT

LISTED = 50  # members that a notification names: more than people read, and few enough for its 256 KiB
_KIND = "grouped"  # of the notes
_PLAIN = " -_.:/@"  # characters of a value that stay as they are in the name of a group: none that separates fields


class Groups:
    """The groups of the settings, or of senders that name one."""

    def __init__(self, tools: Tools) -> None:
        self._notes = Notes(tools.once, _KIND, Alert)
        self._fields = tools.settings.group_by

    def placed(self, alert: Alert) -> Alert:
        """The alert in its group: the one that its sender named, else the one of its fields, if it has any of them."""
        if alert.group or not self._fields:
            return alert
        return msgspec.structs.replace(alert, group=group_of(alert, self._fields))

    async def join(self, alert: Alert) -> None:
        """It fires: the group is not over before this one is."""
        if alert.group:
            await self._notes.add(_name(alert), alert, time.time() + KEPT)

    async def leave(self, alert: Alert) -> bool:
        """It is over; False if it was not known to fire."""
        return bool(alert.group) and await self._notes.drop(_name(alert))

    async def firing(self, alert: Alert) -> list[Alert]:
        """The alerts of its group that fire, as they first came, as many as are listed; none if it has no group."""
        if not alert.group:
            return []
        found = await self._notes.under(_prefix(subject_of(alert)), LISTED)
        return list(found.values())

    async def members(self, alert: Alert) -> tuple[Member, ...]:
        """As a notification lists them."""
        return tuple(
            Member(fingerprint=each.fingerprint, name=each.name, severity=each.severity)
            for each in await self.firing(alert)
        )

    async def sweep(self) -> None:
        """Forgets what is too old to be waited for."""
        await self._notes.sweep()


def group_of(alert: Alert, fields: Sequence[str]) -> str:
    """The name of the group by these fields; "" if the alert has none of them."""
    values = {field: _value(alert, field) for field in fields}
    if not any(values.values()):
        return ""
    name = ",".join(f"{field}={quote(value, safe=_PLAIN)}" for field, value in values.items())
    return name if len(name) <= MAX_GROUP else hashlib.sha256(name.encode()).hexdigest()


def _value(alert: Alert, field: str) -> str:
    kind, _, name = field.partition(".")
    if name:
        return (alert.labels if kind == "labels" else alert.annotations).get(name, "")
    return str(getattr(alert, field))


def _prefix(subject: str) -> str:
    return f"{part_of(subject)}/"


def _name(alert: Alert) -> str:
    return f"{_prefix(subject_of(alert))}{part_of(alert.fingerprint)}"
