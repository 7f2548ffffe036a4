"""The prober as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import Acts, AppPage, Chart, Figure, Job, Route
from .api import ProbesApi
from .charts import CHARTS
from .demo import demo
from .exporter import Exporter
from .figures import FIGURES
from .pages import ProbePages
from .runtime import ProbesRuntime

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
