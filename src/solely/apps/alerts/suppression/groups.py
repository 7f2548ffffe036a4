"""Groups: alerts of one group and severity share one window, and so one notification.

The store has the firing alerts of each group. An alert joins before it requests the window, and the worker that ends
the window looks for members after that: an alert that comes in between either gets the new window or is found.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from ..model import MAX_GROUP, MAX_OPEN, Alert, Member, part_of, subject_of
from ..records.notes import Notes
from ..worker import Dependencies

LISTED = 50  # members in a notification: more than people read, and few enough for its 256 KiB
_KIND = "grouped"  # of the notes
_PLAIN = " -_.:/@"  # characters of a value that are not encoded in a group's name: none of them separates fields


class AlertGroups:
    """The groups that the settings define, or that senders name."""

    def __init__(self, given: Dependencies) -> None:
        self._notes = Notes(given.once, _KIND, Alert)
        self._fields = given.settings.group_by

    def with_group(self, alert: Alert) -> Alert:
        """The alert with its group: the sender's, else the one of the `group_by` fields, if it has any of these."""
        if alert.group or not self._fields:
            return alert
        return msgspec.structs.replace(alert, group=group_of(alert, self._fields))

    async def join(self, alert: Alert) -> None:
        """Adds a firing alert to its group, which does not resolve before all of its alerts have."""
        if alert.group:
            await self._notes.add(_name(alert), alert, time.time() + MAX_OPEN)

    async def leave(self, alert: Alert) -> bool:
        """Removes a resolved alert; False if it was not in its group."""
        return bool(alert.group) and await self._notes.remove(_name(alert))

    async def firing(self, alert: Alert) -> list[Alert]:
        """The firing alerts of this alert's group as they first came in, at most LISTED; none if it has no group."""
        if not alert.group:
            return []
        found = await self._notes.under(_prefix(subject_of(alert)), LISTED)
        return list(found.values())

    async def members(self, alert: Alert) -> tuple[Member, ...]:
        """The firing alerts of this alert's group, as a notification lists them."""
        return tuple(
            Member(fingerprint=each.fingerprint, name=each.name, severity=each.severity)
            for each in await self.firing(alert)
        )

    async def sweep(self) -> None:
        """Removes alerts that have not fired for too long."""
        await self._notes.sweep()


def group_of(alert: Alert, fields: Sequence[str]) -> str:
    """The name of the group that these fields define; "" if the alert has none of them."""
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
