"""What operators can look at and change, over HTTP: windows, history, and why somebody was not told.

Looking takes READ; ending a window takes ADMIN and a reason, which goes into the audit log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import msgspec

from ....service.routes import ADMIN, READ, Answer, Body, Call, PageSize, Prefix, Reason, Route
from ..model import MAX_FINGERPRINT
from ..records.history_queries import Noisy, Suppressed, ToldAlert
from . import silences as silencing
from . import windows
from .silences import Moment
from .why import Why, why
from .windows import Window

if TYPE_CHECKING:
    from ..app import App

Fingerprint = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FINGERPRINT)]
Anything = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="of all if it is empty")]
Place = Annotated[str, msgspec.Meta(max_length=600, description="the `next` of the page before")]
A_DAY = 86_400.0  # seconds: over which suppressed alerts are counted unless it is said otherwise
MOST_NOISY = 20


class WindowsQuery(Body):
    """Those of this fingerprint; or of all, whose key comes after `after`."""

    fingerprint: Anything = ""
    after: Prefix = ""
    limit: PageSize = 100


class ListedWindows(Answer):
    """In key order. If `next` is not null there may be more: ask for those after it."""

    reservations: list[Window]
    next: str | None


class ExpireWindow(Body):
    """The window of this fingerprint and severity is to end; without a severity, the one of the message that it is
    over."""

    fingerprint: Fingerprint
    reason: Reason
    severity: Anything = ""

    @property
    def key(self) -> str:
        """For the audit log."""
        return windows.key_of(self.fingerprint, self.severity)


class ExpiredWindow(Answer):
    """False if there was none."""

    expired: bool


class ClearWindows(Body):
    """All windows of this fingerprint are to end."""

    fingerprint: Fingerprint
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return windows.prefix_of(self.fingerprint)


class ClearedWindows(Answer):
    """How many there were."""

    cleared: int


class HistoryQuery(Body):
    """Notifications of this fingerprint and severity since that moment, the newest first."""

    fingerprint: Anything = ""
    severity: Anything = ""
    since: Moment = 0.0
    after: Place = ""
    limit: PageSize = 50


class ListedHistory(Answer):
    """The newest first. If `next` is not null there may be more: ask for those after it."""

    history: list[ToldAlert]
    next: str | None


class SuppressedQuery(Body):
    """Of this fingerprint, since the hour of that moment; a day ago if it is left out."""

    fingerprint: Anything = ""
    since: Moment | None = None


class SuppressedCounts(Answer):
    """By reason; and of which fingerprints most were suppressed, unless one was asked for."""

    since: float
    reasons: list[Suppressed]
    most: list[Noisy]


class WhyQuery(Body):
    """Which alert."""

    fingerprint: Fingerprint


class Admin:
    """The handlers, of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def reservations(self, call: Call[None, WindowsQuery]) -> ListedWindows:
        """What is being sent or quiet."""
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
        """What was told."""
        asked, history = call.query, self._app.history
        found = await history.recent(
            fingerprint=asked.fingerprint,
            severity=asked.severity,
            since=asked.since,
            after=asked.after,
            limit=asked.limit,
        )
        return ListedHistory(history=found, next=found[-1].place if len(found) == asked.limit else None)

    async def suppressed(self, call: Call[None, SuppressedQuery]) -> SuppressedCounts:
        """What was not."""
        asked, history = call.query, self._app.history
        since = time.time() - A_DAY if asked.since is None else asked.since
        most = [] if asked.fingerprint else await history.most_suppressed(since=since, limit=MOST_NOISY)
        reasons = await history.suppressed_counts(fingerprint=asked.fingerprint, since=since)
        return SuppressedCounts(since=since, reasons=reasons, most=most)

    async def why(self, call: Call[None, WhyQuery]) -> Why:
        """Why it was not told."""
        return await why(self._app, call.query.fingerprint)


def routes(app: App) -> list[Route]:
    """All of them, below /api/alerts/, and those of silences."""
    admin = Admin(app)
    return [
        Route(
            "GET",
            "/api/alerts/reservations",
            READ,
            admin.reservations,
            "List what is being sent or quiet, by fingerprint and severity",
            query=WindowsQuery,
            answer=ListedWindows,
        ),
        Route(
            "POST",
            "/api/alerts/reservations/expire",
            ADMIN,
            admin.expire,
            "End the window of a fingerprint and severity, so that the next alert is told",
            body=ExpireWindow,
            answer=ExpiredWindow,
            again="Ends what is there then.",
        ),
        Route(
            "POST",
            "/api/alerts/reservations/clear",
            ADMIN,
            admin.clear,
            "End all windows of a fingerprint",
            body=ClearWindows,
            answer=ClearedWindows,
            again="Ends what is there then.",
        ),
        Route(
            "GET",
            "/api/alerts/history",
            READ,
            admin.history,
            "List what was told, the newest first",
            query=HistoryQuery,
            answer=ListedHistory,
        ),
        Route(
            "GET",
            "/api/alerts/suppressed",
            READ,
            admin.suppressed,
            "Count what was suppressed, by reason",
            query=SuppressedQuery,
            answer=SuppressedCounts,
        ),
        Route(
            "GET",
            "/api/alerts/why",
            READ,
            admin.why,
            "Tell why nobody was told of a fingerprint",
            query=WhyQuery,
            answer=Why,
        ),
        *silencing.routes(app),
    ]
