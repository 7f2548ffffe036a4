"""The pages of the alert receiver: what is going on, what was told, and why somebody was not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ....rules import MAX_TTL, seconds
from ....service.dashboard.history import total
from ....service.dashboard.rendering import READ_PAGE, Page, View, show
from ....service.routes import Answer, Call, PageSize, Route
from .. import figures
from ..api.admin import Anything, Place
from ..api.why import Why, why
from ..api.windows import SENDING, Window, listed
from ..model import RESOLVED
from ..notifications.dead_letters import GROUP
from ..notifications.outbox import QUEUE, RETRIES
from ..records.history_queries import Noisy, Suppressed, ToldAlert
from ..settings import table
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.silences import Silence
from . import acknowledge_forms, admin_forms

if TYPE_CHECKING:
    from ..app import App

OVERVIEW = Page("Alerts", "alerts:overview.html", "/alerts")
HISTORY = Page("Alerts that were told", "alerts:history.html", "/alerts")
WHY = Page("Why was I not told?", "alerts:why.html", "/alerts")
FRESH = 1.0  # seconds that a look at everything is shared by all viewers
WINDOWS = 50  # that are shown; the rest is behind "all reservations"
LATELY = 15  # notifications that are shown; the rest is behind "all of the history"
NOISY = 5
COUNTED = 100  # waiting notifications and dead letters: more are told as so many and more
A_DAY = 86_400.0  # seconds over which suppressed alerts are counted
_QUIET = "quiet"


class WindowRow(Window):
    """With the moment at which it ends, and how long it lasts in full."""

    ends: float = 0.0
    full: float = 0.0


class SilenceRow(Answer):
    """A silence, and how long it lasts in full."""

    silence: Silence
    ends: float
    full: float
    holds: bool


class AcknowledgedRow(Answer):
    """An acknowledgement, and how long it lasts in full."""

    acknowledgement: Acknowledgement
    ends: float
    full: float


class PublisherRow(Answer):
    """A publisher, and how often it failed within the last five minutes."""

    name: str
    failures: int
    dead: int


class Figures(Answer):
    """Of the last five minutes, through this service; what waits, and dead letters, of the whole store, up to 100."""

    received: int
    told: int
    suppressed: int
    waiting: int
    dead_letters: int


class Overview(Answer):
    """All of it. `group` is that of the dead letters, `prefix` what the keys of all windows begin with."""

    figures: Figures
    group: str
    prefix: str
    windows: list[WindowRow]
    more: bool
    publishers: list[PublisherRow]
    recent: list[ToldAlert]
    suppressed: list[Suppressed]
    noisy: list[Noisy]
    silences: list[SilenceRow]
    acknowledged: list[AcknowledgedRow]


class HistoryQuery(View):
    """Of this fingerprint and severity, or of all."""

    fingerprint: Anything = ""
    severity: Anything = ""
    after: Place = ""
    limit: PageSize = 50


class HistoryPage(Answer):
    """The newest first. If `next` is not null there may be more: ask for those after it."""

    history: list[ToldAlert]
    next: str | None


class WhyQuery(View):
    """Which alert; none yet if it is empty."""

    fingerprint: Anything = ""


class Explained(Answer):
    """What is known of the alert that was asked for; null if none was. `group` is that of the dead letters."""

    why: Why | None
    windows: list[WindowRow]
    group: str = GROUP


class Pages:
    """The pages of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def overview(self, call: Call[None, View]) -> object:
        """What is going on."""
        looks = call.service.desk.looks
        return await show(call, OVERVIEW, lambda: looks.share("alerts", FRESH, self._overview))

    async def history(self, call: Call[None, HistoryQuery]) -> object:
        """What was told."""
        asked = call.query

        async def look() -> HistoryPage:
            found = await self._app.history.recent(
                fingerprint=asked.fingerprint, severity=asked.severity, after=asked.after, limit=asked.limit
            )
            return HistoryPage(history=found, next=found[-1].place if len(found) == asked.limit else None)

        return await show(call, HISTORY, look)

    async def why(self, call: Call[None, WhyQuery]) -> object:
        """Why it was not."""
        fingerprint = call.query.fingerprint

        async def explained() -> Explained:
            known = await why(self._app, fingerprint)
            return Explained(why=known, windows=[self._row(window) for window in known.windows])

        async def look() -> Explained:
            if not fingerprint:
                return Explained(why=None, windows=[])
            return await call.service.desk.looks.share(("alerts", fingerprint), FRESH, explained)

        return await show(call, WHY, look)

    async def _overview(self) -> Overview:
        app, since = self._app, time.time() - A_DAY
        page, waiting, retries, letters = await asyncio.gather(
            listed(app.once, app.history, "", WINDOWS, SENDING),
            app.once.queue(QUEUE).list(limit=COUNTED),
            app.once.queue(RETRIES).list(limit=COUNTED),
            app.once.dead_letters(GROUP).list(limit=COUNTED),
        )
        return Overview(
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

    def _figures(self, waiting: int, dead: int) -> Figures:
        count = self._app.service.desk.history.count
        return Figures(
            received=count(total(figures.RECEIVED)),
            told=count(total(figures.PUBLISHED)),
            suppressed=count(total(figures.SUPPRESSED)),
            waiting=waiting,
            dead_letters=dead,
        )

    def _publisher(self, name: str) -> PublisherRow:
        count = self._app.service.desk.history.count
        failures, dead = total(figures.PUBLISHER_FAILURES, name), total(figures.DEAD_LETTERED, name)
        return PublisherRow(name=name, failures=count(failures), dead=count(dead))

    def _row(self, window: Window) -> WindowRow:
        fields = {name: getattr(window, name) for name in Window.__struct_fields__}
        return WindowRow(**fields, ends=time.time() + window.left, full=max(window.left, self._full(window)))

    def _full(self, window: Window) -> float:
        """How long such a window lasts by the settings; nothing if they do not say."""
        if window.status == RESOLVED:
            return 0.0
        policy = table(self._app.settings)[window.severity]
        return seconds("window", policy.quiet if window.reason == _QUIET else policy.hold, least=0.0, most=MAX_TTL)


def _acknowledged(made: Acknowledgement) -> AcknowledgedRow:
    return AcknowledgedRow(acknowledgement=made, ends=made.ends, full=made.ends - made.made)


def _silence(silence: Silence) -> SilenceRow:
    holds = silence.starts <= time.time()
    return SilenceRow(silence=silence, ends=silence.ends, full=silence.ends - silence.starts, holds=holds)


def routes(app: App) -> list[Route]:
    """The pages, and what can be done on them."""
    pages = Pages(app)
    return [
        Route("GET", "/alerts", READ_PAGE, pages.overview, OVERVIEW.title, query=View, hidden=True),
        Route("GET", "/alerts/history", READ_PAGE, pages.history, HISTORY.title, query=HistoryQuery, hidden=True),
        Route("GET", "/alerts/why", READ_PAGE, pages.why, WHY.title, query=WhyQuery, hidden=True),
        *admin_forms.routes(app),
        *acknowledge_forms.routes(app),
    ]
