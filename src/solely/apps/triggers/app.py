"""The task-trigger API as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import urlencode

from ...kit import AppPage, Attention, Chart, Figure, Route, is_hidden_name
from . import operators, pages
from .api import batching, runs, subscriptions, triggering, uploads, work
from .buffer import queue_name
from .charts import CHARTS
from .demo import demo
from .figures import FIGURES
from .runtime import TriggersRuntime
from .views import RunViews
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
        modules = (triggering, uploads, batching, runs, subscriptions, work, operators, pages)
        return [route for module in modules for route in module.routes(self)]

    async def attention(self) -> Sequence[Attention]:
        """Runs that failed in the last 24 hours, and runs without a worker, by environment that the caller sees."""
        found = []
        for environment in self.environments:
            if is_hidden_name(queue_name(environment)):
                continue
            state, of = await RunViews(self).gate_state(environment), f" in {environment}"
            query = {"environment": environment, "state": "FAILED"}
            if state.failed:
                text = f"{state.failed} {'run' if state.failed == 1 else 'runs'} failed{of} in the last 24 hours"
                found.append(Attention(level="warning", text=text, link=f"/triggers?{urlencode(query)}"))
            if state.abandoned:
                some = "1 run has" if state.abandoned == 1 else f"{state.abandoned} runs have"
                text, query = f"{some} no worker{of}: theirs stopped renewing", query | {"state": "EXECUTING"}
                found.append(Attention(level="warning", text=text, link=f"/triggers?{urlencode(query)}"))
        return found

    async def demo(self) -> None:
        """Triggers sample runs, bursts among them, and works on them, if no environment but the default is in use."""
        await demo(self)
