"""The prober as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal
from urllib.parse import urlencode

from ...kit import Acts, AppPage, Attention, Chart, Figure, Job, Route, listed
from .api import ProbesApi
from .charts import CHARTS
from .demo import demo
from .exporter import Exporter
from .figures import FIGURES
from .model import DOWN, REFUSED, State
from .pages import ProbePages
from .runtime import ProbesRuntime

_TROUBLE: tuple[tuple[State, Literal["error", "warning"], str], ...] = (
    (DOWN, "error", "down"),
    (REFUSED, "warning", "not probed, since the guard refuses their addresses"),
)
_FOLLOW = 1.0  # seconds until a target that another worker added is probed here, too
_RECORD = 0.25  # seconds of results that a killed worker may lose, and until a state changes
_MAKE_UP = 5.0  # seconds between looks for announcements that a worker owed when it died
_RETENTION = 3600.0  # seconds between deletions of old results, which are kept for a day and longer


class ProbesApp(ProbesRuntime):
    """One synthetic probe per target at a time, over any number of replicas."""

    name = "probes"
    title = "Probes"
    about = "One synthetic probe per target at a time, over any number of replicas."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    charts: ClassVar[tuple[Chart, ...]] = CHARTS
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Probes", "/probes", about),)
    secrets: ClassVar[tuple[str, ...]] = ("targets", "modules")

    def routes(self) -> Sequence[Route]:
        """The lists, the exporter and the pages."""
        api = ProbesApi(self)
        return [*api.routes(), *Exporter(self).routes(), *ProbePages(self, api).routes()]

    def acts(self) -> Acts:
        """What operators do."""
        return ProbesApi(self).acts()

    async def attention(self) -> Sequence[Attention]:
        """Targets that are down or refused, unless they are paused or in maintenance."""
        states, targets = await self.history.states(), self.targets
        watched = [each for each in targets.all if each not in targets.pauses and targets.window(each) is None]
        found = []
        for state, level, words in _TROUBLE:
            names = [each for each in watched if each in states and states[each].state == state]
            if names:
                text = f"{len(names)} {'target is' if len(names) == 1 else 'targets are'} {words}: {listed(names)}"
                link = f"/probes/target?{urlencode({'name': names[0]})}" if len(names) == 1 else "/probes"
                found.append(Attention(level=level, text=text, link=link))
        return found

    def jobs(self) -> Sequence[Job]:
        """Follows changes of the targets, writes results, makes up for announcements, deletes what is too old."""
        return (
            Job("targets", _FOLLOW, self.follow),
            Job("results", _RECORD, self.record),
            Job("announcements", _MAKE_UP, self.make_up),
            Job("retention", _RETENTION, self._delete_old),
        )

    async def demo(self) -> None:
        """Probes a server of its own, which fails at times, unless there are targets."""
        if not self.targets.all:
            await demo(self)

    async def _delete_old(self) -> None:
        await self.history.sweep(self.settings.keep_results, self.settings.keep_hours, self.settings.keep_days)
