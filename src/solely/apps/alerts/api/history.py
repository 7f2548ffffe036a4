"""The history over HTTP: notifications that were sent, and counts of what was suppressed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from ....kit import DAY, READ, Answer, Body, Call, PageSize, Route, Rows, list_route
from .. import acts
from ..model import MAX_FINGERPRINT
from ..records.history import NoisyAlert, NotificationRecord, ReasonCount
from ..runtime import AlertsRuntime
from .silences import Moment

Anything = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all if empty")]
Place = Annotated[str, msgspec.Meta(max_length=600, description="the `next` of the page before")]
MOST_NOISY = 20  # fingerprints in one response: a screenful


class HistoryQuery(Body):
    """Notifications of this fingerprint and severity since that moment, the newest first."""

    fingerprint: Anything = ""
    severity: Anything = ""
    since: Moment = 0.0
    after: Place = ""
    limit: PageSize = 50


class SuppressedQuery(Body):
    """Of this fingerprint or of all, since the hour of that moment (default: a day ago)."""

    fingerprint: Anything = ""
    since: Moment | None = None


class SuppressedCounts(Answer):
    """Counts by reason; and, unless the query named a fingerprint, the fingerprints with the most suppressed alerts."""

    since: float
    reasons: list[ReasonCount]
    most: list[NoisyAlert]


def finder(app: AlertsRuntime) -> Callable[[HistoryQuery], Awaitable[Rows[NotificationRecord]]]:
    """Finds a page of the history."""

    async def find(query: HistoryQuery) -> Rows[NotificationRecord]:
        found = await app.history.recent(**{name: getattr(query, name) for name in HistoryQuery.__struct_fields__})
        return Rows(found, found[-1].place if len(found) == query.limit else None)

    return find


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the history."""

    async def suppressed(call: Call[None, SuppressedQuery]) -> SuppressedCounts:
        asked, found = call.query, app.history
        since = time.time() - DAY if asked.since is None else asked.since
        most = [] if asked.fingerprint else await found.most_suppressed(since=since, limit=MOST_NOISY)
        reasons = await found.suppressed_counts(fingerprint=asked.fingerprint, since=since)
        return SuppressedCounts(since=since, reasons=reasons, most=most)

    counted = "Count what was suppressed, by reason"
    return [list_route(acts.HISTORY, finder(app)), Route("GET", "/api/alerts/suppressed", READ, suppressed, counted)]
