"""The alert receiver as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import AppPage, Figure, Job, Route
from . import pages
from .api import acknowledgements, firing, history, silences, why, windows
from .api import alertmanager as alertmanager_api
from .demo import demo
from .figures import FIGURES
from .inputs import alertmanager, announced, own_json, pagerduty
from .publishers import LogSettings
from .runtime import AlertsRuntime

_FLUSH = 0.5  # seconds of history that a killed worker may lose
_REFRESH = 1.0  # seconds until a silence that another worker made applies here
_RETENTION = 3600.0  # seconds between deletions of old history, which is kept for weeks


class AlertsApp(AlertsRuntime):
    """One notification per alert, under any concurrency."""

    name = "alerts"
    title = "Alerts"
    about = "One notification per alert, no matter how often or by whom it is sent."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Alerts", "/alerts", about),)
    secrets: ClassVar[tuple[str, ...]] = ("publishers",)

    def routes(self) -> Sequence[Route]:
        """The endpoints of senders and operators, and the pages."""
        senders, page = (own_json, alertmanager, pagerduty), (pages, why)
        modules = (*senders, alertmanager_api, firing, acknowledgements, windows, history, silences, *page)
        return [route for module in modules for route in module.routes(self)]

    async def start(self) -> None:
        """Starts the parts; announcements of other applications are received like alerts of any sender."""
        await super().start()
        self.service.announce.register(lambda each: self.receiver.receive(announced.alert_of(each)))

    async def stop(self) -> None:
        """Announcements are logged again; see AlertsRuntime.stop for the rest."""
        self.service.announce.register(None)
        await super().stop()

    def jobs(self) -> Sequence[Job]:
        """Writes the history, refreshes silences, and deletes what is too old."""
        return (
            Job("history", _FLUSH, self.history.flush),
            Job("silences", _REFRESH, self.silences.refresh),
            Job("retention", _RETENTION, self._delete_old),
        )

    async def demo(self) -> None:
        """Sends sample alerts if the log is the only publisher: no real receiver gets made-up alerts."""
        if all(isinstance(each, LogSettings) for each in self.settings.publishers):
            await demo(self.receiver)

    async def _delete_old(self) -> None:
        await self.history.sweep(self.settings.retention)
        await self.acknowledgements.sweep()
        await self.open_alerts.sweep()
