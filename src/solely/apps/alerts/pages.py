"""The pages of the alert receiver: what fires now with all that is going on, and the history."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec

from ...kit import DAY, NOTES_PAGE, READ_PAGE, Call, Figure, Page, Route, View, list_page, show, total
from . import acts, figures
from .api.lists import Lists
from .api.windows import SENDING, listed
from .charts import CHARTS, of_publisher
from .distinctions import distinctions
from .notifications.publishing import GROUP, QUEUE
from .runtime import AlertsRuntime, Handlers

OVERVIEW = Page("Alerts", "alerts:overview.html", "/alerts", CHARTS)
HISTORY = Page("Notifications", "alerts:history.html", "/alerts")
FRESH = 1.0  # seconds that the overview's data are shared by all viewers
FIRING = 25  # alerts on a page: about two screens of a phone
WINDOWS = 5  # windows on the page: on a phone they are tall; the rest is behind "all reservations"
LATELY = 10  # notifications on the page; the rest is behind "full history"
NOISY = 5  # fingerprints with the most suppressed alerts: one line
COUNTED = 100  # queued notifications and dead letters: more are shown as "100+"


class AlertsView(View):
    """`skip` alerts that fire are on the pages before."""

    skip: Annotated[int, msgspec.Meta(ge=0, le=NOTES_PAGE)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=NOTES_PAGE)] = FIRING


class Pages(Handlers):
    """The handler of the overview."""

    async def overview(self, call: Call[None, AlertsView]) -> object:
        """The overview."""
        views, query = call.service.dashboard.views, call.query
        what = ("alerts", query.skip, query.limit)
        return await show(call, OVERVIEW, lambda: views.share(what, FRESH, lambda: self._overview(query)))

    async def _overview(self, query: AlertsView) -> dict[str, Any]:
        """The data of the page. `figures` are counts of the last five minutes of this service, and of what waits in the
        whole store, up to COUNTED. `group` is that of the dead letters, `prefix` that of the keys of all windows."""
        app, since = self._app, time.time() - DAY
        firing, windows, waiting, letters = await asyncio.gather(
            app.open_alerts.list(limit=NOTES_PAGE),
            listed(app, "", WINDOWS, SENDING),
            app.once.queue(QUEUE).list(limit=COUNTED),
            app.once.dead_letters(GROUP).list(limit=COUNTED),
        )
        return {
            "firing": firing[query.skip : query.skip + query.limit],
            "distinctions": distinctions([each.alert for each in firing]),
            "total": len(firing),
            "more": len(firing) == NOTES_PAGE,
            "figures": {
                "received": self._count(figures.RECEIVED),
                "notified": self._count(figures.PUBLISHED),
                "suppressed": self._count(figures.SUPPRESSED),
                "waiting": len(waiting),
                "dead_letters": len(letters),
            },
            "windows": windows.rows,
            "more_windows": windows.next is not None,
            "publishers": await self._publishers([publisher.name for publisher in app.publishers]),
            "recent": await app.history.recent(limit=LATELY),
            "suppressed": await app.history.suppressed_counts(since=since),
            "noisy": await app.history.most_suppressed(since=since, limit=NOISY),
            "silences": await app.silences.list(),
            "acknowledged": await app.acknowledgements.list(COUNTED),
            "group": GROUP,
            "prefix": SENDING,
        }

    async def _publishers(self, names: list[str]) -> list[dict[str, Any]]:
        """Publishers with their failures and dead letters of the last five minutes, and what they sent in the last
        hour."""
        lines = {name: of_publisher(name).name for name in names}
        sent = await self._app.service.dashboard.sparklines(list(lines.values()))
        return [
            {
                "name": name,
                "failures": self._count(figures.PUBLISHER_FAILURES, name),
                "dead": self._count(figures.DEAD_LETTERED, name),
                "sent": sent[line],
            }
            for name, line in lines.items()
        ]

    def _count(self, figure: Figure, *labels: str) -> int:
        return self._app.service.dashboard.history.count(total(figure, *labels))


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the pages."""
    return [
        Route("GET", "/alerts", READ_PAGE, Pages(app).overview, OVERVIEW.title, hidden=True),
        list_page(acts.HISTORY, Lists(app).history, "/alerts/history", HISTORY),
    ]
