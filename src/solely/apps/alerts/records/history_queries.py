"""Looking back: the questions that people ask of the history."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from ....data import Database, Row
from ....errors import InvalidInput
from ..model import MAX_FINGERPRINT, Alert, Labels

HOUR = 3_600  # seconds, by which suppressed alerts are summed

_OF_ALL = """
SELECT * FROM alerts_history
WHERE (at, id) < (:at, :id) AND at >= :since AND (severity = :severity OR :severity = '')
ORDER BY at DESC, id DESC LIMIT :limit
"""
_OF_FINGERPRINT = """
SELECT * FROM alerts_history
WHERE fingerprint = :fingerprint AND (at, id) < (:at, :id) AND at >= :since
    AND (severity = :severity OR :severity = '')
ORDER BY at DESC, id DESC LIMIT :limit
"""
_LAST_TOLD = "SELECT MAX(told) AS told FROM alerts_history WHERE fingerprint = :fingerprint"
_COUNTS = """
SELECT reason, SUM(count) AS count, MAX(last) AS last FROM alerts_suppressed WHERE hour >= :hour
GROUP BY reason ORDER BY count DESC, reason
"""
_COUNTS_OF_FINGERPRINT = """
SELECT reason, SUM(count) AS count, MAX(last) AS last FROM alerts_suppressed
WHERE fingerprint = :fingerprint AND hour >= :hour
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
# The last of each severity, told or suppressed: what silences would be asked about.
_SAMPLES = """
SELECT name, severity, source, labels, group_name, at AS seen FROM
    (SELECT * FROM alerts_history WHERE fingerprint = :fingerprint ORDER BY at DESC LIMIT :limit) AS told
UNION ALL
SELECT name, severity, source, labels, group_name, last AS seen FROM
    (SELECT * FROM alerts_suppressed WHERE fingerprint = :fingerprint ORDER BY hour DESC LIMIT :limit) AS suppressed
ORDER BY seen DESC
"""
_TOLD_SINCE = """
SELECT COUNT(*) AS count FROM alerts_history
WHERE severity = :severity AND status = 'firing' AND at >= :since AND told IS NOT NULL
"""
_TOLD_OF_FINGERPRINT_SINCE = """
SELECT COUNT(*) AS count FROM alerts_history
WHERE fingerprint = :fingerprint AND severity = :severity AND status = 'firing' AND at >= :since AND told IS NOT NULL
"""
_SAMPLED = 20  # rows of either kind in which the last of each severity is looked for
_NEWEST = (1e18, "")  # what every notification comes before


class ToldAlert(msgspec.Struct, kw_only=True):
    """A notification, and what became of it: `at` it came in, and `told` somebody had it (null: nobody yet), `seconds`
    after publishing began. `results` has each publisher's answer: ok, or its last error. `group_name` is empty if it
    was told alone."""

    id: str
    at: float
    told: float | None
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
        """Where a page that ends with it is continued."""
        return f"{self.at!r}/{self.id}"


class Suppressed(msgspec.Struct, kw_only=True):
    """So many were suppressed for this reason, the last of them then."""

    reason: str
    count: int
    last: float


class Noisy(msgspec.Struct, kw_only=True):
    """So many of this fingerprint and severity were suppressed, the last of them then."""

    fingerprint: str
    severity: str
    name: str
    count: int
    last: float


class Lookback:
    """What was told and what was suppressed, as far as it is written."""

    def __init__(self, data: Database) -> None:
        self._data = data

    async def recent(
        self, *, fingerprint: str = "", severity: str = "", since: float = 0.0, after: str = "", limit: int = 50
    ) -> list[ToldAlert]:
        """The newest first: of this fingerprint or of all, of this severity or of all, since that moment, and older
        than the one whose `place` is given."""
        at, id = _place(after)
        statement = _OF_FINGERPRINT if fingerprint else _OF_ALL
        of = {"fingerprint": named(fingerprint)} if fingerprint else {}
        found = await self._data.rows(statement, at=at, id=id, since=since, severity=named(severity), limit=limit, **of)
        return [_told(row) for row in found]

    async def last_told(self, fingerprint: str) -> float | None:
        """When somebody was last told of this fingerprint; None if never, or too long ago to be remembered."""
        row = await self._data.row(_LAST_TOLD, fingerprint=named(fingerprint))
        return row["told"] if row is not None else None

    async def told_since(self, since: float, *, severity: str, fingerprint: str = "") -> int:
        """How many firing alerts of this severity somebody was told of since then; of this fingerprint or of all."""
        values = {"severity": named(severity), "since": since}
        if fingerprint:
            row = await self._data.row(_TOLD_OF_FINGERPRINT_SINCE, fingerprint=named(fingerprint), **values)
        else:
            row = await self._data.row(_TOLD_SINCE, **values)
        return int(row["count"]) if row is not None else 0

    async def samples(self, fingerprint: str) -> list[Alert]:
        """The last alert of this fingerprint that was told or suppressed, of each severity; the newest first."""
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

    async def suppressed_counts(self, *, fingerprint: str = "", since: float = 0.0) -> list[Suppressed]:
        """How many were suppressed by which reason, since the hour of that moment; of this fingerprint or of all."""
        hour = hour_of(since)
        if fingerprint:
            found = await self._data.rows(_COUNTS_OF_FINGERPRINT, fingerprint=named(fingerprint), hour=hour)
        else:
            found = await self._data.rows(_COUNTS, hour=hour)
        return [Suppressed(reason=row["reason"], count=int(row["count"]), last=row["last"]) for row in found]

    async def suppressed_of(self, fingerprints: Collection[str], *, since: float) -> dict[tuple[str, str], int]:
        """How many were suppressed since the hour of that moment, by fingerprint and severity; of these only."""
        given = msgspec.json.encode([named(each) for each in fingerprints]).decode()
        statement = _SUMS_OF_THESE.format(these=_OF_THESE[self._data.dialect])
        found = await self._data.rows(statement, fingerprints=given, hour=hour_of(since))
        return {(row["fingerprint"], row["severity"]): int(row["count"]) for row in found}

    async def most_suppressed(self, *, since: float = 0.0, limit: int = 10) -> list[Noisy]:
        """The fingerprints of which most were suppressed since the hour of that moment."""
        found = await self._data.rows(_MOST_SUPPRESSED, hour=hour_of(since), limit=limit)
        return [Noisy(**row | {"count": int(row["count"])}) for row in found]


def clean(text: str) -> str:
    """The text as a database can keep it: PostgreSQL has no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def named(text: str) -> str:
    """A name as the tables have it: short enough for an index of every database."""
    return clean(text)[:MAX_FINGERPRINT]


def hour_of(moment: float) -> int:
    """The moment at which its hour began."""
    return int(moment // HOUR) * HOUR


def _place(after: str) -> tuple[float, str]:
    """The moment and id of this place; InvalidInput if it is none."""
    if not after:
        return _NEWEST
    at, _, id = after.partition("/")
    try:
        moment = float(at)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise InvalidInput(f"{after!r:.80} is no place in the history; give the `next` of the page before")
    return moment, clean(id)


def _told(row: Row) -> ToldAlert:
    labels, annotations, results = (
        msgspec.json.decode(row[name], type=Labels) for name in ("labels", "annotations", "results")
    )
    return ToldAlert(**row | {"labels": labels, "annotations": annotations, "results": results})
