"""The running alert receiver: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from collections.abc import Sequence

from ... import QueueWorker
from ...kit import Application
from .charts import of_publisher
from .figures import ACTIVE
from .history import AlertHistory
from .notifications.delivery import AT_ONCE, CRASHES, LEASE, Deliverer
from .notifications.outbox import Outbox
from .notifications.publishing import GROUP, Publishing
from .publishers import Publisher, build
from .receiver import AlertReceiver
from .reports import AlertReports
from .settings import AlertsSettings
from .suppression.acknowledgements import Acknowledgements
from .suppression.open_alerts import OpenAlerts
from .suppression.silences import Silences
from .windows import Windows
from .worker import Capacity, RefusalCache


class AlertsRuntime(Application[AlertsSettings]):
    """The alert receiver of one worker, without its routes and jobs."""

    name = "alerts"

    async def start(self) -> None:
        """Assembles the parts, and loads the silences."""
        self.assemble(build(self.settings.publishers, once=self.once))
        self.service.dashboard.replays[GROUP] = self.publishing.replay
        self.service.dashboard.rollup.add(of_publisher(each.name) for each in self.publishers)
        self.service.metrics.gauge(ACTIVE, lambda: float(self.capacity.active))
        await self.silences.refresh()

    def assemble(self, publishers: Sequence[Publisher]) -> None:
        """Creates the parts and connects them."""
        once, settings, refusals = self.once, self.settings, RefusalCache()
        self.publishers, self.history, self.silences = publishers, AlertHistory(self), Silences(self.queries)
        self.capacity, self.windows, self.acknowledgements = (
            Capacity(settings),
            Windows(once, settings),
            Acknowledgements(once),
        )
        reports = AlertReports(self.history, self.service.metrics, self.tracing)
        self.open_alerts = OpenAlerts(once, refusals, self.acknowledgements, self.silences)
        self.publishing = Publishing(once, settings, publishers, reports, self.open_alerts)
        self.outbox = Outbox(once, self.open_alerts, self.publishing)
        self._deliverer = Deliverer(
            self.windows, self.capacity, refusals, reports, self.open_alerts, self.publishing, self.outbox
        )
        self.receiver = AlertReceiver(settings, self._deliverer)

    def workers(self) -> Sequence[QueueWorker]:
        """The worker that publishes what waits in the outbox."""
        most, perform = self.settings.max_attempts + CRASHES, self._deliverer.perform
        return [self.worker("notifications", perform, ttl=LEASE, at_once=AT_ONCE, max_attempts=most)]

    async def stop(self) -> None:
        """Waits at most `stop_timeout` for what is being published."""
        await self.receiver.finish(self.service.settings.stop_timeout)
        for publisher in self.publishers:
            await publisher.close()


class Handlers:
    """Handlers of one worker's alert receiver. They are created before it starts, and read its parts at each call."""

    def __init__(self, app: AlertsRuntime) -> None:
        self._app = app
