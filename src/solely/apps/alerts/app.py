"""The alert receiver as the service mounts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar, Literal

from ...kit import AppPage, Attention, Chart, Figure, Job, Route, listed
from . import pages
from .api import acknowledgements, lists, silences, why, windows
from .api import alertmanager as alertmanager_api
from .charts import CHARTS
from .demo import demo
from .figures import FIGURES
from .inputs import alertmanager, own_json, pagerduty
from .inputs.labels import announced_alert
from .publishers import LogSettings
from .runtime import AlertsRuntime

_URGENT = ("critical", "error", "page")  # severities that somebody has to look at now
_REFRESH = 1.0  # seconds until a silence that another worker made applies here
_EXPIRED = 3600.0  # seconds between removals of expired notes, which count as missing before


class AlertsApp(AlertsRuntime):
    """One notification per alert, under any concurrency."""

    title = "Alerts"
    about = "One notification per alert, no matter how often or by whom it is sent."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    charts: ClassVar[tuple[Chart, ...]] = CHARTS
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Alerts", "/alerts", about),)
    secrets: ClassVar[tuple[str, ...]] = ("publishers",)

    def routes(self) -> Sequence[Route]:
        """The endpoints of senders and operators, and the pages."""
        senders, page = (own_json, alertmanager, pagerduty), (pages, why)
        modules = (*senders, alertmanager_api, lists, acknowledgements, windows, silences, *page)
        return [route for module in modules for route in module.routes(self)]

    async def attention(self) -> Sequence[Attention]:
        """Alerts that fire and are not silenced, by severity; acknowledged ones are somebody's work already."""
        firing = [each for each in await self.open_alerts.list(limit=sys.maxsize) if each.silenced is None]
        found = []
        for severity in dict.fromkeys(each.alert.severity for each in firing):
            open_ = [each for each in firing if each.alert.severity == severity]
            new = [each.alert.name for each in open_ if each.acknowledged is None]
            names = listed(list(dict.fromkeys(new))) if new else "all acknowledged"
            text = f"{len(open_)} {severity} {'alert fires' if len(open_) == 1 else 'alerts fire'}: {names}"
            untold = sum(each.last_notified is None for each in open_)
            if untold:
                text += f" (nobody was notified{f' of {untold}' if len(open_) > 1 else ''})"
            level: Literal["error", "warning"] = "error" if new and severity.casefold() in _URGENT else "warning"
            if severity.casefold() != "info":
                found.append(Attention(level=level, text=text, link="/alerts"))
        return found

    async def start(self) -> None:
        """Starts the parts; announcements of other applications are received like alerts of any sender."""
        await super().start()
        self.service.announce.register(lambda each: self.receiver.receive(announced_alert(each)))

    async def stop(self) -> None:
        """Announcements are logged again; see AlertsRuntime.stop for the rest."""
        self.service.announce.register(None)
        await super().stop()

    def jobs(self) -> Sequence[Job]:
        """Refreshes silences, and removes notes that expired; the service writes the history."""
        return Job("silences", _REFRESH, self.silences.refresh), Job("notes", _EXPIRED, self._sweep)

    async def demo(self) -> None:
        """Sends sample alerts if the log is the only publisher: no real receiver gets made-up alerts."""
        if all(isinstance(each, LogSettings) for each in self.settings.publishers):
            await demo(self.receiver)

    async def _sweep(self) -> None:
        await self.acknowledgements.sweep()
        await self.open_alerts.sweep()
