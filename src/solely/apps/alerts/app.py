"""The alert receiver as the service mounts it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from ..app import App as Base
from ..app import AppPage, Figure, Job, Route
from .api import acknowledgements as acknowledging
from .api import admin
from .demo import demo
from .figures import ACTIVE, FIGURES
from .inputs import alertmanager, own_json, pagerduty
from .notifications.dead_letters import GROUP, Parking
from .notifications.fanout import Fanout
from .notifications.outbox import Outbox
from .notifications.sweeper import EVERY, Sweeper
from .pages import views
from .publishers import LogSettings, Publisher, build
from .receiver import Receiver
from .records.history import History
from .settings import AlertsSettings
from .suppression.acknowledgements import Acknowledgements
from .suppression.flapping import Flapping
from .suppression.groups import Groups
from .suppression.open_alerts import Openings
from .suppression.reminders import Reminders
from .suppression.rules import Restraints
from .suppression.silences import Silences
from .tracing import Tracing
from .worker.capacity import Capacity
from .worker.recent import Recent
from .worker.tools import Tools

_FLUSH = 0.5  # seconds of history that a killed worker may lose
_REFRESH = 1.0  # seconds until a silence that was made by another worker holds here
_RETENTION = 3600.0  # seconds between looks for history that is too old: it is kept for weeks


class Parts(NamedTuple):
    """What takes alerts in, keeps them, has them told, and parks them; and what it notes of them."""

    receiver: Receiver
    outbox: Outbox
    sweeper: Sweeper
    parking: Parking
    acknowledgements: Acknowledgements
    openings: Openings
    groups: Groups
    reminders: Reminders


def assemble(tools: Tools, publishers: Sequence[Publisher], silences: Silences) -> Parts:
    """The parts of the alert receiver, put together."""
    acknowledgements, reminders, groups = Acknowledgements(tools.once), Reminders(tools), Groups(tools)
    fanout, openings = Fanout(publishers, tools), Openings(tools, acknowledgements, reminders)
    restraints = Restraints(acknowledgements, openings, Flapping(tools), groups, reminders)
    parking = Parking(tools, fanout, openings)
    outbox = Outbox(tools, fanout, parking, openings, groups)
    receiver = Receiver(tools, outbox, fanout, silences, restraints)
    sweeper = Sweeper(tools, outbox, parking, restraints, receiver.terms)
    return Parts(receiver, outbox, sweeper, parking, acknowledgements, openings, groups, reminders)


class App(Base[AlertsSettings]):
    """One notification per alert, under any concurrency."""

    name = "alerts"
    title = "Alerts"
    about = "One notification per alert, whoever sends it how often."
    Settings = AlertsSettings
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Alerts", "/alerts", about),)
    secrets: ClassVar[tuple[str, ...]] = ("publishers",)

    receiver: Receiver
    history: History
    silences: Silences
    publishers: list[Publisher]
    sweeper: Sweeper
    parts: Parts

    def routes(self) -> Sequence[Route]:
        """Senders, admins and pages."""
        modules = (own_json, alertmanager, pagerduty, acknowledging, admin, views)
        return [route for module in modules for route in module.routes(self)]

    def jobs(self) -> Sequence[Job]:
        """What waits is published, what happened is written down, silences are looked up, what is old is forgotten."""
        return (
            Job("sweep", EVERY, self.sweeper.sweep),
            Job("history", _FLUSH, self.history.flush),
            Job("silences", _REFRESH, self.silences.refresh),
            Job("retention", _RETENTION, self._forget_old),
        )

    async def start(self) -> None:
        """Puts the parts together."""
        service, settings = self.service, self.settings
        self.publishers = build(settings.publishers, once=self.once)
        self.history = History(service.data)
        self.silences = Silences(service.data)
        tools = Tools(
            self.once,
            settings,
            Recent(),
            Capacity(settings.request_limit, settings.request_per, settings.max_active),
            self.history,
            service.metrics,
            Tracing.on() if service.telemetry is not None else Tracing(),
        )
        parts = self.parts = assemble(tools, self.publishers, self.silences)
        self.receiver, self.sweeper = parts.receiver, parts.sweeper
        service.desk.replays[GROUP] = parts.parking.replay
        service.metrics.gauge(ACTIVE, lambda: float(tools.capacity.active))
        await self.silences.refresh()

    async def stop(self) -> None:
        """Waits for what is being published, as long as for requests under way; then the history is written down."""
        if hasattr(self, "sweeper"):
            patience = self.service.settings.stop_timeout
            await asyncio.gather(self.receiver.finish(patience), self.sweeper.finish(patience))
            await self.history.flush()
        for publisher in getattr(self, "publishers", ()):
            await publisher.close()

    async def demo(self) -> None:
        """Believable alerts, which go to the log and nowhere else: no real receiver is sent what did not happen."""
        if all(isinstance(each, LogSettings) for each in self.settings.publishers):
            await demo(self.receiver)

    async def _forget_old(self) -> None:
        await self.history.sweep(self.settings.retention)
        for notes in (self.parts.acknowledgements, self.parts.groups, self.parts.reminders):
            await notes.sweep()
