"""History: which notifications were sent, to which publishers and when, and how many alerts were suppressed and why.

It is written behind: an alert never waits for it and never fails because of it. A killed process loses at most the last
half second of history, and no notification.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ....data import Database, Row
from ..model import Alert, Notification
from .history_queries import HOUR, HistoryQueries, clean, hour_of, named

OK = "ok"  # the result of a publisher that has the notification
PUBLISHED, QUEUED, DEAD = "published", "queued", "dead"
MOST_NOTIFICATIONS = 2_000  # buffered while the database is unreachable: bounded, as each may have some KiB
MOST_SUPPRESSED = 20_000  # buffered counts
MAX_ERROR = 500  # characters of a publisher's error: what a page shows
PAGE = 200  # rows that one statement deletes: few enough that it blocks nobody

# A later record of the same notification adds its publishers' results. The outcome `published` is final.
_MERGED = {
    "sqlite": "json_patch(alerts_history.results, excluded.results)",
    "postgresql": "(alerts_history.results::jsonb || excluded.results::jsonb)::text",
}
_RECORD = """
INSERT INTO alerts_history
    (id, at, notified, outcome, fingerprint, severity, status, name, source, labels, annotations, results, seconds,
    trace, group_name)
VALUES (:id, :at, :notified, :outcome, :fingerprint, :severity, :status, :name, :source, :labels, :annotations,
    :results, :seconds, :trace, :group_name)
ON CONFLICT (id) DO UPDATE SET
    notified = COALESCE(alerts_history.notified, excluded.notified),
    seconds = COALESCE(alerts_history.seconds, excluded.seconds),
    outcome = CASE WHEN excluded.outcome = 'published' OR alerts_history.outcome = 'queued'
        THEN excluded.outcome ELSE alerts_history.outcome END,
    results = {merged}
"""
_SUPPRESS = """
INSERT INTO alerts_suppressed (fingerprint, severity, reason, hour, count, last, name, source, labels, group_name)
VALUES (:fingerprint, :severity, :reason, :hour, :times, :last, :name, :source, :labels, :group_name)
ON CONFLICT (fingerprint, severity, reason, hour) DO UPDATE SET
    count = alerts_suppressed.count + excluded.count,
    last = CASE WHEN excluded.last > alerts_suppressed.last THEN excluded.last ELSE alerts_suppressed.last END
"""
_FORGET_NOTIFICATIONS = """
DELETE FROM alerts_history WHERE id IN (SELECT id FROM alerts_history WHERE at < :before ORDER BY at LIMIT :page)
"""
_FORGET_SUPPRESSED = """
DELETE FROM alerts_suppressed WHERE (fingerprint, severity, reason, hour) IN
    (SELECT fingerprint, severity, reason, hour FROM alerts_suppressed WHERE hour < :before ORDER BY hour LIMIT :page)
"""

_Sum = tuple[str, str, str, int]  # fingerprint, severity, reason, hour


class _Sums(NamedTuple):
    """How many alerts were suppressed, when the last one was, and a sample of them."""

    times: int
    last: float
    name: str
    source: str
    labels: str
    group_name: str


class AlertHistory(HistoryQueries):
    """Buffers records until `flush` writes them. Both buffers are bounded; `dropped` counts what did not fit."""

    def __init__(self, data: Database) -> None:
        super().__init__(data)
        self._notifications: list[dict[str, Any]] = []
        self._suppressed: dict[_Sum, _Sums] = {}
        self._writing = asyncio.Lock()
        self.dropped = 0

    def published(self, notification: Notification, results: Mapping[str, str], seconds: float) -> None:
        """At least one publisher has it, after `seconds`; `results` has OK or the error of each publisher."""
        self._record(notification, PUBLISHED, results, time.time(), seconds)

    def queued(self, notification: Notification, results: Mapping[str, str]) -> None:
        """No publisher has it yet; it is retried."""
        self._record(notification, QUEUED, results)

    def dead(self, notification: Notification, publisher: str, error: str) -> None:
        """This publisher is not retried any more: the notification is a dead letter."""
        self._record(notification, DEAD, {publisher: f"dead letter: {error}"})

    def suppressed(self, alert: Alert, reason: str) -> None:
        """Counts an alert that was suppressed for this reason."""
        now = time.time()
        sum = (named(alert.fingerprint), named(alert.severity), reason, hour_of(now))
        known = self._suppressed.get(sum)
        if known is not None:
            self._suppressed[sum] = known._replace(times=known.times + 1, last=now)
        elif len(self._suppressed) < MOST_SUPPRESSED:
            like = named(alert.name), named(alert.source), _json(alert.labels), named(alert.group)
            self._suppressed[sum] = _Sums(1, now, *like)
        else:
            self.dropped += 1

    def _record(
        self,
        notification: Notification,
        outcome: str,
        results: Mapping[str, str],
        notified: float | None = None,
        seconds: float | None = None,
    ) -> None:
        if len(self._notifications) >= MOST_NOTIFICATIONS:
            self.dropped += 1
            return
        alert = notification.alert
        self._notifications.append(
            {
                "id": notification.id,
                "at": notification.at,
                "notified": notified,
                "outcome": outcome,
                "fingerprint": named(alert.fingerprint),
                "severity": named(alert.severity),
                "status": alert.status,
                "name": named(alert.name),
                "source": named(alert.source),
                "labels": _json(alert.labels),
                "annotations": _json(alert.annotations),
                "results": _json({name: text[:MAX_ERROR] for name, text in results.items()}),
                "seconds": seconds,
                "trace": notification.trace,
                "group_name": named(alert.group),
            }
        )

    async def flush(self) -> None:
        """Writes both buffers. If the database fails (DataError), they are kept for the next call."""
        async with self._writing:
            await self._write_notifications()
            await self._write_suppressed()

    async def _write_notifications(self) -> None:
        rows, self._notifications = self._notifications, []
        if not rows:
            return
        try:
            # In order of ids, so that two processes never deadlock on each other's rows.
            rows.sort(key=lambda row: row["id"])
            await self._data.run_many(_RECORD.format(merged=_MERGED[self._data.dialect]), rows)
        except BaseException:
            kept = rows + self._notifications
            self._notifications = kept[:MOST_NOTIFICATIONS]
            self.dropped += len(kept) - len(self._notifications)
            raise

    async def _write_suppressed(self) -> None:
        sums, self._suppressed = self._suppressed, {}
        if not sums:
            return
        try:
            await self._data.run_many(_SUPPRESS, [_sum_row(*each) for each in sorted(sums.items())])
        except BaseException:
            self._add_again(sums)
            raise

    def _add_again(self, sums: dict[_Sum, _Sums]) -> None:
        for sum, kept in sums.items():
            later = self._suppressed.get(sum)
            if later is not None or len(self._suppressed) < MOST_SUPPRESSED:
                times, last = (later.times, later.last) if later is not None else (0, kept.last)
                self._suppressed[sum] = kept._replace(times=kept.times + times, last=last)
            else:
                self.dropped += kept.times

    async def sweep(self, older_than: float) -> int:
        """Deletes rows that are older than this many seconds, a page at a time; returns their number."""
        before = time.time() - older_than
        return await self._forget(_FORGET_NOTIFICATIONS, before) + await self._forget(_FORGET_SUPPRESSED, before - HOUR)

    async def _forget(self, statement: str, before: float) -> int:
        forgotten, page = 0, PAGE
        while page == PAGE:
            page = await self._data.run(statement, before=before, page=PAGE)
            forgotten += page
        return forgotten


def _json(texts: Mapping[str, str]) -> str:
    return msgspec.json.encode({clean(name): clean(text) for name, text in texts.items()}).decode()


def _sum_row(sum: _Sum, known: _Sums) -> Row:
    fingerprint, severity, reason, hour = sum
    return {"fingerprint": fingerprint, "severity": severity, "reason": reason, "hour": hour, **known._asdict()}
