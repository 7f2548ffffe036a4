"""Queries of the history."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import msgspec

from ....data import Database, Row
from ....errors import InvalidInput
from ..model import MAX_FINGERPRINT, Alert, Labels

HOUR = 3_600  # seconds: suppressed alerts are counted per hour

_OF_FINGERPRINT = "fingerprint = :fingerprint AND"  # the {of} of a statement about one fingerprint, which has an index
_RECENT = """
SELECT * FROM alerts_history
WHERE {of} (at, id) < (:at, :id) AND at >= :since AND (severity = :severity OR :severity = '')
ORDER BY at DESC, id DESC LIMIT :limit
"""
_LAST_NOTIFIED = "SELECT MAX(notified) AS notified FROM alerts_history WHERE fingerprint = :fingerprint"
_COUNTS = """
SELECT reason, SUM(count) AS count, MAX(last) AS last FROM alerts_suppressed WHERE {of} hour >= :hour
GROUP BY reason ORDER BY count DESC, reason
"""
_MOST_SUPPRESSED = """
SELECT fingerprint, severity, MAX(name) AS name, SUM(count) AS count, MAX(last) AS last FROM alerts_suppressed
WHERE hour >= :hour GROUP BY fingerprint, severity ORDER BY count DESC, fingerprint, severity LIMIT :limit
"""
_OF_THESE = {
    "sqlite": "SELECT value FROM json_each(:fingerprints)",
    "postgresql": "SELECT value FROM jsonb_array_elements_text(:fingerprints::jsonb) AS given (value)",
}
_SUMS_OF_THESE = """
SELECT fingerprint, severity, SUM(count) AS count FROM alerts_suppressed
WHERE hour >= :hour AND fingerprint IN ({these}) GROUP BY fingerprint, severity
"""
# The last alert of each severity, sent or suppressed: what silences are matched with.
_SAMPLES = """
SELECT name, severity, source, labels, group_name, at AS seen FROM
    (SELECT * FROM alerts_history WHERE fingerprint = :fingerprint ORDER BY at DESC LIMIT :limit) AS sent
UNION ALL
SELECT name, severity, source, labels, group_name, last AS seen FROM
    (SELECT * FROM alerts_suppressed WHERE fingerprint = :fingerprint ORDER BY hour DESC LIMIT :limit) AS suppressed
ORDER BY seen DESC
"""
_NOTIFIED_SINCE = """
SELECT COUNT(*) AS count FROM alerts_history
WHERE {of} severity = :severity AND status = 'firing' AND at >= :since AND notified IS NOT NULL
"""
_SAMPLED = 20  # rows of either kind that are searched for the last alert of each severity
_NEWEST = (1e18, "")  # a position after every notification


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
        return f"{self.at!r}/{self.id}"


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


class HistoryQueries:
    """Sent notifications and suppressed alerts, as far as they are written."""

    def __init__(self, data: Database) -> None:
        self._data = data

    async def recent(
        self, *, fingerprint: str = "", severity: str = "", since: float = 0.0, after: str = "", limit: int = 50
    ) -> list[NotificationRecord]:
        """Notifications since that moment, the newest first; of this fingerprint and severity, or of all if these are
        empty. `after` is the `place` of the last record of the page before."""
        at, id = _place(after)
        statement, of = _about(_RECENT, fingerprint)
        found = await self._data.rows(statement, at=at, id=id, since=since, severity=named(severity), limit=limit, **of)
        return [_record(row) for row in found]

    async def last_notified(self, fingerprint: str) -> float | None:
        """When a notification of this fingerprint was last sent; None if the history has none."""
        row = await self._data.row(_LAST_NOTIFIED, fingerprint=named(fingerprint))
        return row["notified"] if row is not None else None

    async def notified_since(self, since: float, *, severity: str, fingerprint: str = "") -> int:
        """How many firing alerts of this severity were sent since then; of this fingerprint or of all."""
        statement, of = _about(_NOTIFIED_SINCE, fingerprint)
        row = await self._data.row(statement, severity=named(severity), since=since, **of)
        return int(row["count"]) if row is not None else 0

    async def samples(self, fingerprint: str) -> list[Alert]:
        """The last alert of each severity of this fingerprint, sent or suppressed; the newest first."""
        rows = await self._data.rows(_SAMPLES, fingerprint=named(fingerprint), limit=_SAMPLED)
        last = {row["severity"]: row for row in reversed(rows)}
        newest = sorted(last.values(), key=lambda row: float(row["seen"]), reverse=True)
        return [
            Alert(
                name=row["name"],
                severity=row["severity"],
                source=row["source"],
                fingerprint=fingerprint,
                labels=msgspec.json.decode(row["labels"], type=Labels),
                group=row["group_name"],
            )
            for row in newest
        ]

    async def suppressed_counts(self, *, fingerprint: str = "", since: float = 0.0) -> list[ReasonCount]:
        """How many alerts were suppressed, by reason, since the hour of that moment; of this fingerprint or of all."""
        statement, of = _about(_COUNTS, fingerprint)
        found = await self._data.rows(statement, hour=hour_of(since), **of)
        return [ReasonCount(reason=row["reason"], count=int(row["count"]), last=row["last"]) for row in found]

    async def suppressed_of(self, fingerprints: Collection[str], *, since: float) -> dict[tuple[str, str], int]:
        """How many alerts of these fingerprints were suppressed since the hour of that moment, by fingerprint and
        severity."""
        given = msgspec.json.encode([named(each) for each in fingerprints]).decode()
        statement = _SUMS_OF_THESE.format(these=_OF_THESE[self._data.dialect])
        found = await self._data.rows(statement, fingerprints=given, hour=hour_of(since))
        return {(row["fingerprint"], row["severity"]): int(row["count"]) for row in found}

    async def most_suppressed(self, *, since: float = 0.0, limit: int = 10) -> list[NoisyAlert]:
        """The fingerprints with the most suppressed alerts since the hour of that moment."""
        found = await self._data.rows(_MOST_SUPPRESSED, hour=hour_of(since), limit=limit)
        return [NoisyAlert(**row | {"count": int(row["count"])}) for row in found]


def clean(text: str) -> str:
    """The text without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def named(text: str) -> str:
    """The text cut to what an index of every database can hold."""
    return clean(text)[:MAX_FINGERPRINT]


def _about(statement: str, fingerprint: str) -> tuple[str, dict[str, Any]]:
    """The statement about this fingerprint, or about all if it is empty, and the value that it needs."""
    if not fingerprint:
        return statement.format(of=""), {}
    return statement.format(of=_OF_FINGERPRINT), {"fingerprint": named(fingerprint)}


def hour_of(moment: float) -> int:
    """The beginning of the hour of this moment."""
    return int(moment // HOUR) * HOUR


def _place(after: str) -> tuple[float, str]:
    """The moment and id in this position; InvalidInput if it is invalid."""
    if not after:
        return _NEWEST
    at, _, id = after.partition("/")
    try:
        moment = float(at)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise InvalidInput(f"{after!r:.80} is not a position in the history; give the `next` of the page before")
    return moment, clean(id)


def _record(row: Row) -> NotificationRecord:
    labels, annotations, results = (
        msgspec.json.decode(row[name], type=Labels) for name in ("labels", "annotations", "results")
    )
    return NotificationRecord(**row | {"labels": labels, "annotations": annotations, "results": results})
