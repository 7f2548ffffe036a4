"""Windows, history and `why` over HTTP.

Reading needs READ; ending a window needs ADMIN and a reason, which goes into the audit log.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from ....service.routes import ADMIN, READ, Answer, Body, Call, PageSize, Prefix, Reason, Route
from ..model import MAX_FINGERPRINT, Text
from ..records.history_queries import NoisyAlert, NotificationRecord, ReasonCount
from ..runtime import AlertsRuntime, Handlers
from . import silences, windows
from .explanation import Why
from .silences import Moment
from .why import why
from .windows import Window

Anything = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all if empty")]
Place = Annotated[str, msgspec.Meta(max_length=600, description="the `next` of the page before")]
A_DAY = 86_400.0  # seconds: suppressed alerts are counted over the last day unless `since` is given
MOST_NOISY = 20  # fingerprints in one response: a screenful


class WindowsQuery(Body):
    """Windows of this fingerprint; or of all, with keys after `after`."""

    fingerprint: Anything = ""
    after: Prefix = ""
    limit: PageSize = 100


class ListedWindows(Answer):
    """In key order. If `next` is not null there may be more: give it as `after`."""

    reservations: list[Window]
    next: str | None


class ExpireWindow(Body):
    """Ends the window of this fingerprint and severity; without a severity, that of the resolved notification."""

    fingerprint: Text
    reason: Reason
    severity: Anything = ""

    @property
    def key(self) -> str:
        """For the audit log."""
        return windows.key_of(self.fingerprint, self.severity)


class ExpiredWindow(Answer):
    """`expired` is false if there was no such window."""

    expired: bool


class ClearWindows(Body):
    """Ends all windows of this fingerprint."""

    fingerprint: Text
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return windows.prefix_of(self.fingerprint)


class ClearedWindows(Answer):
    """The number of windows that were ended."""

    cleared: int


class HistoryQuery(Body):
    """Notifications of this fingerprint and severity since that moment, the newest first."""

    fingerprint: Anything = ""
    severity: Anything = ""
    since: Moment = 0.0
    after: Place = ""
    limit: PageSize = 50


class ListedHistory(Answer):
    """The newest first. If `next` is not null there may be more: give it as `after`."""

    history: list[NotificationRecord]
    next: str | None


class SuppressedQuery(Body):
    """Of this fingerprint or of all, since the hour of that moment (default: a day ago)."""

    fingerprint: Anything = ""
    since: Moment | None = None


class SuppressedCounts(Answer):
    """Counts by reason; and, unless the query named a fingerprint, the fingerprints with the most suppressed alerts."""

    since: float
    reasons: list[ReasonCount]
    most: list[NoisyAlert]


class WhyQuery(Body):
    """The alert to explain."""

    fingerprint: Text


async def find_history(app: AlertsRuntime, query: HistoryQuery) -> ListedHistory:
    """A page of the history."""
    found = await app.history.recent(
        fingerprint=query.fingerprint,
        severity=query.severity,
        since=query.since,
        after=query.after,
        limit=query.limit,
    )
    return ListedHistory(history=found, next=found[-1].place if len(found) == query.limit else None)


class Admin(Handlers):
    """The handlers."""

    async def reservations(self, call: Call[None, WindowsQuery]) -> ListedWindows:
        """Lists windows."""
        asked, once, history = call.query, self._app.once, self._app.history
        if asked.fingerprint:
            found = await windows.of_fingerprint(once, history, asked.fingerprint)
            return ListedWindows(reservations=found, next=None)
        page = await windows.listed(once, history, asked.after, asked.limit)
        return ListedWindows(reservations=page.found, next=page.next)

    async def expire(self, call: Call[ExpireWindow, None]) -> ExpiredWindow:
        """Ends one window."""
        wanted = call.body
        expired = await windows.expire(self._app.once, wanted.fingerprint, wanted.severity, wanted.reason)
        self._app.receiver.forget(wanted.fingerprint)
        return ExpiredWindow(expired=expired)

    async def clear(self, call: Call[ClearWindows, None]) -> ClearedWindows:
        """Ends all windows of a fingerprint."""
        wanted = call.body
        cleared = await windows.clear(self._app.once, wanted.fingerprint, wanted.reason)
        self._app.receiver.forget(wanted.fingerprint)
        return ClearedWindows(cleared=cleared)

    async def history(self, call: Call[None, HistoryQuery]) -> ListedHistory:
        """Lists notifications."""
        return await find_history(self._app, call.query)

    async def suppressed(self, call: Call[None, SuppressedQuery]) -> SuppressedCounts:
        """Counts suppressed alerts."""
        asked, history = call.query, self._app.history
        since = time.time() - A_DAY if asked.since is None else asked.since
        most = [] if asked.fingerprint else await history.most_suppressed(since=since, limit=MOST_NOISY)
        reasons = await history.suppressed_counts(fingerprint=asked.fingerprint, since=since)
        return SuppressedCounts(since=since, reasons=reasons, most=most)

    async def why(self, call: Call[None, WhyQuery]) -> Why:
        """Explains why an alert was not sent."""
        return await why(self._app, call.query.fingerprint)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes below /api/alerts/, including those of silences."""
    admin = Admin(app)
    return [
        Route(
            "GET",
            "/api/alerts/reservations",
            READ,
            admin.reservations,
            "List what is being sent or quiet, by fingerprint and severity",
        ),
        Route(
            "POST",
            "/api/alerts/reservations/expire",
            ADMIN,
            admin.expire,
            "End the window of a fingerprint and severity, so that the next alert is sent",
            again="Ends what is there then.",
        ),
        Route(
            "POST",
            "/api/alerts/reservations/clear",
            ADMIN,
            admin.clear,
            "End all windows of a fingerprint",
            again="Ends what is there then.",
        ),
        Route("GET", "/api/alerts/history", READ, admin.history, "List notifications, the newest first"),
        Route("GET", "/api/alerts/suppressed", READ, admin.suppressed, "Count what was suppressed, by reason"),
        Route("GET", "/api/alerts/why", READ, admin.why, "Explain why a fingerprint sent no notification"),
        *silences.routes(app),
    ]
