"""History: which notifications were sent, to which publishers and when, and how many alerts were suppressed and why.

It is written behind: an alert never waits for it and never fails because of it. A killed process loses at most the last
half second of history, and no notification.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ....kit import HOUR, Database, Journal, Row, begin_of, json_texts
from ..model import Alert, Notification
from .history_queries import STATEMENTS, HistoryQueries, named

OK = "ok"  # the result of a publisher that has the notification
PUBLISHED, QUEUED, DEAD = "published", "queued", "dead"
MOST_NOTIFICATIONS = 2_000  # buffered while the database is unreachable: bounded, as each may have some KiB
MOST_SUPPRESSED = 20_000  # buffered sums, which are small
UNIQUE_SUM = ("fingerprint", "severity", "reason", "hour")
MAX_ERROR = 500  # characters of a publisher's error: what a page shows


class AlertHistory(HistoryQueries):
    """Records into two journals, which `flush` writes."""

    def __init__(self, data: Database, on_drop: Callable[[], object] = lambda: None) -> None:
        super().__init__(data)
        sent, sums = STATEMENTS["record"], STATEMENTS["suppress"]
        self._notifications = Journal(data, sent, order=("id",), most=MOST_NOTIFICATIONS, on_drop=on_drop)
        self._suppressed = Journal(data, sums, order=UNIQUE_SUM, most=MOST_SUPPRESSED, on_drop=on_drop)

    @property
    def dropped(self) -> int:
        """Records that did not fit into the buffers while the database was unreachable."""
        return self._notifications.dropped + self._suppressed.dropped

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
        hour = begin_of(time.time(), HOUR)
        key = (alert.fingerprint, alert.severity, reason, hour)
        self._suppressed.count(key, lambda: _like(alert) | {"reason": reason, "hour": hour})

    def _record(
        self,
        notification: Notification,
        outcome: str,
        results: Mapping[str, str],
        notified: float | None = None,
        seconds: float | None = None,
    ) -> None:
        self._notifications.add(
            _like(notification.alert)
            | {
                "id": notification.id,
                "at": notification.at,
                "notified": notified,
                "outcome": outcome,
                "status": notification.alert.status,
                "annotations": json_texts(notification.alert.annotations),
                "results": json_texts({name: text[:MAX_ERROR] for name, text in results.items()}),
                "seconds": seconds,
                "trace": notification.trace,
            }
        )

    async def flush(self) -> None:
        """Writes both journals. If the database fails (DataError), they are kept for the next call."""
        await self._notifications.flush()
        await self._suppressed.flush()

    async def sweep(self, older_than: float) -> int:
        """Deletes rows that are older than this many seconds, a page at a time; returns their number."""
        notifications = await self._notifications.sweep(STATEMENTS["forget_notifications"], older_than)
        return notifications + await self._suppressed.sweep(STATEMENTS["forget_suppressed"], older_than + HOUR)


def _like(alert: Alert) -> Row:
    """The columns of an alert, sent or suppressed."""
    return {
        "fingerprint": named(alert.fingerprint),
        "severity": named(alert.severity),
        "name": named(alert.name),
        "source": named(alert.source),
        "labels": json_texts(alert.labels),
        "group_name": named(alert.group),
    }
