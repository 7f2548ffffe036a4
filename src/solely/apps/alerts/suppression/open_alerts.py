"""Open alerts: what fires now, what people were notified of since it began, and what fires in each group.

Each alert has a record in the store from when it is first notified of, suppressed or waits for its receivers, until its
resolved notification is sent; so has each group. What a decision needs is read by name; a listing is for people, and
for the members of a group.

The record counts a notification before its reservation is recorded. It is removed after the resolved notification is
recorded. So a worker that takes over from one that died in between reaches the same state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence

import msgspec

from .... import AsyncClient
from ....kit import NOTES_PAGE, Notes, Turns
from ..model import (
    MAX_OPEN,
    Alert,
    Member,
    Notification,
    fingerprint_prefix,
    own,
    part_of,
    reservation_key,
    resolved_key,
    subject_of,
)
from ..worker import RefusalCache
from .acknowledgements import Acknowledgement, Acknowledgements, names_of
from .matchers import matchers_of, matching
from .silences import Silence, Silences

LISTED = 50  # members in a notification: more than people read, and few enough for its 256 KiB
_RANK = {severity: rank for rank, severity in enumerate(("critical", "error", "warning", "info"))}  # the worst first


class Notified(msgspec.Struct, frozen=True):
    """How many notifications of one severity were sent, and when the last one was."""

    times: int
    last: float


class OpenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires since then, or a group; and what was sent of it, by severity."""

    alert: Alert
    since: float
    notified: dict[str, Notified] = {}

    @property
    def was_sent(self) -> bool:
        """True if a notification was sent, whatever its severity."""
        return bool(self.notified)


class OpenAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires now. `last_notified` is null if nobody was notified: it is suppressed, or still queued."""

    alert: Alert
    since: float
    last_notified: float | None
    acknowledged: Acknowledgement | None
    silenced: Silence | None

    @property
    def matchers(self) -> str:
        """Matchers that select it, one per line: with them, the form of a silence starts."""
        return "\n".join(matchers_of(self.alert))


class OpenAlerts:
    """The records of all alerts that fire."""

    def __init__(
        self, once: AsyncClient, refusals: RefusalCache, acknowledgements: Acknowledgements, silences: Silences
    ) -> None:
        self._once, self._refusals = once, refusals
        self.acknowledgements, self.silences = acknowledgements, silences
        self._notes = Notes(once, own("open"), OpenRecord)
        self.sweep = self._notes.sweep

    # -- of one alert

    async def read(self, alert: Alert) -> OpenRecord | None:
        """The record of this alert, or of its group if it has one."""
        return await self._notes.read(part_of(subject_of(alert)))

    async def is_open(self, alert: Alert) -> bool:
        """True if a firing notification was sent since it was last resolved, whatever its severity."""
        record = await self.read(alert)
        return record is not None and record.was_sent

    async def enter(self, alert: Alert) -> None:
        """Lists an alert of which nobody is notified as firing, from now on unless it was listed before."""
        await self._enter(part_of(alert.fingerprint), alert)

    async def _enter(self, name: str, alert: Alert) -> None:
        await self._notes.add(name, OpenRecord(alert=alert, since=time.time()), time.time() + MAX_OPEN)

    async def sent(self, notification: Notification) -> None:
        """A firing notification was sent: from now on a resolved one and reminders can be sent."""
        resolved = resolved_key(subject_of(notification.alert))
        await asyncio.gather(
            self._count(notification), self._once.expire_reservation(resolved, reason="it fired again")
        )
        self._refusals.forget(resolved)

    async def _count(self, notification: Notification) -> None:
        alert, name, now = notification.alert, part_of(subject_of(notification.alert)), time.time()
        new = OpenRecord(
            alert=alert, since=notification.at, notified={alert.severity: Notified(notification.reminder + 1, now)}
        )

        def counted(known: OpenRecord | None) -> OpenRecord:
            known = known or new
            return msgspec.structs.replace(known, alert=alert, notified=known.notified | new.notified)

        if not await self._notes.add(name, new, now + MAX_OPEN):  # most often, it is the first notification
            await self._notes.change(name, counted, now + MAX_OPEN)

    async def close(self, alert: Alert) -> None:
        """A resolved notification was sent, or none is due: the next firing alert of any severity is sent at once."""
        subject = subject_of(alert)
        ending: list[Awaitable[object]] = [self.acknowledgements.resolved(alert)]
        while (found := await self._notes.find(part_of(subject))) is not None:
            keys = [reservation_key(subject, severity) for severity in found.fact.notified]
            ending += [self._once.expire_reservation(key, reason="it was resolved") for key in keys]
            await asyncio.gather(*ending)
            if await self._notes.remove_found(found):
                break
            ending = []
        self._refusals.forget_all(fingerprint_prefix(subject))

    async def forget(self, alert: Alert) -> bool:
        """False if nobody was notified of an alert that resolved, which is then no longer listed."""
        before = await self._notes.change(
            part_of(subject_of(alert)), lambda record: record if record is not None and record.was_sent else None
        )
        return before is not None and before.was_sent

    # -- of a group

    async def join(self, alert: Alert) -> None:
        """Adds a firing alert to its group, which does not resolve before all of its alerts have."""
        if alert.group:
            await self._enter(_member(alert), alert)

    async def leave(self, alert: Alert) -> bool:
        """Removes a resolved alert from its group, and its acknowledgement; False if it was not in it."""
        if not alert.group:
            return False
        left, _ = await asyncio.gather(
            self._notes.remove(_member(alert)), self._notes.remove(part_of(alert.fingerprint))
        )
        if left:
            await self.acknowledgements.remove(alert.fingerprint)
        return left

    async def firing(self, alert: Alert, limit: int = LISTED) -> list[Alert]:
        """The alerts that fire in this alert's group, as they first came in; none if it has no group."""
        if not alert.group:
            return []
        found = await self._notes.under(f"{part_of(subject_of(alert))}/", limit)
        return [record.alert for record in found.values()]

    async def members(self, alert: Alert) -> tuple[Member, ...]:
        """The alerts that fire in this alert's group, as a notification lists them."""
        return tuple(
            Member(fingerprint=each.fingerprint, name=each.name, severity=each.severity)
            for each in await self.firing(alert)
        )

    # -- for people

    async def list(
        self, *, matchers: Sequence[str] = (), severity: str = "", limit: int = NOTES_PAGE
    ) -> list[OpenAlert]:
        """What fires now, the worst and newest first: alerts of this severity that match all matchers, at most `limit`.
        Raises InvalidInput if a matcher is invalid."""
        wanted = matching(matchers)
        records, acknowledged = await asyncio.gather(self._notes.all(), self.acknowledgements.list())
        made = {each.fingerprint: each for each in acknowledged}
        firing, turns = dict[str, OpenRecord](), Turns()
        for name, each in sorted(records.items(), key=lambda item: "/" in item[0]):
            if (
                not (each.alert.group and name == part_of(subject_of(each.alert)))
                and severity.casefold() in ("", each.alert.severity.casefold())
                and wanted(each.alert)
            ):  # a member of a group follows, and replaces, what was listed while it was suppressed
                firing[each.alert.fingerprint] = each
            await turns()  # patterns of matchers may take milliseconds for each alert
        rows = list[OpenAlert]()
        for each in firing.values():
            rows.append(self._row(each, records.get(part_of(subject_of(each.alert))), made))
            await turns()  # and so may those of silences
        return sorted(rows, key=_place)[:limit]

    def _row(self, record: OpenRecord, subject: OpenRecord | None, made: dict[str, Acknowledgement]) -> OpenAlert:
        alert, notified = record.alert, subject.notified.values() if subject is not None else ()
        covering = [each for name in names_of(alert) if (each := made.get(name)) is not None and each.covers(alert)]
        return OpenAlert(
            alert=alert,
            since=record.since,
            last_notified=max((each.last for each in notified), default=0.0) or None,
            acknowledged=covering[0] if covering else None,
            silenced=self.silences.match(alert),
        )


def _member(alert: Alert) -> str:
    """The name of an alert's record in its group: below that of the group."""
    return f"{part_of(subject_of(alert))}/{part_of(alert.fingerprint)}"


def _place(row: OpenAlert) -> tuple[int, float]:
    return _RANK.get(row.alert.severity.casefold(), len(_RANK)), -row.since
