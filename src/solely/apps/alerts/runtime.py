"""The running alert receiver: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ... import QueueWorker
from ...kit import Application
from .figures import ACTIVE
from .notifications.dead_letters import GROUP, NotificationDeadLetters
from .notifications.facts import FactFinder
from .notifications.fanout import Fanout
from .notifications.outbox import Outbox
from .notifications.sweeper import Sweeper
from .publishers import Publisher, build
from .receiver import Receiver
from .records.history import AlertHistory
from .settings import AlertsSettings, Windows
from .suppression.acknowledgements import Acknowledgements
from .suppression.open_alerts import OpenAlerts
from .suppression.silences import Silences
from .tracing import AlertTracing
from .worker import Capacity, Dependencies, RefusalCache


class Parts(NamedTuple):
    """The parts of the alert receiver."""

    receiver: Receiver
    outbox: Outbox
    sweeper: Sweeper
    dead_letters: NotificationDeadLetters
    acknowledgements: Acknowledgements
    open_alerts: OpenAlerts


def assemble(given: Dependencies, publishers: Sequence[Publisher], silences: Silences) -> Parts:
    """Creates the parts and connects them."""
    fanout, acknowledgements = Fanout(publishers, given), Acknowledgements(given.once)
    open_alerts = OpenAlerts(given, acknowledgements, silences)
    dead_letters = NotificationDeadLetters(given, fanout, open_alerts)
    outbox = Outbox(given, fanout, dead_letters, open_alerts)
    facts = FactFinder(silences, acknowledgements, open_alerts, outbox, fanout)
    receiver = Receiver(given, facts, open_alerts, outbox)
    sweeper = Sweeper(given, facts, outbox, dead_letters)
    return Parts(receiver, outbox, sweeper, dead_letters, acknowledgements, open_alerts)


class AlertsRuntime(Application[AlertsSettings]):
    """The alert receiver of one worker, without its routes and jobs."""

    receiver: Receiver
    history: AlertHistory
    silences: Silences
    publishers: list[Publisher]
    sweeper: Sweeper
    open_alerts: OpenAlerts
    parts: Parts

    async def start(self) -> None:
        """Assembles the parts, and loads the silences."""
        service, settings = self.service, self.settings
        self.publishers = build(settings.publishers, once=self.once)
        self.history = AlertHistory(service.data, self.count_dropped)
        self.silences = Silences(service.data)
        given = Dependencies(
            self.once,
            settings,
            Windows(settings),
            RefusalCache(),
            Capacity(settings.request_limit, settings.request_per, settings.max_active),
            self.history,
            service.metrics,
            AlertTracing(self.tracing),
        )
        parts = self.parts = assemble(given, self.publishers, self.silences)
        self.receiver, self.sweeper, self.open_alerts = parts.receiver, parts.sweeper, parts.open_alerts
        service.dashboard.replays[GROUP] = parts.dead_letters.replay
        service.metrics.gauge(ACTIVE, lambda: float(given.capacity.active))
        await self.silences.refresh()

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
