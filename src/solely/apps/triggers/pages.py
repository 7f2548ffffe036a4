"""The pages of the task-trigger API: runs with the gate and the buffer, and one run with its timeline and attempts."""

from __future__ import annotations

from typing import Any, Literal

from ...kit import READ, READ_PAGE, UNKNOWN, Call, Page, Route, View, show, without_nul
from . import acts
from .charts import CHARTS
from .model import RunId
from .runtime import TriggersRuntime
from .views import GateStates, ListedTriggerRuns, RunDetails, RunFilters, RunViews, TriggersOverview

OVERVIEW = Page("Triggers", "triggers:overview.html", "/triggers", CHARTS)
ONE = Page("Run", "triggers:run.html", "/triggers")
FRESH = 1.0  # seconds that the overview's counts are shared by all viewers


class OverviewView(RunFilters):
    """The overview, with filters for its runs. `format` and `note` are those of every view."""

    format: Literal["", "html", "json", "live"] = ""
    note: str = ""
    range: Literal["", "10m", "1h", "24h", "7d"] = ""


class RunView(View):
    """One run."""

    id: RunId


class TriggerPages:
    """The handlers of pages and lists, in the environment of the caller's token."""

    def __init__(self, app: TriggersRuntime) -> None:
        self._app, self._views = app, RunViews(app)

    async def overview(self, call: Call[None, OverviewView]) -> object:
        """The overview."""
        return await show(call, OVERVIEW, lambda: self._overview(call))

    async def _overview(self, call: Call[None, OverviewView]) -> TriggersOverview:
        environment, shared = self._environment(call), call.service.dashboard.views
        gate = await shared.share(("triggers", environment), FRESH, lambda: self._views.gate_state(environment))
        listed = await self._views.listed(environment, call.query)
        return TriggersOverview(gate=gate, figures=self._views.counts(), runs=listed.runs, next=listed.next)

    async def run(self, call: Call[None, RunView]) -> object:
        """One run."""
        return await show(call, ONE, lambda: self._views.details(self._environment(call), call.query.id))

    async def list_runs(self, call: Call[None, RunFilters]) -> ListedTriggerRuns:
        """Runs of the caller's environment."""
        return await self._views.listed(self._environment(call), call.query)

    async def details(self, call: Call[None, None]) -> RunDetails:
        """One run, with its timeline and attempts."""
        return await self._views.details(self._environment(call), without_nul(call.params["id"]))

    async def gate(self, call: Call[None, None]) -> GateStates:
        """The gate and the buffer of the caller's environment."""
        return GateStates(gates=[await self._views.gate_state(self._environment(call))])

    def _environment(self, call: Call[Any, Any]) -> str:
        return self._app.environment_of(call.principal.name)


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of pages and lists."""
    shown = TriggerPages(app)
    return [
        Route("GET", "/triggers", READ_PAGE, shown.overview, OVERVIEW.title, hidden=True),
        Route("GET", "/triggers/run", READ_PAGE, shown.run, ONE.title, hidden=True),
        Route("GET", acts.RUNS.path, READ, shown.list_runs, acts.RUNS.summary),
        Route("GET", f"{acts.RUNS.path}/{{id}}", READ, shown.details, refusals=(UNKNOWN,)),
        Route("GET", acts.GATES.path, READ, shown.gate, acts.GATES.summary),
    ]
