"""Lists over HTTP: what fires now, the history, and what was suppressed."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from ....kit import DAY, MAX_MATCHER, MOST_MATCHERS, READ, Answer, Body, Call, Moment, PageSize, Route, Rows, list_route
from .. import acts
from ..history import NoisyAlert, NotificationRecord, ReasonCount
from ..model import MAX_FINGERPRINT
from ..runtime import AlertsRuntime, Handlers
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.matchers import lines
from ..suppression.open_alerts import OpenAlert
from ..suppression.silences import Silence

Anything = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all if empty")]
Place = Annotated[str, msgspec.Meta(max_length=600, description="the `next` of the page before")]
AnyLines = Annotated[
    str, msgspec.Meta(max_length=(MAX_MATCHER + 2) * MOST_MATCHERS, description="one per line; all alerts if empty")
]
MOST_NOISY = 20  # fingerprints in one response: a screenful


class SuppressedQuery(Body):
    """Of this fingerprint or of all, since the hour of that moment (default: a day ago)."""

    fingerprint: Anything = ""
    since: Moment | None = None


class SuppressedCounts(Answer):
    """Counts by reason; and, unless the query named a fingerprint, the fingerprints with the most suppressed alerts."""

    since: float
    reasons: list[ReasonCount]
    most: list[NoisyAlert]


class Lists(Handlers):
    """Finds the rows of each list."""

    async def firing(self, matchers: AnyLines = "", severity: Anything = "", limit: PageSize = 100) -> list[OpenAlert]:
        """Alerts of this severity that match all matchers, which are written as those of a silence."""
        return await self._app.open_alerts.list(matchers=lines(matchers), severity=severity, limit=limit)

    async def history(
        self,
        fingerprint: Anything = "",
        severity: Anything = "",
        since: Moment = 0.0,
        after: Place = "",
        limit: PageSize = 50,
    ) -> Rows[NotificationRecord]:
        """Notifications of this fingerprint and severity since that moment, the newest first."""
        found = await self._app.history.recent(
            fingerprint=fingerprint, severity=severity, since=since, after=after, limit=limit
        )
        return Rows(found, found[-1].place if len(found) == limit else None)

    async def silences(self, ended: bool = False, limit: PageSize = 100) -> list[Silence]:
        """Current and future silences in the order in which they end; with `ended`, those that ended within 30 days,
        the latest first."""
        return await self._app.silences.list(ended=ended, limit=limit)

    async def acknowledged(self, limit: PageSize = 100) -> list[Acknowledgement]:
        """Acknowledgements in effect, the newest first."""
        return await self._app.acknowledgements.list(limit)

    async def suppressed(self, call: Call[None, SuppressedQuery]) -> SuppressedCounts:
        """Counts of what was suppressed."""
        asked, found = call.query, self._app.history
        since = time.time() - DAY if asked.since is None else asked.since
        most = [] if asked.fingerprint else await found.most_suppressed(since=since, limit=MOST_NOISY)
        reasons = await found.suppressed_counts(fingerprint=asked.fingerprint, since=since)
        return SuppressedCounts(since=since, reasons=reasons, most=most)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the lists; that of windows is with their acts."""
    lists = Lists(app)
    return [
        list_route(acts.FIRING, lists.firing),
        list_route(acts.HISTORY, lists.history),
        list_route(acts.SILENCES, lists.silences),
        list_route(acts.ACKNOWLEDGED, lists.acknowledged),
        Route("GET", "/api/alerts/suppressed", READ, lists.suppressed, "Count what was suppressed, by reason"),
    ]
