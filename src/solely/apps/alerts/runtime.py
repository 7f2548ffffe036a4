"""The running alert receiver: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from collections.abc import Sequence

from ... import QueueWorker
from ...kit import Application
from .figures import ACTIVE
from .notifications.facts import FactFinder
from .notifications.outbox import Outbox
from .notifications.publishing import GROUP, Publishing
from .notifications.sweeper import Sweeper
from .publishers import Publisher, build
from .receiver import AlertReceiver
from .records.history import AlertHistory
from .records.reports import AlertReports
from .settings import AlertsSettings
from .suppression.acknowledgements import Acknowledgements
from .suppression.open_alerts import OpenAlerts
from .suppression.silences import Silences
from .windows import Windows
from .worker import Capacity, RefusalCache


class AlertsRuntime(Application[AlertsSettings]):
    """The alert receiver of one worker, without its routes and jobs."""

    publishers: Sequence[Publisher] = ()
    history: AlertHistory
    silences: Silences
    capacity: Capacity
    acknowledgements: Acknowledgements
    open_alerts: OpenAlerts
    publishing: Publishing
    outbox: Outbox
    receiver: AlertReceiver
    sweeper: Sweeper

    async def start(self) -> None:
        """Assembles the parts, and loads the silences."""
        self.assemble(build(self.settings.publishers, once=self.once))
        self.service.dashboard.replays[GROUP] = self.publishing.replay
        self.service.metrics.gauge(ACTIVE, lambda: float(self.capacity.active))
        await self.silences.refresh()

    def assemble(self, publishers: Sequence[Publisher]) -> None:
        """Creates the parts and connects them."""
        once, settings, service, most = self.once, self.settings, self.service, self.settings.max_attempts
        self.publishers = publishers
        self.history, self.silences = AlertHistory(service.data, self.count_dropped), Silences(service.data)
        self.capacity, self.acknowledgements = Capacity(settings), Acknowledgements(once)
        refusals, windows = RefusalCache(), Windows(once, settings)
        reports = AlertReports(self.history, service.metrics, self.tracing)
        self.open_alerts = OpenAlerts(once, refusals, self.acknowledgements, self.silences)
        self.publishing = Publishing(once, settings, publishers, reports, self.open_alerts)
        self.outbox = Outbox(once, most, windows, refusals, reports, self.publishing, self.open_alerts)
        facts = FactFinder(self.silences, self.acknowledgements, self.open_alerts, self.outbox, self.publishing)
        shared = windows, self.capacity, reports, facts
        self.sweeper = Sweeper(once, most, *shared, self.outbox, self.publishing)
        self.receiver = AlertReceiver(settings, refusals, *shared, self.open_alerts, self.outbox)

    def workers(self) -> Sequence[QueueWorker]:
        """The workers of the sweeper."""
        return self.sweeper.workers

    async def stop(self) -> None:
        """Waits at most `stop_timeout` for what is being published, then writes the history."""
        await self.receiver.finish(self.service.settings.stop_timeout)
        await self.history.flush()
        for publisher in self.publishers:
            await publisher.close()


class Handlers:
    """Handlers of one worker's alert receiver. They are created before it starts, and read its parts at each call."""

    def __init__(self, app: AlertsRuntime) -> None:
        self._app = app
