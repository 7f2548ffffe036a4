"""Queries of the history."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ....kit import HOUR, Database, Position, Row, Statements, begin_of, from_row, position_after, without_nul
from ..model import MAX_FINGERPRINT, Alert, Labels

STATEMENTS = Statements.of("solely.apps.alerts", "queries.sql")
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


class HistoryQueries:
    """Sent notifications and suppressed alerts, as far as they are written. An empty `fingerprint` means all."""

    def __init__(self, data: Database) -> None:
        self._queries = STATEMENTS.on(data)

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

    async def _about(self, statement: str, fingerprint: str, **values: object) -> list[Row]:
        """The rows of this statement about all, or of its twin about one fingerprint, which uses an index."""
        if not fingerprint:
            return await self._queries.rows(statement, **values)
        return await self._queries.rows(f"{statement}_of", fingerprint=named(fingerprint), **values)


def named(text: str) -> str:
    """The text cut to what an index of every database can hold."""
    return without_nul(text)[:MAX_FINGERPRINT]
