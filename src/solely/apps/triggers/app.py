"""The task-trigger API as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import AppPage, Chart, Figure, Route
from . import operators, pages
from .api import batching, runs, triggering, work
from .charts import CHARTS
from .demo import demo
from .figures import FIGURES
from .runtime import TriggersRuntime
from .work.figures import FIGURES as WORK_FIGURES


class TriggersApp(TriggersRuntime):
    """Same idempotency key, same run id, always."""

    name = "triggers"
    title = "Triggers"
    about = "Same idempotency key, same run id, always, through a burst buffer."
    figures: ClassVar[tuple[Figure, ...]] = (*FIGURES, *WORK_FIGURES)
    charts: ClassVar[tuple[Chart, ...]] = CHARTS
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Triggers", "/triggers", about),)

    def routes(self) -> Sequence[Route]:
        """The endpoints of callers, workers and operators, and the pages."""
        modules = (triggering, batching, runs, work, operators, pages)
        return [route for module in modules for route in module.routes(self)]

    async def demo(self) -> None:
        """Triggers sample runs, bursts among them, and works on them, if no environment but the default is in use."""
        await demo(self)
