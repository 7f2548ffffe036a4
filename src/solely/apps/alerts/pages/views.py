"""The pages of the alert receiver: overview, history, and why an alert was not sent."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from ....kit import MAX_TTL, READ_PAGE, Answer, Call, Page, Route, View, seconds, show, total
from .. import figures
from ..api.admin import A_DAY, Anything, HistoryQuery, find_history
from ..api.explanation import Why
from ..api.why import why
from ..api.windows import SENDING, Window, listed
from ..model import RESOLVED
from ..notifications.publishing import GROUP, QUEUE, RETRIES
from ..records.history_queries import NoisyAlert, NotificationRecord, ReasonCount
from ..runtime import AlertsRuntime, Handlers
from ..settings import table
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.silences import Silence
from ..worker import QUIET

OVERVIEW = Page("Alerts", "alerts:overview.html", "/alerts")
HISTORY = Page("Notifications", "alerts:history.html", "/alerts")
WHY = Page("Why was I not notified?", "alerts:why.html", "/alerts")
FRESH = 1.0  # seconds that the overview's data are shared by all viewers
WINDOWS = 50  # windows on the page; the rest is behind "all reservations"
LATELY = 15  # notifications on the page; the rest is behind "full history"
NOISY = 5  # fingerprints with the most suppressed alerts: one line
COUNTED = 100  # queued notifications and dead letters: more are shown as "100+"


class WindowRow(Window):
    """A window with the moment at which it ends, and its full length."""

    ends: float = 0.0
    full: float = 0.0


class SilenceRow(Answer):
    """A silence with its full length."""

    silence: Silence
    ends: float
    full: float
    holds: bool


class AcknowledgedRow(Answer):
    """An acknowledgement with its full length."""

    acknowledgement: Acknowledgement
    ends: float
    full: float


class PublisherRow(Answer):
    """A publisher with its failures and dead letters of the last five minutes."""

    name: str
    failures: int
    dead: int


class OverviewCounts(Answer):
    """Counts of the last five minutes of this service; `waiting` and `dead_letters` of the whole store, up to 100."""

    received: int
    notified: int
    suppressed: int
    waiting: int
    dead_letters: int


class AlertsOverview(Answer):
    """The data of the overview. `group` is that of the dead letters, `prefix` that of the keys of all windows."""

    figures: OverviewCounts
    group: str
    prefix: str
    windows: list[WindowRow]
    more: bool
    publishers: list[PublisherRow]
    recent: list[NotificationRecord]
    suppressed: list[ReasonCount]
    noisy: list[NoisyAlert]
    silences: list[SilenceRow]
    acknowledged: list[AcknowledgedRow]


class HistoryPageQuery(HistoryQuery):
    """The API's query, with the fields of a page (see View)."""

    format: Literal["", "html", "json", "live"] = ""
    note: str = ""


class WhyPageQuery(View):
    """The alert to explain; the page is empty without one."""

    fingerprint: Anything = ""


class WhyPage(Answer):
    """The explanation; null without a fingerprint. `group` is that of the dead letters."""

    why: Why | None
    windows: list[WindowRow]
    group: str = GROUP


class Pages(Handlers):
    """The handlers."""

    async def overview(self, call: Call[None, View]) -> object:
        """The overview."""
        looks = call.service.dashboard.views
        return await show(call, OVERVIEW, lambda: looks.share("alerts", FRESH, self._overview))

    async def history(self, call: Call[None, HistoryPageQuery]) -> object:
        """The history."""
        return await show(call, HISTORY, lambda: find_history(self._app, call.query))

    async def why(self, call: Call[None, WhyPageQuery]) -> object:
        """The explanation."""
        fingerprint = call.query.fingerprint

        async def explained() -> WhyPage:
            known = await why(self._app, fingerprint)
            return WhyPage(why=known, windows=[self._row(window) for window in known.windows])

        async def look() -> WhyPage:
            if not fingerprint:
                return WhyPage(why=None, windows=[])
            return await call.service.dashboard.views.share(("alerts", fingerprint), FRESH, explained)

        return await show(call, WHY, look)

    async def _overview(self) -> AlertsOverview:
        app, since = self._app, time.time() - A_DAY
        page, waiting, retries, letters = await asyncio.gather(
            listed(app.once, app.history, "", WINDOWS, SENDING),
            app.once.queue(QUEUE).list(limit=COUNTED),
            app.once.queue(RETRIES).list(limit=COUNTED),
            app.once.dead_letters(GROUP).list(limit=COUNTED),
        )
        return AlertsOverview(
            group=GROUP,
            prefix=SENDING,
            figures=self._figures(min(COUNTED, len(waiting) + len(retries)), len(letters)),
            windows=[self._row(window) for window in page.found],
            more=page.next is not None,
            publishers=[self._publisher(publisher.name) for publisher in app.publishers],
            recent=await app.history.recent(limit=LATELY),
            suppressed=await app.history.suppressed_counts(since=since),
            noisy=await app.history.most_suppressed(since=since, limit=NOISY),
            silences=[_silence(each) for each in await app.silences.list()],
            acknowledged=[_acknowledged(each) for each in await app.parts.acknowledgements.list(COUNTED)],
        )

    def _figures(self, waiting: int, dead: int) -> OverviewCounts:
        count = self._app.service.dashboard.history.count
        return OverviewCounts(
            received=count(total(figures.RECEIVED)),
            notified=count(total(figures.PUBLISHED)),
            suppressed=count(total(figures.SUPPRESSED)),
            waiting=waiting,
            dead_letters=dead,
        )

    def _publisher(self, name: str) -> PublisherRow:
        count = self._app.service.dashboard.history.count
        failures, dead = total(figures.PUBLISHER_FAILURES, name), total(figures.DEAD_LETTERED, name)
        return PublisherRow(name=name, failures=count(failures), dead=count(dead))

    def _row(self, window: Window) -> WindowRow:
        fields = {name: getattr(window, name) for name in Window.__struct_fields__}
        return WindowRow(**fields, ends=time.time() + window.left, full=max(window.left, self._full(window)))

    def _full(self, window: Window) -> float:
        """The full length of such a window by the settings; 0 for a resolved notification."""
        if window.status == RESOLVED:
            return 0.0
        policy = table(self._app.settings)[window.severity]
        return seconds("window", policy.quiet if window.reason == QUIET else policy.hold, least=0.0, most=MAX_TTL)


def _acknowledged(made: Acknowledgement) -> AcknowledgedRow:
    return AcknowledgedRow(acknowledgement=made, ends=made.ends, full=made.ends - made.made)


def _silence(silence: Silence) -> SilenceRow:
    holds = silence.starts <= time.time()
    return SilenceRow(silence=silence, ends=silence.ends, full=silence.ends - silence.starts, holds=holds)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the pages."""
    pages = Pages(app)
    return [
        Route("GET", "/alerts", READ_PAGE, pages.overview, OVERVIEW.title, hidden=True),
        Route("GET", "/alerts/history", READ_PAGE, pages.history, HISTORY.title, hidden=True),
        Route("GET", "/alerts/why", READ_PAGE, pages.why, WHY.title, hidden=True),
    ]
