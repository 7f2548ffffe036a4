"""Windows, history and `why` over HTTP, and the acts that end windows.

Reading needs READ; ending a window needs ADMIN and a reason, which goes into the audit log.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec

from ....kit import READ, Affected, Answer, Body, Call, PageSize, Prefix, Reason, Route, act_routes, span
from .. import acts
from ..model import MAX_FINGERPRINT, Text
from ..records.history_queries import NoisyAlert, NotificationRecord, ReasonCount
from ..runtime import AlertsRuntime, Handlers
from ..worker import QUIET
from . import windows
from .acknowledgements import back_to_why
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


class ClearWindows(Body):
    """Ends all windows of this fingerprint."""

    fingerprint: Text
    reason: Reason


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
            return ListedWindows(reservations=await self._windows(asked.fingerprint), next=None)
        page = await windows.listed(once, history, asked.after, asked.limit)
        return ListedWindows(reservations=page.found, next=page.next)

    async def expire(self, call: Call[ExpireWindow, None]) -> bool:
        """Ends one window."""
        wanted = call.body
        expired = await windows.expire(self._app.once, wanted.fingerprint, wanted.severity, wanted.reason)
        self._app.receiver.forget(wanted.fingerprint)
        return expired

    async def to_expire(self, call: Call[Any, Any], wanted: ExpireWindow) -> Affected | None:
        """The window, if there is one."""
        found = [each for each in await self._windows(wanted.fingerprint) if each.severity == wanted.severity]
        states = ", ".join(map(_state, found))
        return _affected(f"the window of {wanted.fingerprint!r} {wanted.severity or 'resolved'} ({states})", found)

    async def clear(self, call: Call[ClearWindows, None]) -> int:
        """Ends all windows of a fingerprint."""
        cleared = await windows.clear(self._app.once, call.body.fingerprint, call.body.reason)
        self._app.receiver.forget(call.body.fingerprint)
        return cleared

    async def to_clear(self, call: Call[Any, Any], wanted: ClearWindows) -> Affected | None:
        """The windows, if there are any."""
        found = await self._windows(wanted.fingerprint)
        states = ", ".join(f"{each.severity or each.status} {_state(each)}" for each in found)
        count = f"{len(found)} window{'' if len(found) == 1 else 's'}"
        return _affected(f"{count} of {wanted.fingerprint!r} ({states})", found)

    async def _windows(self, fingerprint: str) -> list[Window]:
        return await windows.of_fingerprint(self._app.once, self._app.history, fingerprint)

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


def _affected(what: str, found: list[Window]) -> Affected | None:
    if not found:
        return None
    suppressed = f"{sum(each.suppressed_day for each in found)} alerts in 24 hours"
    return Affected(what, {"Fingerprint": found[0].fingerprint, "Suppressed": suppressed})


def _state(window: Window) -> str:
    return f"{'quiet' if window.reason == QUIET else 'being sent'} for {span(window.left)}"


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of windows, of the history and of `why`."""
    admin = Admin(app)
    return [
        Route("GET", acts.WINDOWS.path, READ, admin.reservations, acts.WINDOWS.summary),
        *act_routes(acts.EXPIRE, admin.expire, admin.to_expire, back=back_to_why),
        *act_routes(acts.CLEAR, admin.clear, admin.to_clear, back=back_to_why),
        Route("GET", acts.HISTORY.path, READ, admin.history, acts.HISTORY.summary),
        Route("GET", "/api/alerts/suppressed", READ, admin.suppressed, "Count what was suppressed, by reason"),
        Route("GET", "/api/alerts/why", READ, admin.why, "Explain why a fingerprint sent no notification"),
    ]
