"""History: which notifications were sent, to which publishers and when, and how many alerts were suppressed and why.

It is written behind: an alert never waits for it and never fails because of it. A killed process loses at most the last
half second of history, and no notification.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import structlog

from ... import DataError
from ...kit import (
    HOUR,
    Application,
    Position,
    Row,
    begin_of,
    from_row,
    json_texts,
    position_after,
    without_nul,
)
from .model import MAX_FINGERPRINT, Alert, Labels, Notification
from .settings import AlertsSettings

log = structlog.get_logger("solely.alerts")

OK = "ok"  # the result of a publisher that has the notification
PUBLISHED, QUEUED, DEAD = "published", "queued", "dead"
MOST_NOTIFICATIONS = 2_000  # buffered while the database is unreachable: bounded, as each may have some KiB
MOST_SUPPRESSED = 20_000  # buffered sums, which are small
UNIQUE_SUM = ("fingerprint", "severity", "reason", "hour")
MAX_ERROR = 500  # characters of a publisher's error: what a page shows
_SAMPLED = 20  # rows of either kind that are searched for the last alert of each severity


class NotificationRecord(msgspec.Struct, kw_only=True):
    """A notification and its result. The alert came in at `at`; the first publisher had it at `notified` (null: none
    has it yet), `seconds` after publishing began. `results` has `ok` or the last error of each publisher. `group_name`
    is empty if the alert has no group."""

    id: str
    at: float
    notified: float | None
    outcome: str
    fingerprint: str
    severity: str
    status: str
    name: str
    source: str
    labels: Labels
    annotations: Labels
    results: dict[str, str]
    seconds: float | None
    trace: str
    group_name: str

    @property
    def place(self) -> str:
        """The position after this record, for the `after` of the next page."""
        return str(Position(self.at, self.id))


class ReasonCount(msgspec.Struct, kw_only=True):
    """How many alerts were suppressed for this reason, and when the last one was."""

    reason: str
    count: int
    last: float


class NoisyAlert(msgspec.Struct, kw_only=True):
    """How many alerts of this fingerprint and severity were suppressed, and when the last one was."""

    fingerprint: str
    severity: str
    name: str
    count: int
    last: float


class AlertHistory:
    """Records into two journals, which the service writes. Queries find what is written; an empty `fingerprint` means
    all."""

    def __init__(self, app: Application[AlertsSettings]) -> None:
        keep, self._queries = app.settings.retention, app.queries
        self._notifications = app.journal(
            "record", order=("id",), forget="forget_notifications", keep=keep, most=MOST_NOTIFICATIONS
        )
        self._suppressed = app.journal(
            "suppress", order=UNIQUE_SUM, forget="forget_suppressed", keep=keep + HOUR, most=MOST_SUPPRESSED
        )

    @property
    def dropped(self) -> int:
        """Records that did not fit into the buffers while the database was unreachable."""
        return self._notifications.dropped + self._suppressed.dropped

    async def flush(self) -> None:
        """Writes what is buffered. If the database fails (DataError), it is kept for the next call."""
        await self._notifications.flush()
        await self._suppressed.flush()

    def record(
        self, outcome: str, notification: Notification, results: Mapping[str, str], seconds: float | None = None
    ) -> None:
        """Records the outcome: PUBLISHED, if at least one publisher has it, after `seconds`; QUEUED, if none has it
        yet; DEAD, if it is not retried. `results` has OK or the error of each publisher that was tried."""
        self._notifications.add(
            _columns(notification.alert)
            | {
                "id": notification.id,
                "at": notification.at,
                "notified": time.time() if outcome == PUBLISHED else None,
                "outcome": outcome,
                "status": notification.alert.status,
                "annotations": json_texts(notification.alert.annotations),
                "results": json_texts({name: text[:MAX_ERROR] for name, text in results.items()}),
                "seconds": seconds,
                "trace": notification.trace,
            }
        )

    def suppressed(self, alert: Alert, reason: str) -> None:
        """Counts an alert that was suppressed for this reason."""
        hour = begin_of(time.time(), HOUR)
        key = (alert.fingerprint, alert.severity, reason, hour)
        self._suppressed.count(key, lambda: _columns(alert) | {"reason": reason, "hour": hour})

    # -- queries

    async def recent(
        self, *, fingerprint: str = "", severity: str = "", since: float = 0.0, after: str = "", limit: int = 50
    ) -> list[NotificationRecord]:
        """Notifications since that moment, the newest first; of this fingerprint and severity, or of all if these are
        empty. `after` is the `place` of the last record of the page before."""
        at, id = position_after(after)
        values = {"at": at, "id": id, "since": since, "severity": named(severity), "limit": limit}
        return [from_row(NotificationRecord, row) for row in await self._about("recent", fingerprint, **values)]

    async def last_notified(self, fingerprint: str) -> float | None:
        """When a notification of this fingerprint was last sent; None if the history has none."""
        row = await self._queries.row("last_notified", fingerprint=named(fingerprint))
        return row["notified"] if row is not None else None

    async def notified_since(self, since: float, *, severity: str, fingerprint: str = "") -> int:
        """How many firing alerts of this severity were sent since then; of this fingerprint or of all."""
        (row,) = await self._about("notified_since", fingerprint, severity=named(severity), since=since)
        return int(row["count"])

    async def samples(self, fingerprint: str) -> list[Alert]:
        """The last alert of each severity of this fingerprint, sent or suppressed; the newest first."""
        rows = await self._queries.rows("samples", fingerprint=named(fingerprint), limit=_SAMPLED)
        newest: dict[str, Row] = {}
        for row in rows:
            newest.setdefault(row["severity"], row)
        return [from_row(Alert, row | {"fingerprint": fingerprint}) for row in newest.values()]

    async def last_alert(self, fingerprint: str, without: str) -> Alert | None:
        """The last alert of this fingerprint, with what this worker has yet to write; None if the history has none. If
        it is unreachable, None too, and the event `without` is logged."""
        try:
            await self.flush()
            return next(iter(await self.samples(fingerprint)), None)
        except DataError as error:
            log.warning(without, fingerprint=fingerprint, error=str(error))
            return None

    async def suppressed_counts(self, *, fingerprint: str = "", since: float = 0.0) -> list[ReasonCount]:
        """How many alerts were suppressed, by reason, since the hour of that moment; of this fingerprint or of all."""
        found = await self._about("suppressed_counts", fingerprint, hour=begin_of(since, HOUR))
        return [from_row(ReasonCount, row) for row in found]

    async def suppressed_of(self, fingerprints: Collection[str], *, since: float) -> dict[tuple[str, str], int]:
        """How many alerts of these fingerprints were suppressed since the hour of that moment, by fingerprint and
        severity."""
        given = msgspec.json.encode([named(each) for each in fingerprints]).decode()
        found = await self._queries.rows("suppressed_of_these", fingerprints=given, hour=begin_of(since, HOUR))
        return {(row["fingerprint"], row["severity"]): row["count"] for row in found}

    async def most_suppressed(self, *, since: float = 0.0, limit: int = 10) -> list[NoisyAlert]:
        """The fingerprints with the most suppressed alerts since the hour of that moment."""
        found = await self._queries.rows("most_suppressed", hour=begin_of(since, HOUR), limit=limit)
        return [from_row(NoisyAlert, row) for row in found]

    async def _about(self, statement: str, fingerprint: str, **values: Any) -> list[Row]:
        """The rows of this statement about all, or of its twin about one fingerprint, which uses an index."""
        if not fingerprint:
            return await self._queries.rows(statement, **values)
        return await self._queries.rows(f"{statement}_of", fingerprint=named(fingerprint), **values)


def _columns(alert: Alert) -> Row:
    """The columns of an alert, sent or suppressed."""
    texts = {name: named(getattr(alert, name)) for name in ("fingerprint", "severity", "name", "source")}
    return texts | {"labels": json_texts(alert.labels), "group_name": named(alert.group)}


def named(text: str) -> str:
    """The text cut to what an index of every database can hold."""
    return without_nul(text)[:MAX_FINGERPRINT]
